"""promote and verify-run against a fake API server and a fake model server that speak real HTTP(S)."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api_server.loopback_tls import self_signed
from ports import Handler, serve_in_thread
from safetensors.numpy import save_file
from trainlab import files
from trainlab.errors import UserError
from trainlab.run import kube, promote, verify_run

MANIFESTS = {
    "servingruntime.yaml": """
apiVersion: serving.kserve.io/v1alpha1
kind: ServingRuntime
metadata: {name: run-1-abc, labels: {app.kubernetes.io/instance: survival, app.kubernetes.io/part-of: trainlab}}
spec: {containers: []}
""",
    "configmap.yaml": """
apiVersion: v1
kind: ConfigMap
metadata: {name: run-1-abc}
data: {phase.json: "{}"}
""",
    "inferenceservice.yaml": """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: survival, labels: {a: "1"}}
spec: {predictor: {minReplicas: 1, model: {runtime: run-1-abc}}}
""",
}
KSERVE = "/apis/serving.kserve.io"
RUNTIMES = f"{KSERVE}/v1alpha1/namespaces/demo/servingruntimes"
SERVICE = f"{KSERVE}/v1beta1/namespaces/demo/inferenceservices/survival"
CONFIGMAPS = "/api/v1/namespaces/demo/configmaps"


class Fake:
    """A server that answers with the prepared (status, body) pairs, the last one for ever, and notes what was asked."""

    def __init__(self, *replies: tuple[int, Any]) -> None:
        self.replies, self.asked = list(replies), list[tuple[str, str, Any, str]]()
        fake = self

        class Replies(Handler):
            def _reply(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                fake.asked.append((self.command, self.path, json.loads(body or "null"), str(self.headers)))
                status, value = fake.replies.pop(0) if len(fake.replies) > 1 else fake.replies[0]
                self.answer(status, json.dumps(value).encode())

            do_GET = do_PATCH = do_POST = do_DELETE = _reply

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Replies)
        self.port = self.server.server_address[1]

    def __enter__(self) -> "Fake":
        serve_in_thread(self.server)
        return self

    def __exit__(self, *_: Any) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="session")
def account(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service account folder with the CA of the fake API server, whose key lies beside it."""
    folder = tmp_path_factory.mktemp("account")
    self_signed(folder / "ca", "IP:127.0.0.1")
    (folder / "token").write_text("secret\n")
    return folder


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, account: Path) -> Iterator[Path]:
    for name, text in MANIFESTS.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(kube, "PAUSE", 0.01)
    monkeypatch.setattr(promote, "POLL", 0.01)
    monkeypatch.setattr(verify_run, "PAUSE", 0.01)
    monkeypatch.setattr(kube.Kube.in_cluster.__func__, "__defaults__", (account,))
    yield tmp_path


def write_gate(run_dir: Path, promoted: bool) -> None:
    (run_dir / "best_model").mkdir(exist_ok=True)
    save_file({"weight": np.arange(99, dtype=np.float32)}, run_dir / "best_model" / "model.safetensors")
    files.write_json(
        run_dir / "gate.json", {"promoted": promoted, "reasons": ["Because of numbers."]}
    )  # last, as a run does


def api(account: Path, *replies: tuple[int, Any]) -> Fake:
    fake = Fake(*replies)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(account / "ca.crt", account / "ca.key")
    fake.server.socket = context.wrap_socket(fake.server.socket, server_side=True)
    return fake


def run(run_dir: Path, fake: Fake | None, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> int:
    if fake:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(fake.port))
    values = {"namespace": "demo", "owner": "survival-served", "timeout": 0.01} | changes
    return promote.promote(run_dir, run_dir, **values)


def held(uid: str) -> tuple[int, Any]:
    """An object as the server returns it."""
    return 200, {"metadata": {"name": {"u-1": "survival-served", "u-2": "run-1-abc"}.get(uid, "x"), "uid": uid}}


