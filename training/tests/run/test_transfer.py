"""`trainlab put` and `get`, with a kubectl that runs what the pod would on a folder, and drops connections."""

import argparse
import json
import os
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from trainlab import cli, files
from trainlab.errors import UserError
from trainlab.run import transfer, transfer_pod, volume_pod
from trainlab.run.put_values import values_for

KUBECTL = """\
#!{python}
import json, os, subprocess, sys, time
home = {home!r}
words = sys.argv[1:]
if words[0] == "-n":
    words = words[2:]
with open(home + "/calls", "a") as log:
    log.write(json.dumps(words[:3]) + "\\n")
plan = json.load(open(home + "/plan.json"))
def answer(value):
    print(json.dumps(value)); sys.exit(0)
if words[0] == "create":
    pod = json.load(sys.stdin)
    json.dump(pod, open(home + "/pod.json", "w"))
    if plan.get("forbidden"):
        sys.exit("Error from server (Forbidden): pods is forbidden: User \\"u\\" cannot create resource \\"pods\\"")
    answer({{"metadata": {{"name": "trainlab-transfer-x"}}}})
if words[:2] == ["auth", "can-i"]:
    assert words[2:] == ["create", "pods", "--subresource=exec"]
    if plan.get("no_exec"):
        print("no"); sys.exit(1)
    print("yes"); sys.exit(0)
if words[0] == "delete":
    open(home + "/deleted", "w").close(); sys.exit(0)
if words[:2] == ["get", "pod"]:
    answer({{"status": plan.get("status", {{"phase": "Running"}})}})
if words[:2] == ["get", "pvc"]:
    answer({{"items": plan["claims"]}})
if words[:2] == ["get", "jobs,pods"]:
    answer({{"items": plan["jobs"]}})
assert words[0] == "exec", words
request = json.loads(sys.stdin.buffer.readline())
mount = json.load(open(home + "/pod.json"))["spec"]["containers"][0]["volumeMounts"][0]["mountPath"]
assert request["root"] == mount, (request["root"], mount)
request["root"] = home + "/volume"
script = words[-1]
if plan.get("patch"):
    script = plan["patch"] + script
process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
process.stdin.write(json.dumps(request).encode() + b"\\n")
drops = home + "/drops"
limit = None
if os.path.exists(drops) and request["call"] in ("write", "read"):
    left = json.load(open(drops))
    if left:
        limit = left.pop(0)
        json.dump(left, open(drops, "w"))
if limit is not None and request["call"] == "write":
    process.stdin.write(sys.stdin.buffer.read(limit)); process.stdin.close(); process.wait(); sys.exit("error: connection reset")
if request["call"] == "write":
    left = sum(each["size"] - each["offset"] for each in request["files"])
    while left and (chunk := sys.stdin.buffer.read1(1 << 16)):
        left -= len(chunk)
        try:
            process.stdin.write(chunk); process.stdin.flush()
        except BrokenPipeError:
            break
try:
    process.stdin.close()
except BrokenPipeError:
    pass
if limit is not None:
    sys.stdout.buffer.write(process.stdout.read(limit)); sys.stdout.flush(); process.kill(); sys.exit("error: connection reset")
while chunk := process.stdout.read1(1 << 16):
    sys.stdout.buffer.write(chunk); sys.stdout.buffer.flush()
"""

CLAIMS = [
    {
        "metadata": {
            "name": "quick-models",
            "labels": {transfer_pod.INSTANCE: "quick", transfer_pod.COMPONENT: "models"},
        }
    },
    {"metadata": {"name": "quick-runs", "labels": {transfer_pod.INSTANCE: "quick", transfer_pod.COMPONENT: "runs"}}},
]
JOBS = [
    {
        "spec": {
            "template": {
                "spec": {
                    "containers": [{"image": "registry/trainer:1", "command": ["trainlab", "promote"]}],
                    "securityContext": {"fsGroup": 1001},
                    "tolerations": [{"key": "gpu"}],
                }
            }
        }
    }
]


