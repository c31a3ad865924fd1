"""The plugins' small pure functions: quantities, lists of the command line, the end of a command, the archive of a run, jobs' outcomes."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import jinja2
import jinja2.nativetypes
import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible_collections.trainlab.rhoai.plugins.action import run_results, stream
from ansible_collections.trainlab.rhoai.plugins.filter.plain_yaml import listed
from ansible_collections.trainlab.rhoai.plugins.plugin_utils import jobs, plain
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.checks.cluster_state import quantity
from slow import but_the_first

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("300m", 0.3),
        ("2", 2),
        ("1.5", 1.5),
        ("3Gi", 3 * 2**30),
        ("500Mi", 500 * 2**20),
        ("1k", 1000),
        (None, 0),
        ("", 0),
    ],
)
def test_quantities(text: str | None, number: float) -> None:
    assert float(quantity(text)) == number


def test_a_list_of_the_command_line_is_what_stands_between_its_commas() -> None:
    assert [listed(value) for value in ([80], "80,81", "")] == [[80], ["80", "81"], []]


@pytest.mark.parametrize(
    ("lines", "changed", "answer"),
    [
        (["x", "changed=false", ""], False, {}),
        (["changed=true"], True, {}),
        (["x", '{"image": "a:1", "changed": false}'], False, {"image": "a:1", "changed": False}),
        (["something else"], True, {}),
        ([], True, {}),
    ],
)
def test_the_last_line_is_the_outcome(lines: list[str], changed: bool, answer: dict[str, Any]) -> None:
    assert stream.outcome(lines) == {"changed": changed, "answer": answer}


def test_a_failed_command_is_its_own_sentence_or_its_last_lines() -> None:
    assert stream.failure(["cluster"], 2, ["noise", "error: no Go; install it"]) == "no Go; install it"
    assert (
        stream.failure(["/usr/bin/python3", "cluster", "up"], 1, ["a", "b"])
        == "python3 cluster up ended with exit code 1:\na\nb"
    )


def archive(files: dict[str, bytes]) -> str:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        for name, content in files.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    return base64.encodebytes(buffer.getvalue()).decode()


def test_the_archive_of_a_run_is_unpacked_flat() -> None:
    assert run_results.unpacked(archive({"gate.json": b"{}", "../../evil": b"x"}), "r") == {
        "gate.json": b"{}",
        "evil": b"x",
    }


def test_a_broken_archive_is_an_error_with_the_pods_words() -> None:
    with pytest.raises(AnsibleActionFail, match=r"run r could not be read .*No such file"):
        run_results.unpacked("sh: cd: /runs/r: No such file or directory", "r")


@pytest.mark.parametrize("required", [True, False])
def test_a_run_that_the_volume_lacks_is_a_sentence_or_nothing(
    required: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = run_results.ActionModule.__new__(run_results.ActionModule)
    monkeypatch.setattr(run_results.ActionModule, "check", False)
    monkeypatch.setattr(run_results, "connect", lambda *_: (None, {}))
    monkeypatch.setattr(run_results, "_read", lambda *_: "")
    args = {"kubeconfig": "", "kube_context": "", "dest": str(tmp_path), "run": "r", "claim": "c", "namespace": "demo"}
    if required:
        with pytest.raises(AnsibleActionFail, match="run r is not in claim c of namespace demo; train it first"):
            module.run_on_controller({**args, "required": True})
    else:
        assert module.run_on_controller({**args, "required": False})["gate"] == {}
    assert not list(tmp_path.iterdir())


def test_what_the_reading_pod_runs_is_quiet_about_a_run_that_is_not_there(tmp_path: Path) -> None:
    script = run_results.SCRIPT.replace("/runs", str(tmp_path))
    call = ["/bin/sh", "-ec", script]
    environment = {"PATH": os.environ["PATH"], "TRAINLAB_RUN": "r"}
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "gate.json").write_text("{}")
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=True)
    assert run_results.unpacked(done.stdout, "r") == {"gate.json": b"{}"}


def test_the_reading_pod_passes_the_restricted_level() -> None:
    args = {"image": "i", "pull_policy": "Never", "pull_secret": "s", "run": "r", "release": "x", "claim": "c"}
    args["sub_path"] = ""
    spec = run_results.reader("r-read", {**args, "placement": {"nodeSelector": {}}})["spec"]
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert spec["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert spec["imagePullSecrets"] == [{"name": "s"}]
    assert "nodeSelector" not in spec
    assert spec["automountServiceAccountToken"] is False
    assert spec["containers"][0]["volumeMounts"] == [{"name": "runs", "mountPath": "/runs", "readOnly": True}]
    below = run_results.reader("r-read", {**args, "placement": {}, "sub_path": "team/runs"})["spec"]
    assert below["containers"][0]["volumeMounts"][0]["subPath"] == "team/runs"


def job(**conditions: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": key, "status": value} for key, value in conditions.items()]}}


@pytest.mark.parametrize(
    ("kind", "status", "word"),
    [
        (jobs.PYTORCHJOB, job(Created="True", Running="False", Succeeded="True"), "succeeded"),
        (jobs.PYTORCHJOB, job(Created="True", Running="False", Failed="True"), "failed"),
        (jobs.PYTORCHJOB, job(Created="True", Running="True"), "running"),
        (jobs.PYTORCHJOB, job(Suspended="True") | {"spec": {"runPolicy": {"suspend": True}}}, "queued"),
        (jobs.PYTORCHJOB, job(Suspended="True", Running="True"), "running"),
        (jobs.TRAINJOB, {"spec": {"suspend": True}}, "queued"),
        (jobs.PYTORCHJOB, job(Suspended="False", Running="True"), "running"),
        (jobs.TRAINJOB, job(Complete="True"), "succeeded"),
        (jobs.TRAINJOB, {}, "running"),
    ],
)
def test_how_a_job_ended(kind: jobs.Kind, status: dict[str, Any], word: str) -> None:
    assert jobs.outcome(kind, status)[0] == word


def test_the_newest_job_that_is_not_being_removed_is_the_live_one() -> None:
    def made(name: str, stamp: str, **more: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "creationTimestamp": stamp, **more}}

    found = [made("a", "2026-01-01T00:00:00Z"), made("b", "2026-01-02T00:00:00Z")]
    found.append(made("c", "2026-01-03T00:00:00Z", deletionTimestamp="2026-01-03T00:00:01Z"))
    live = jobs.live(jobs.PYTORCHJOB, found)
    assert live is not None
    assert live["metadata"]["name"] == "b"
    assert jobs.live(jobs.PYTORCHJOB, []) is None


SCALARS = [
    "no",
    "on",
    "y",
    "42",
    "007",
    "null",
    "1e3",
    "0o17",
    "0x1f",
    "12:30:00",
    "~",
    "",
    " x",
    "a: b",
    "#",
    "true",
    "-",
    ".5",
]


def test_text_stays_text_for_every_reader_of_yaml() -> None:
    """PyYAML itself writes 1e3, 0o17 and y bare, which other readers take for numbers and a truth value."""
    site = {
        "labels": {text: text for text in SCALARS},
        "list": SCALARS,
        "number": 3,
        "truth": False,
        "none": None,
        "half": 0.5,
    }
    text = plain.to_yaml({"site": site})
    assert yaml.safe_load(text) == {"site": site}
    for one in SCALARS:
        assert f"- {json.dumps(one)}\n" in text and f": {json.dumps(one)}\n" in text
    assert plain.to_yaml({"HTTPS_PROXY": "two\nlines\n"}) == "HTTPS_PROXY: |\n  two\n  lines"


@pytest.mark.parametrize("where", but_the_first([{"a": [{"b": "secret"}]}, {"env": "secret"}, ["secret"]]), ids=str)
def test_a_vaulted_value_is_written_decrypted(where: Any, tmp_path: Path) -> None:
    """By a real run: to_nice_yaml writes its ciphertext, which Helm takes for the value."""
    bin_ = Path(sys.executable).parent
    key = tmp_path / "key"
    key.write_text("k", encoding="utf-8")
    command = [bin_ / "ansible-vault", "encrypt_string", "--vault-password-file", key, "http://u:p@proxy:1"]
    hidden = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    shown = json.dumps(where)
    assert shown.count('"secret"') == 1
    before, after = shown.split('"secret"')
    block = hidden.replace("!vault |", "").strip()
    text = f"{before}SECRET{after}"
    play = [
        {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "tasks": [
                {
                    "ansible.builtin.copy": {
                        "content": "{{ value | trainlab.rhoai.plain_yaml }}\n",
                        "dest": str(tmp_path / "out.yaml"),
                    }
                }
            ],
        }
    ]
    (tmp_path / "play.yml").write_text(json.dumps(play), encoding="utf-8")
    indented = yaml.safe_dump({"value": json.loads(text.replace("SECRET", '"SECRET"'))}, default_flow_style=False)
    lines = []
    for line in indented.splitlines():
        if line.endswith("SECRET"):
            pad = " " * (len(line) - len(line.lstrip()) + 4)
            lines += [line.removesuffix("SECRET") + "!vault |", *(pad + part.strip() for part in block.splitlines())]
        else:
            lines.append(line)
    (tmp_path / "vars.yml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    env = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections")}
    run = [
        bin_ / "ansible-playbook",
        "-i",
        "localhost,",
        "--vault-password-file",
        key,
        "-e",
        f"@{tmp_path / 'vars.yml'}",
    ]
    run += ["-e", f"ansible_python_interpreter={sys.executable}", tmp_path / "play.yml"]
    done = subprocess.run(run, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    written = yaml.safe_load((tmp_path / "out.yaml").read_text(encoding="utf-8"))
    assert written == json.loads(shown.replace('"secret"', '"http://u:p@proxy:1"'))


HELD = {
    "nothing": ({}, {"name": "poems-lora"}, ""),
    "the same": ({"name": "poems-lora"}, {"name": "poems-lora"}, ""),
    "another": ({"name": "poems-sft"}, {"name": "poems-lora"}, "poems-sft"),
    "another, with a stage": (
        {"name": "poems-sft", "stage": {"name": "sft"}},
        {"name": "poems-lora", "stage": None},
        "poems-sft",
    ),
    "a stage of the same": (
        {"name": "staged-sft", "stage": {"name": "sft"}},
        {"name": "staged-dpo", "stage": {"name": "dpo"}},
        "",
    ),
}


@pytest.mark.parametrize("case", HELD)
def test_a_release_that_another_phase_has_by_its_name_is_not_replaced(case: str) -> None:
    """poems-lora and poems-sft both have the release poems; only stages of one model share one."""
    held, wanted, other = HELD[case]
    names = yaml.safe_load((ROOT / "roles/train/vars/main.yml").read_text(encoding="utf-8"))
    world = jinja2.nativetypes.NativeEnvironment()
    before = {"config": {"phase": held}} if held else {}
    variables: dict[str, Any] = {"trainlab_resolved": {"phase": wanted}, "__phase_before": before}
    variables["__train_held"] = world.from_string(names["__train_held"]).render(variables)
    assert (world.from_string(names["__train_other"]).render(variables) or "") == other
