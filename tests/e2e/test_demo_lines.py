"""The line at the head of each phase's values for this cluster, typed as it stands there, to its served end."""

import json
import re
from pathlib import Path

import pytest
import yaml

from e2e import machine
from e2e.commands import WITH_PROGRAMS, kubectl, objects, sh

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(7200)]
LOCAL = machine.REPO / "values" / "local"
STAGES = ["staged-pretrain", "staged-sft", "staged-dpo", "staged-lora"]
"""One release, each going on from the run before."""
ALONE = [[phase] for phase in sorted({file.stem for file in LOCAL.glob("*.yaml")} - set(STAGES))]
TRAINING_SECONDS, SERVER_SECONDS = 2400, 900


def line_of(phase: str) -> str:
    """The command that the file of a phase begins with."""
    (match,) = re.findall(r"^# (helm .*)$", (LOCAL / f"{phase}.yaml").read_text(encoding="utf-8"), re.MULTILINE)
    return str(match)


@pytest.mark.tier
@pytest.mark.parametrize("phases", [*ALONE, STAGES], ids=lambda phases: phases[0])
def test_the_line_of_a_phase_is_followed_to_an_answer(demo: str, phases: list[str], tmp_path: Path) -> None:
    """In a namespace that only exists, next to the demo, with the site file that its site.yml wrote."""
    space = f"line-{phases[0]}"
    for name in ("charts", "values"):
        (tmp_path / name).symlink_to(machine.REPO / name)
    (tmp_path / "artifacts").symlink_to(machine.ARTIFACTS)
    config = yaml.safe_load(machine.KUBECONFIG.read_text(encoding="utf-8"))
    (context,) = config["contexts"]
    context["context"]["namespace"] = space
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config), encoding="utf-8")
    env = {"KUBECONFIG": str(tmp_path / "kubeconfig"), **WITH_PROGRAMS}
    kubectl("create", "namespace", space)
    try:
        for phase in phases:
            said = sh("sh", "-c", line_of(phase), env=env, folder=tmp_path)
            assert "STATUS: deployed" in said, said
            name = re.findall(r"^NAME: (.*)$", said, re.MULTILINE)[0]
            ours = f"app.kubernetes.io/instance={name}"
            every = ("-l", ours, "--for=condition=Complete", f"--timeout={TRAINING_SECONDS}s")
            sh("kubectl", "wait", "jobs", *every, env=env, seconds=TRAINING_SECONDS + 60)
            served = ("inferenceservices", name, "--for=condition=Ready", f"--timeout={SERVER_SECONDS}s")
            sh("kubectl", "wait", *served, env=env)
            trained = {job["metadata"]["labels"]["trainlab.dev/run"] for job in objects("jobs", space, "-l", ours)}
            (service,) = objects("inferenceservices", space)
            assert any(run in json.dumps(service) for run in trained), "the run of this line is served"
            sh("helm", "test", name, "--timeout", "10m", env=env)
        sh("helm", "uninstall", name, "--wait", env=env)
    finally:
        kubectl("delete", "namespace", space, "--wait=false")