def test_switches_last_and_then_removes_what_it_replaces(
    run_dir: Path, account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retries included. The switch is one request: until it is through, the model before is served by its own runtime."""
    write_gate(run_dir, True)
    busy = (503, {"message": "busy"})
    born = {
        "run-0-def": "2026-11-01T00:00:00Z",
        "run-1-abc": "2026-11-02T00:00:00Z",
        "run-1-old": "2026-11-01T00:00:01Z",
    }
    items = [
        {"metadata": {"name": name, "creationTimestamp": when, "resourceVersion": "7"}} for name, when in born.items()
    ]
    service = {"spec": {"predictor": {"model": {"runtime": "run-1-abc"}}}}
    replies = [busy, held("u-1"), held("u-2"), held("u-3"), (500, {}), held("u-4"), (200, {"items": items})]
    with api(account, *replies, (200, service), (200, {}), (404, {"message": "gone"})) as fake:
        assert run(run_dir, fake, monkeypatch) == 0
    asked = [(method, path.partition("?")[0]) for method, path, _, _ in fake.asked]
    assert asked == [
        *[("GET", f"{CONFIGMAPS}/survival-served")] * 2,
        ("PATCH", f"{RUNTIMES}/run-1-abc"),
        ("PATCH", f"{CONFIGMAPS}/run-1-abc"),
        *[("PATCH", SERVICE)] * 2,
        ("GET", RUNTIMES),
        ("GET", SERVICE),
        *[("DELETE", f"{RUNTIMES}/{name}") for name in ("run-0-def", "run-1-old")],
    ]
    owners = [body["metadata"]["ownerReferences"] for method, _, body, _ in fake.asked if method == "PATCH"]
    release = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "survival-served", "uid": "u-1"}]
    runtime = [
        {"apiVersion": "serving.kserve.io/v1alpha1", "kind": "ServingRuntime", "name": "run-1-abc", "uid": "u-2"}
    ]
    assert owners == [release, runtime, release, release]
    _, path, body, headers = fake.asked[5]
    assert path.endswith("?fieldManager=trainlab-promote&force=true")
    assert "Bearer secret" in headers and "application/apply-patch+yaml" in headers
    assert body["metadata"]["namespace"] == "demo" and body["spec"]["predictor"]["model"] == {"runtime": "run-1-abc"}
    selector = "labelSelector=app.kubernetes.io/instance=survival,app.kubernetes.io/part-of=trainlab"
    assert fake.asked[6][1].partition("?")[2] == selector


def cut(weights: Path) -> str:
    weights.write_bytes(weights.read_bytes()[:-7])
    return f"{weights}: half written or no safetensors file"


def emptied(weights: Path) -> str:
    weights.write_bytes(b"")
    return f"{weights}: half written or no safetensors file"


def gone(weights: Path) -> str:
    weights.unlink()
    return "no weights in best_model or lora_adapter"


def without_a_shard(weights: Path) -> str:
    there = {"a": weights.name, "b": "model-00002-of-00002.safetensors"}
    files.write_json(weights.with_name("model.safetensors.index.json"), {"weight_map": there})
    return "model-00002-of-00002.safetensors: not there, but model.safetensors.index.json names it"


def half_an_adapter(weights: Path) -> str:
    adapter = weights.parents[1] / "lora_adapter" / "adapter_model.safetensors"
    adapter.parent.mkdir()
    adapter.write_bytes(weights.read_bytes()[:100])
    return f"{adapter}: half written or no safetensors file"


@pytest.mark.parametrize("harm", [cut, emptied, gone, without_a_shard, half_an_adapter])
def test_weights_that_no_server_could_read_replace_nothing(
    run_dir: Path, account: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], str]
) -> None:
    """Nothing is asked of the API server; what is served goes on."""
    write_gate(run_dir, True)
    words = harm(run_dir / "best_model" / "model.safetensors")
    with api(account, (500, {})) as fake, pytest.raises(UserError, match="train again") as raised:
        run(run_dir, fake, monkeypatch)
    assert words in str(raised.value) and not fake.asked


class Cluster:
    """Holds what promotions apply; `before` runs a function once, right before the first request (method, end of its path)."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {
            f"{CONFIGMAPS}/survival-served": {"metadata": {"name": "o", "uid": "o"}}
        }
        self.before: dict[tuple[str, str], Callable[[], Any]] = {}
        self.clock = 0

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        """Hold no connection."""

    def get(self, path: str) -> dict[str, Any]:
        self._interrupt("GET", path)
        place = path.partition("?")[0]
        if place == RUNTIMES:
            return {"items": [one for name, one in sorted(self.objects.items()) if name.startswith(f"{RUNTIMES}/")]}
        return self.objects[place]

    def apply(self, path: str, value: dict[str, Any]) -> dict[str, Any]:
        self._interrupt("PATCH", path)
        self.clock += 1
        # all in one second; an object that is applied without a change keeps its resourceVersion
        born = {"uid": str(self.clock), "creationTimestamp": "2026-11-24T10:00:00Z", "resourceVersion": str(self.clock)}
        there = self.objects.get(path, {"metadata": born})["metadata"]
        self.objects[path] = value | {"metadata": there | value["metadata"]}
        return self.objects[path]

    def delete(self, path: str) -> None:
        self._interrupt("DELETE", path)
        self.objects.pop(path, None)

    def _interrupt(self, method: str, path: str) -> None:
        for (which, end), run_other in list(self.before.items()):
            if which == method and path.partition("?")[0].endswith(end):
                del self.before[which, end]
                run_other()