class Cluster:
    """A folder that stands for the volume, and what the kubectl of the test is to do."""

    def __init__(self, home: Path) -> None:
        self.home, self.volume = home, home / "volume"
        self.volume.mkdir(parents=True)
        self.program = home / "kubectl"
        self.program.write_text(KUBECTL.format(python=sys.executable, home=str(home)), encoding="utf-8")
        self.program.chmod(0o755)
        self.plan()

    def plan(self, **plan: Any) -> None:
        (self.home / "plan.json").write_text(json.dumps({"claims": CLAIMS, "jobs": JOBS, **plan}), encoding="utf-8")

    def drop(self, *after: int) -> None:
        (self.home / "drops").write_text(json.dumps(after), encoding="utf-8")

    def run(self, *words: str, code: int = 0) -> None:
        with pytest.raises(SystemExit) as done:
            cli.main([*words, "--kubectl", str(self.program), "-n", "lab"])
        assert done.value.code == code

    @property
    def hidden(self) -> list[str]:
        """Names of what attempts left."""
        return sorted(path.name for path in self.volume.rglob(".*"))

    @property
    def pod(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.home / "pod.json").read_text("utf-8"))
        return content


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(transfer, "PAUSE", 0.01)
    return Cluster(tmp_path / "cluster")


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("Topic,Ask,Say\n" + "cars,why?,so\n" * 300_000, encoding="utf-8")  # 3.9 MB
    return path


