"""The command that NOTES name for a release is its plan: `helm get values RELEASE -a -o yaml | trainlab plan -`.

Without a cluster: Helm 4 makes the release with --dry-run=client (as JSON, with its notes), and Helm 3 and 4 read it with
their memory driver, which keeps releases in a file.
"""

import functools
import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from trainlab.config.loading import load_values

from charts.cli import trainlab
from charts.rendering import CHART, HELMS, SITE, Case, binary, cases, environment

RELEASES = [case for case in cases() if case.api == "pytorchjob"]
SCALES = pytest.mark.parametrize("case", RELEASES, ids=lambda case: f"{case.phase}-{case.scale}")


def helm(name: str, releases: Path | str, *arguments: str) -> str:
    """Run Helm on releases in a file; return its output."""
    env = environment() | {"HELM_DRIVER": "memory", "HELM_MEMORY_DRIVER_DATA": str(releases)}
    command = [str(binary(name)), *arguments, "--namespace", "lab"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def released(case: Case, preset: bool = False) -> dict[str, Any]:
    """Return the release that `helm install` of the values files makes, or of the preset that stands for them."""
    files = [argument for file in case.files for argument in ("-f", file)]
    if preset:
        files = ["--set", f"preset.phase={case.phase},preset.scale={case.scale}"]
    files += ["-f", str(SITE)]
    out = helm("helm4", os.devnull, "install", case.phase, str(CHART), *files, "--dry-run=client", "-o", "json")
    release: dict[str, Any] = json.loads(out)
    return release


@SCALES
def test_notes_name_the_folder_of_what_was_trained(case: Case) -> None:
    """Adapters leave no whole model."""
    rank = load_values([Path(file) for file in case.files]).phase.adapter_rank
    said = "gate.json, report.html, " + ("lora_adapter/." if rank else "best_model/.")
    assert said in released(case)["info"]["notes"]


def test_notes_of_adapters_name_the_models_that_there_are() -> None:
    """No model is called tuned: each owner has one, beside the run."""
    file = CHART.parents[1] / "values" / "room" / "adapters.yaml"
    arguments = ("install", "cards", str(CHART), "-f", str(file), "-f", str(SITE), "--dry-run=client", "-o", "json")
    notes = json.loads(helm("helm4", os.devnull, *arguments))["info"]["notes"]
    run = re.search(r"^Run (\S+):", notes, re.MULTILINE)
    assert run and f'"model": "{run[1]}.OWNER"' in notes and "tuned" not in notes and "best_model" not in notes
    assert f"adapters.json. Each owner has a folder of their own, {run[1]}.OWNER/, with lora_adapter/." in notes


@pytest.mark.parametrize("name", HELMS)
@pytest.mark.parametrize(
    ("case", "preset"),
    [*((case, False) for case in RELEASES), *((case, True) for case in RELEASES if case.phase == "survival")],
    ids=lambda one: one.name if isinstance(one, Case) else "preset" if one else "files",
)
def test_the_plan_of_a_release_is_that_of_its_files(case: Case, name: str, preset: bool, tmp_path: Path) -> None:
    """Helm adds all defaults of `site:` and writes 0.00005 as 5e-05: the same phase, the same numbers."""
    releases = tmp_path / "releases.json"
    releases.write_text(json.dumps([released(case, preset)]), encoding="utf-8")
    values = helm(name, releases, "get", "values", case.phase, "-a", "-o", "yaml")
    files = [case.files[0], *(argument for file in case.files[1:] for argument in ("-f", file))]
    piped, named = trainlab("plan", "-", "--json", given=values), trainlab("plan", *files, "--json")
    assert json.loads(piped.stdout) == json.loads(named.stdout), piped.stderr
    assert piped.returncode == named.returncode


@SCALES
def test_notes_name_the_command(case: Case) -> None:
    """And reach the server whether KServe's Service forwards ports or is headless."""
    notes = released(case)["info"]["notes"]
    assert f"\n  kubectl -n lab port-forward deployment/{case.phase}-predictor 8080\n" in notes
    assert f"\n  kubectl -n lab describe pvc {case.phase}-models {case.phase}-runs" in notes  # nobody looked at classes
    assert f"\n  helm get values {case.phase} -n lab -a -o yaml | trainlab plan -\n" in notes
    assert ("curl --noproxy localhost -s localhost:8080/v1/models" in notes) is (
        case.phase != "resnet"
    )  # what can be asked, by name
    by_vllm = ("survival", "lyrics", "staged-sft", "staged-dpo", "staged-lora")  # which has no page
    ours = case.phase not in by_vllm or case.scale == "local"
    assert ("Then open http://localhost:8080/ in a browser" in notes) is ours


def test_notes_ask_a_question_with_an_apostrophe() -> None:
    question = 'What\'s "safe"?'
    files = ["--set", "preset.phase=survival,preset.scale=local", "-f", str(SITE)]
    asked = ["--set-json", f"phase.questions={json.dumps([question])}"]
    out = helm("helm4", os.devnull, "install", "survival", str(CHART), *files, *asked, "--dry-run=client", "-o", "json")
    (line,) = [each for each in json.loads(out)["info"]["notes"].splitlines() if "/v1/chat/completions" in each]
    assert json.loads(shlex.split(line)[-1])["messages"][0]["content"] == question


@pytest.mark.parametrize(("gpus", "again"), [(0, "delete job survival-"), (1, "repeat the run, as below")])
def test_notes_name_how_it_is_served_again(gpus: int, again: str) -> None:
    """With GPUs and claims for one node the promotion waits for a pod of the training (_pods.tpl)."""
    sets = [
        "site.storage.runs.accessMode=ReadWriteOnce",
        "phase.serve.hours=2",
        f"preset.scale={'full' if gpus else 'local'}",
    ]
    sets += ["phase.resources.nodes=1", "preset.phase=survival"]
    given = [word for one in sets for word in ("--set", one)]
    out = helm(
        "helm4",
        os.devnull,
        "install",
        "survival",
        str(CHART),
        *given,
        "-f",
        str(SITE),
        "--dry-run=client",
        "-o",
        "json",
    )
    part = json.loads(out)["info"]["notes"].split("To serve it again, or for longer, ")[1].split("Check it all")[0]
    assert again in part


def test_a_mistake_on_standard_input_is_named() -> None:
    done = trainlab("check", "-", given="phase: {}")
    assert done.returncode == 2 and done.stderr.startswith("error: standard input: phase.recipe: missing; add it")
    done = trainlab("plan", "-")
    assert (done.returncode, done.stderr) == (
        2,
        "error: standard input: phase: missing; add it; What is trained, e.g. values/survival.yaml.\n",
    )
    done = trainlab("run", "-", "--models", "x", given="phase: {}")
    assert done.returncode == 2 and "only check and plan read standard input" in done.stderr


@pytest.mark.parametrize(("nodes", "named"), [(1, False), (4, True)])
def test_of_several_pods_the_notes_name_the_first(nodes: int, named: bool) -> None:
    """kubectl takes any pod of a Job, and only the first one serves its progress: the labels are those of its pods."""
    file = CHART.parents[1] / "values" / "survival.yaml"
    sets = f"site.trainingApi=trainjob,site.platform=openshift,phase.resources.nodes={nodes}"
    arguments = (
        "install",
        "many",
        str(CHART),
        "-f",
        str(file),
        "-f",
        str(SITE),
        "--set",
        sets,
        "--dry-run=client",
        "-o",
        "json",
    )
    release = json.loads(helm("helm4", os.devnull, *arguments))
    found = re.search(
        r"POD=\$\(kubectl -n \S+ get pod -l (\S+)/run=(\S+),batch\.kubernetes\.io/job-completion-index=0 -o name\)",
        release["info"]["notes"],
    )
    assert bool(found) is named and ("logs -f $POD\n" in release["info"]["notes"]) is named
    if found:
        assert f"{found[1]}/run: {found[2]}\n" in release["manifest"]