class Paused(Exception):
    """A promotion that gets no further for now."""


@pytest.mark.parametrize("moment", ["prepared before", "prepared after", "switched", "switched while it looks"])
def test_two_promotions_at_once_leave_the_last_one_served(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A second promotion comes to some point while the first one is between two of its requests, and ends after it."""
    write_gate(run_dir, True)
    cluster, other = Cluster(), run_dir / "other"
    other.mkdir()
    for name, text in MANIFESTS.items():
        (other / name).write_text(text.replace("run-1-abc", "run-2-def"))
    monkeypatch.setattr(promote.Kube, "in_cluster", lambda *_: cluster)

    def second() -> None:
        promote.promote(run_dir, other, "demo", "survival-served", 0.01)

    def pause() -> None:
        raise Paused

    def prepared() -> None:
        cluster.before["PATCH", "/survival"] = pause
        with pytest.raises(Paused):
            second()

    if moment == "prepared before":
        prepared()
    elif moment == "prepared after":
        cluster.before["GET", "/servingruntimes"] = prepared
    elif moment == "switched":
        cluster.before["GET", "/servingruntimes"] = second
    else:
        cluster.before["GET", "/inferenceservices/survival"] = second
    promote.promote(run_dir, run_dir, "demo", "survival-served", 0.01)
    if moment == "prepared after":
        assert f"{RUNTIMES}/run-2-def" in cluster.objects  # it is about to be served
    if moment.startswith("prepared"):  # the second one goes on where it was: its runtime and phase are applied already
        cluster.apply(
            SERVICE, {"metadata": {"name": "survival"}, "spec": {"predictor": {"model": {"runtime": "run-2-def"}}}}
        )
        wanted = {kind: promote._manifest(other / f"{kind.lower()}.yaml", kind, "demo") for kind in promote.KINDS}
        promote._delete_replaced(
            cluster, wanted, "demo", {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "o", "uid": "o"}}
        )
    runtimes = [path for path in cluster.objects if path.startswith(RUNTIMES)]
    assert not cluster.before and runtimes == [f"{RUNTIMES}/run-2-def"]
    assert cluster.objects[SERVICE]["spec"]["predictor"]["model"]["runtime"] == "run-2-def"
    phase = cluster.objects[f"{CONFIGMAPS}/run-2-def"]["metadata"]["ownerReferences"][0]
    assert phase["uid"] == cluster.objects[runtimes[0]]["metadata"]["uid"]  # or the garbage collector takes it


def test_a_failed_switch_removes_nothing(run_dir: Path, account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gate(run_dir, True)
    replies = [held("u-1"), held("u-2"), held("u-3"), (422, {"message": "webhook said no"})]
    with api(account, *replies) as fake, pytest.raises(UserError, match="webhook said no"):
        run(run_dir, fake, monkeypatch)
    assert "DELETE" not in [entry[0] for entry in fake.asked]


def test_not_promoted_touches_nothing(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_gate(run_dir, False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert run(run_dir, None, monkeypatch) == 0
    out = capsys.readouterr().out
    assert "Because of numbers." in out and "not promoted: what was served before, if anything, stays" in out


def test_the_clock_starts_with_the_training(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A queue may take days, and an earlier try's files are no sign of life; then a training that falls silent has failed."""
    files.write_json(run_dir / "manifest.json", {})
    monkeypatch.setattr(promote, "IDLE_HEARTBEAT", 0.1)
    threading.Timer(0.5, files.write_json, (run_dir / "progress.json", {"step": 1})).start()
    with pytest.raises(
        promote.TimeUp, match=r"gate.json: not there, and the training has written nothing for 0.003 minutes"
    ) as raised:
        run(run_dir, None, monkeypatch, timeout=0.003)
    assert raised.value.code == 3
    assert capsys.readouterr().out.count("waiting for the training to begin") >= 3


def test_a_training_that_begins_again_has_its_time_again(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the job's own deadline does, after its place in a queue was taken away, or at a restart of a TrainJob."""
    now = [0.0]  # the minutes pass by themselves: a look a minute
    monkeypatch.setattr(promote.time, "monotonic", lambda: now[0])

    def a_minute_later(_seconds: float) -> None:
        now[0] += 60
        if now[0] % 300 == 0:
            files.write_json(run_dir / "progress.json", {"step": now[0]})
        if now[0] > 3600:
            write_gate(run_dir, False)

    monkeypatch.setattr(promote.time, "sleep", a_minute_later)
    assert run(run_dir, None, monkeypatch, timeout=10) == 0  # an hour, without ten silent minutes
    assert "not promoted" in capsys.readouterr().out


def test_waits_for_the_gate(run_dir: Path, account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write_json(run_dir / "manifest.json", {})
    threading.Timer(0.2, write_gate, (run_dir, True)).start()
    born = {"creationTimestamp": "2026-11-02T00:00:00Z", "resourceVersion": "7"}
    there = {"items": [{"metadata": {"name": "run-1-abc"} | born}]}
    service = {"spec": {"predictor": {"model": {"runtime": "run-1-abc"}}}}
    with api(account, *[held("u")] * 4, (200, there), (200, service)) as fake:
        assert run(run_dir, fake, monkeypatch, timeout=1) == 0
    assert len(fake.asked) == 6


def test_errors_are_sentences(run_dir: Path, account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gate(run_dir, True)
    with (
        api(account, (403, {"message": "no right"})) as fake,
        pytest.raises(UserError, match="no right; the Role of this pod's service account"),
    ):
        run(run_dir, fake, monkeypatch)
    for denied, remedy in (
        ("hardware profile", "name another one in site.hardwareProfile"),
        ("x", "refuses, and train"),
    ):
        said = f"admission webhook denied the request: {denied}"  # not by a Role, though the status is the same
        with api(account, (403, {"message": said})) as fake, pytest.raises(UserError, match=f"{said}; .*{remedy}"):
            run(run_dir, fake, monkeypatch)
    monkeypatch.setattr(kube, "TIMEOUT", 0.1)
    with pytest.raises(UserError, match=r"gave up after 0 s; last: ConnectError"):
        run(run_dir, fake, monkeypatch)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(UserError, match="only in a pod"):
        run(run_dir, None, monkeypatch)
    service = MANIFESTS["inferenceservice.yaml"]
    for name, text, said in (
        ("inferenceservice.yaml", service.replace("survival,", "survival, namespace: other,"), "must be demo"),
        ("inferenceservice.yaml", "kind: Pod\n", "must be serving.kserve.io/v1beta1 InferenceService"),
        ("servingruntime.yaml", MANIFESTS["servingruntime.yaml"].replace("labels", "notes"), "must have app.kubern"),
    ):
        (run_dir / name).write_text(text)
        with pytest.raises(UserError, match=said):
            run(run_dir, None, monkeypatch)
        (run_dir / name).write_text(MANIFESTS[name])


def test_verify_run(run_dir: Path, phase_dict: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    (run_dir / "phase.json").write_text(json.dumps({"phase": phase_dict}))
    said = {"choices": [{"message": {"content": "Call for help."}}], "usage": {"completion_tokens": 4}}
    write_gate(run_dir, True)
    both = (200, {"data": [{"id": "base"}, {"id": "tuned"}]})
    with Fake((503, {"error": {"message": "loading"}}), (200, {"data": []}), both, (200, said)) as fake:
        assert verify_run.command(run_dir, [f"http://127.0.0.1:{fake.port}"]) == 0
    assert [body["model"] for method, _, body, _ in fake.asked if method == "POST"] == ["base", "tuned"]
    assert "answers as base, tuned; tuned: Call for help." in capsys.readouterr().out
    with (
        Fake(both, (404, {"error": {"message": "no such model"}})) as fake,
        pytest.raises(UserError, match="no such model"),
    ):
        verify_run.command(run_dir, [f"http://127.0.0.1:{fake.port}"])
    with (
        Fake((200, {"data": [{"id": "base"}]})) as fake,
        pytest.raises(verify_run.NotServed, match="serves base, not tuned"),
    ):
        verify_run.command(run_dir, [f"http://127.0.0.1:{fake.port}"])
    alone = (200, {"data": [{"id": "base"}]})  # vLLM with phase.serve.weights base
    with Fake(alone, (200, said)) as fake:
        assert verify_run.command(run_dir, [f"http://127.0.0.1:{fake.port}"], "base") == 0
    assert [body["model"] for method, _, body, _ in fake.asked if method == "POST"] == ["base"]
    with pytest.raises(verify_run.NotServed, match="cannot be reached"):
        verify_run.command(run_dir, ["http://127.0.0.1:1"], timeout=0.002)
    with Fake(
        both, (200, said), (200, said)
    ) as fake:  # a headless Service takes connections on the port of its pods only
        assert verify_run.command(run_dir, ["http://127.0.0.1:1", f"http://127.0.0.1:{fake.port}"]) == 0
    with pytest.raises(verify_run.NotServed, match=r":1 and http://127.0.0.1:2: cannot be reached"):
        verify_run.command(run_dir, ["http://127.0.0.1:1", "http://127.0.0.1:2"], timeout=0.002)
    write_gate(run_dir, False)
    with pytest.raises(verify_run.NotServed, match=r"not promoted. Because of numbers."):
        verify_run.command(run_dir, ["http://127.0.0.1:1"])


def leased(until: str | None) -> tuple[int, Any]:
    """An InferenceService as the server returns it."""
    return 200, {"metadata": {"resourceVersion": "7", "annotations": {promote.UNTIL: until} if until else None}}


@pytest.mark.parametrize(
    ("replies", "says", "deleted"),
    [
        ([leased("2026-01-01T00:00:00+00:00"), (200, {})], "was served until 2026-01-01", True),
        ([leased("2026-01-01T00:00:00+00:00"), (409, {"message": "changed"})], "has just changed, and stays", True),
        ([leased("9999-01-01T00:00:00+00:00")], "is served until 9999-01-01", False),
        ([leased(None)], "is served without end", False),
        ([(404, {"message": "not found"})], "is not there", False),
        ([(503, {}), leased("2026-01-01T00:00:00+00:00"), (503, {}), (200, {})], "and is deleted", True),
    ],
)
def test_a_served_model_ends_with_its_time(
    run_dir: Path,
    account: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    replies: list[tuple[int, Any]],
    says: str,
    deleted: bool,
) -> None:
    with api(account, *replies) as fake:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(fake.port))
        assert promote.end_lease("demo", "survival") == 0
    assert says in capsys.readouterr().out
    asked = [(path, body) for method, path, body, _ in fake.asked if method == "DELETE"]
    assert asked == [(SERVICE, {"preconditions": {"resourceVersion": "7"}})] * len(asked) and bool(asked) is deleted


@pytest.mark.parametrize("text", ["soon", "2026-01-01T00:00:00"])
def test_an_end_that_is_no_time_ends_nothing(
    run_dir: Path, account: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    with api(account, leased(text)) as fake, pytest.raises(UserError, match="write a time with its zone"):
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(fake.port))
        promote.end_lease("demo", "survival")
    assert [method for method, *_ in fake.asked] == ["GET"]


def test_each_promotion_begins_the_hours_anew(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gate(run_dir, True)
    cluster = Cluster()
    monkeypatch.setattr(promote.Kube, "in_cluster", lambda *_: cluster)
    for hours in (4, 9):
        began = datetime.now(UTC)
        assert run(run_dir, None, monkeypatch, hours=hours) == 0
        until = datetime.fromisoformat(cluster.objects[SERVICE]["metadata"]["annotations"][promote.UNTIL])
        assert -1 <= (until - began).total_seconds() - 3600 * hours <= 60
    assert promote.with_lease({"metadata": {"name": "a"}}, 0) == {"metadata": {"name": "a"}}