def test_put_ends_at_the_line_to_use(cluster: Cluster, rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.run("put", str(rows), "datasets/mine/")
    said = capsys.readouterr().out
    assert (cluster.volume / "mine" / "rows.csv").read_bytes() == rows.read_bytes() and not cluster.hidden
    assert (
        f"datasets/mine/rows.csv is there now, in claim quick-models: 1 file, 3,900,014 bytes, sha256 {files.sha256(rows)}"
        in said
    )
    assert "phase: {data: {source: pvc:mine/rows.csv, table: {columns: {question: Ask, answer: Say}}}}" in said
    assert (cluster.home / "deleted").exists(), "the pod stays"
    cluster.run("put", str(rows), "datasets/mine/")
    assert "is there already" in capsys.readouterr().out


def test_the_pod_is_restricted_ends_by_itself_and_has_no_token(cluster: Cluster, rows: Path) -> None:
    cluster.run("put", str(rows), "models/x", "--minutes", "5")
    spec, labels = cluster.pod["spec"], cluster.pod["metadata"]["labels"]
    container = spec["containers"][0]
    assert spec["activeDeadlineSeconds"] == 300 and spec["automountServiceAccountToken"] is False
    assert spec["securityContext"] == {
        "fsGroup": 1001,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert (
        container["securityContext"]["capabilities"] == {"drop": ["ALL"]} and container["image"] == "registry/trainer:1"
    )
    assert container["securityContext"]["readOnlyRootFilesystem"] and spec["tolerations"] == [{"key": "gpu"}]
    assert spec["volumes"][0]["persistentVolumeClaim"] == {"claimName": "quick-models"}
    assert labels["app.kubernetes.io/part-of"] == "trainlab" and labels["trainlab.dev/owner"]


def test_a_dropped_connection_resumes(cluster: Cluster, rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.drop(1_600_000, 1_300_000)
    cluster.run("put", str(rows), "datasets/mine.csv")
    told = capsys.readouterr()
    assert "going on from there" in told.err and "2 MB of 4 MB are there" in told.err and "3 MB of" in told.err
    assert (cluster.volume / "mine.csv").read_bytes() == rows.read_bytes() and not cluster.hidden


@pytest.mark.parametrize(
    ("files_in", "key"),
    [
        (("config.json", "model.safetensors", "tokenizer.json"), "{model: {source: pvc:a/b}}"),
        (("small.gguf",), "{model: {source: pvc:a/b}}"),
        (("tokenizer.json", "tokenizer_config.json"), "{stage: {tokenizer: pvc:a/b}}"),
        (("reading.jsonl", "reading.yaml"), '{evaluate: {tasks: ["pvc:a/b/reading.yaml"]}}'),
    ],
    ids=["model", "gguf", "tokenizer", "task"],
)
def test_what_is_put_into_models_is_named_by_its_key(tmp_path: Path, files_in: tuple[str, ...], key: str) -> None:
    for name in files_in:
        (tmp_path / name).touch()
    assert values_for(tmp_path, "models", "a/b") == ["use it in a values file:", f"  phase: {key}"]


def test_one_that_never_holds_is_a_sentence_and_the_next_put_goes_on(
    cluster: Cluster, rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.drop(2_000_000, *([0] * 20))
    cluster.run("put", str(rows), "datasets/mine.csv", code=2)
    assert "drops again and again (connection reset); the next attempt goes on where" in capsys.readouterr().err
    assert not (cluster.volume / "mine.csv").exists(), "a part has the name of the whole"
    cluster.drop()
    cluster.run("put", str(rows), "datasets/mine.csv")
    assert "2 MB of 4 MB are there" in capsys.readouterr().err
    assert (cluster.volume / "mine.csv").read_bytes() == rows.read_bytes()


def test_bytes_that_rot_on_the_way_are_sent_again(
    cluster: Cluster, rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.drop(2_000_000, *([0] * 20))
    cluster.run("put", str(rows), "datasets/mine.csv", code=2)
    (part,) = cluster.volume.glob(".mine.csv.put-*/file")
    part.write_bytes(b"x" + part.read_bytes()[1:])
    cluster.drop()
    cluster.run("put", str(rows), "datasets/mine.csv")
    assert "other bytes arrived than were sent" in capsys.readouterr().err
    assert (cluster.volume / "mine.csv").read_bytes() == rows.read_bytes()


def test_a_file_that_changes_meanwhile_leaves_nothing(
    cluster: Cluster, rows: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chunks = transfer._chunks

    def growing(path: Path, offset: int, size: int) -> Any:
        for chunk in chunks(path, offset, size):
            with path.open("a", encoding="utf-8") as out:
                out.write("more\n")
            yield chunk

    monkeypatch.setattr(transfer, "_chunks", growing)
    cluster.run("put", str(rows), "datasets/mine.csv", code=2)
    assert f"error: {rows}: changed while it was copied; nothing was kept" in capsys.readouterr().err
    assert not (cluster.volume / "mine.csv").exists() and not cluster.hidden


FULL = textwrap.dedent(
    """
    import errno, os
    def full(*given): raise OSError(errno.ENOSPC, "No space left on device")
    os.fsync = full
    """
)
NO_ROOM = "import shutil\nshutil.disk_usage = lambda path: shutil._ntuple_diskusage(9, 9, 9)\n"


@pytest.mark.parametrize(("patch", "sizes"), [(FULL, ""), (NO_ROOM, r" \(4 MB are needed, 0 MB are free\)")])
def test_a_full_volume_keeps_nothing(
    cluster: Cluster, rows: Path, patch: str, sizes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.plan(patch=patch)
    cluster.run("put", str(rows), "datasets/mine.csv", code=2)
    said = capsys.readouterr().err
    assert "datasets/mine.csv: the volume of claim quick-models is full" in said and "nothing was kept" in said
    assert not list(cluster.volume.iterdir())


def test_what_is_there_and_differs_is_kept_unless_asked(
    cluster: Cluster, rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (cluster.volume / "mine.csv").write_text("theirs", encoding="utf-8")
    cluster.run("put", str(rows), "datasets/mine.csv", code=2)
    assert "is there already and differs; name another place, or replace it with --replace" in capsys.readouterr().err
    assert (cluster.volume / "mine.csv").read_text("utf-8") == "theirs"
    cluster.run("put", str(rows), "datasets/mine.csv", "--replace")
    assert (cluster.volume / "mine.csv").read_bytes() == rows.read_bytes() and not cluster.hidden


@pytest.mark.parametrize(
    "target", ["datasets/../x", "datasets//etc/x", "datasets/", "etc/x", "datasets/a/../../x", "runs/x"]
)
def test_a_target_outside_the_volume_is_refused(
    cluster: Cluster, tmp_path: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a b").mkdir()
    cluster.run("put", str(tmp_path / "a b") if target == "datasets/" else str(cluster.program), target, code=2)
    assert "error: TARGET" in capsys.readouterr().err and not (cluster.home / "pod.json").exists()


def test_a_link_in_the_volume_leads_nowhere(
    cluster: Cluster, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (cluster.volume / "out").symlink_to(tmp_path)
    cluster.run("put", str(rows), "datasets/out/mine.csv", code=2)
    cluster.run("get", "datasets/out", str(tmp_path / "got"), code=2)
    said = capsys.readouterr().err
    assert said.count("leads out of claim quick-models, by a link in the volume; name another place") == 2
    assert not (tmp_path / "mine.csv").exists() and not (tmp_path / "got").exists()


def folder(path: Path) -> Path:
    for name in ("train/a.jsonl", "heldout/a.jsonl", "empty", "deep/er/x"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(os.urandom(1_200_000) if name != "empty" else b"")
    return path


def same(one: Path, other: Path) -> bool:
    return files.folder_sha256(one) == files.folder_sha256(other)


def test_a_folder_goes_there_and_back_over_dropped_connections(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, got = folder(tmp_path / "mine"), tmp_path / "got"
    cluster.drop(450_000, 100_000)
    cluster.run("put", str(mine), "datasets/team/mine")
    assert "phase: {data: {source: pvc:team/mine}}" in capsys.readouterr().out
    assert same(mine, cluster.volume / "team" / "mine") and not cluster.hidden
    cluster.drop(450_000, 350_000)
    cluster.run("get", "datasets/team/mine", str(got))
    assert same(mine, got) and "4 files" in capsys.readouterr().out
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    cluster.run("get", "datasets/team/mine", str(got), code=2)
    assert f"{got}: exists; name another place, or write into it with --replace" in capsys.readouterr().err
    one = next(path.relative_to(mine) for path in sorted(mine.rglob("*")) if path.is_file())
    cluster.drop()
    cluster.run("get", f"datasets/team/mine/{one}", str(got), "--replace", code=2)
    assert f"{got}: is a folder, and datasets/team/mine/{one} a file; name the file to write" in capsys.readouterr().err


@pytest.mark.parametrize(("size", "changed"), [(10, False), (8, True), (12, True)])
def test_a_file_replaced_by_another_size_since_it_was_listed_has_changed(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], size: int, changed: bool
) -> None:
    """Its first bytes, or zeros behind its last, would have a digest that fits."""
    (tmp_path / "x").write_bytes(b"0123456789")
    volume_pod.read(str(tmp_path), "x", [{"name": "", "offset": 0, "size": size}])
    last = capsysbinary.readouterr().out.rpartition(b"{")[2]
    assert json.loads(b"{" + last)["changed"] is changed


def test_a_get_that_was_interrupted_goes_on(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, got = folder(cluster.volume / "mine"), tmp_path / "got"
    cluster.drop(2_000_000, *([0] * 20))
    cluster.run("get", "models/mine", str(got), code=2)
    assert "drops again and again" in capsys.readouterr().err and not got.exists()
    cluster.drop()
    cluster.run("get", "models/mine", str(got))
    assert "2 MB of 4 MB are there" in capsys.readouterr().err and same(mine, got)


def test_of_a_run_whole_models_stay(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = cluster.volume / "quick-1a2b"
    for name in (
        "report.html",
        "lora_adapter/adapter.safetensors",
        "tensorboard/events",
        "best_model/w",
        "checkpoints/1/w",
    ):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("x", encoding="utf-8")
    cluster.run("get", "runs/quick-1a2b", str(tmp_path / "got"))
    assert "left out: best_model, checkpoints (--all gets them)" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "got").iterdir()) == ["lora_adapter", "report.html", "tensorboard"]
    assert cluster.pod["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "quick-runs"}
    cluster.run("get", "runs/quick-1a2b", str(tmp_path / "all"), "--all")
    assert (tmp_path / "all" / "checkpoints" / "1" / "w").exists()
    cluster.run("get", "runs/quick-9999", str(tmp_path / "none"), code=2)
    assert "runs/quick-9999: nothing there in claim quick-runs; there is quick-1a2b; correct" in capsys.readouterr().err


WAITING = {
    "phase": "Pending",
    "containerStatuses": [{"state": {"waiting": {"reason": "ErrImageNeverPull", "message": "not here"}}}],
}


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ({"claims": []}, "namespace lab has no claim of a release for datasets; install the phase first"),
        (
            {
                "claims": [
                    *CLAIMS,
                    {
                        "metadata": {
                            "name": "b-models",
                            "labels": {transfer_pod.INSTANCE: "b", transfer_pod.COMPONENT: "models"},
                        }
                    },
                ]
            },
            r"volumes of several releases (b, quick); choose one with --release",
        ),
        ({"jobs": []}, "no job or pod of its release is there to take the image from"),
        (
            {"no_exec": True},
            "namespace lab: you may not create pods/exec, by which put and get reach a volume; whoever set the namespace up grants it "
            "with workspace_members_transfer, to attendees with attendees_transfer",
        ),
        ({"forbidden": True}, "kubectl create -o json: (Forbidden): pods is forbidden"),
        ({"status": WAITING}, "pod trainlab-transfer-x does not start (ErrImageNeverPull: not here); correct --image"),
        ({"status": {"phase": "Failed", "reason": "DeadlineExceeded"}}, "does not start (its phase is Failed)"),
    ],
)
def test_a_cluster_that_does_not_serve_is_one_sentence(
    cluster: Cluster, rows: Path, plan: dict[str, Any], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.plan(**plan)
    cluster.run("put", str(rows), "datasets/mine/", code=2)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(said) == 1 and expected in said[0]
    assert not plan.get("no_exec") or not (cluster.home / "pod.json").exists(), "a pod was made for nothing"


def test_without_kubectl(rows: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KUBECTL", raising=False)
    parser = argparse.ArgumentParser()
    transfer.add_arguments(parser, put=True)
    with pytest.raises(UserError, match="kubectl: neither it nor oc is installed"):
        transfer.put_from_args(parser.parse_args([str(rows), "datasets/x"]))
