"""The short-lived pod of `trainlab put` and `get` (run/transfer.py): what it mounts, its start, and the connection by kubectl exec.

The pod is restricted, has no token and ends by itself (activeDeadlineSeconds).
"""

import argparse
import json
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from trainlab.errors import UserError
from trainlab.progress import note
from trainlab.run import volume_pod
from trainlab.run.labels import DOMAIN

Json = dict[str, Any]
VOLUMES = {"datasets": ("data", "models"), "models": ("models",), "runs": ("runs",)}
"""First part of a place -> components of the claims that hold it, as the chart labels them, the preferred one first."""
OURS = "app.kubernetes.io/part-of=trainlab"
INSTANCE, COMPONENT = "app.kubernetes.io/instance", "app.kubernetes.io/component"
STALL = 60.0  # seconds without a byte after which a connection counts as dropped
START = 300.0  # seconds until the pod runs
NO_NODE = 60.0  # seconds that a pod may be unschedulable
SCRIPT = Path(volume_pod.__file__).read_text(encoding="utf-8")


class Dropped(Exception):
    """The connection ended before the answer."""


class Answered(Exception):
    """The pod refused; `answer` says why."""

    def __init__(self, answer: Json) -> None:
        super().__init__(str(answer))
        self.answer = answer


@dataclass(frozen=True)
class Target:
    """Where the pod runs and what it mounts."""

    claim: str
    sub_path: str
    image: str
    spec: Json


def line_of(stream: IO[bytes], key: str) -> Json:
    line = stream.readline()
    try:
        answer: Json = json.loads(line)
    except ValueError:
        raise Dropped("the connection ended") from None
    if "error" in answer:
        raise Answered(answer)
    return answer if key in answer else line_of(stream, key)


class Pods:
    """Starts pods that mount a volume, by kubectl."""

    def __init__(
        self, kubectl: str, namespace: str | None, spec: Callable[["Pods", str], Target], minutes: int
    ) -> None:
        self._kubectl, self._namespace = kubectl, namespace
        self._spec, self._minutes = spec, minutes

    @classmethod
    def of(cls, args: argparse.Namespace) -> "Pods":
        """Return them as the options say."""
        kubectl = args.kubectl or next((name for name in ("kubectl", "oc") if shutil.which(name)), "")
        if not kubectl:
            raise UserError("kubectl: neither it nor oc is installed; install one, or name it with --kubectl")

        def target(pods: "Pods", volume: str) -> Target:
            claim = args.claim or pods.claim(volume, args.release)
            spec: Json = {} if args.image else pods.release_spec(args.release, claim)
            image = args.image or spec.pop("image")
            return Target(claim, args.sub_path, image, {**spec, **args.pod_spec})

        return cls(kubectl, args.namespace, target, args.minutes)

    def command(self, *words: str) -> list[str]:
        """Return a command; the one that is given may be several words with variables of the shell."""
        where = ["-n", self._namespace] if self._namespace else []
        return ["sh", "-c", f'exec env {self._kubectl} "$@"', "sh", *where, *words]

    def call(self, *words: str, document: Json | None = None) -> Json:
        """Return what kubectl prints as JSON; raises UserError with its own words."""
        text = json.dumps(document) if document else None
        done = subprocess.run(self.command(*words), input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UserError(f"kubectl {shlex.join(words[:3])}: {_last(done.stderr)}")
        answer: Json = json.loads(done.stdout) if done.stdout.startswith("{") else {}
        return answer

    def check_right(self) -> None:
        """Raise UserError if this user may not exec into pods; nobody who cannot be asked is refused."""
        done = subprocess.run(
            self.command("auth", "can-i", "create", "pods", "--subresource=exec"),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.stdout.strip().partition(" ")[0] == "no":
            where = f"namespace {self._namespace}" if self._namespace else "this namespace"
            raise UserError(
                f"{where}: you may not create pods/exec, by which put and get reach a volume; whoever set the namespace up grants it with "
                "workspace_members_transfer, to attendees with attendees_transfer"
            )

    def claim(self, volume: str, release: str | None) -> str:
        """Return the claim that holds a volume of the release, or of the only one; raises UserError with what there is."""
        items = self.call("get", "pvc", "-l", OURS, "-o", "json")["items"]
        claims: dict[str, dict[str, str]] = {}
        for each in items:
            labels = each["metadata"].get("labels") or {}
            claims.setdefault(labels.get(INSTANCE, ""), {})[labels.get(COMPONENT, "")] = each["metadata"]["name"]
        if release:
            claims = {name: parts for name, parts in claims.items() if name == release}
        named = {
            name: next((parts[part] for part in VOLUMES[volume] if part in parts), "") for name, parts in claims.items()
        }
        named = {name: claim for name, claim in named.items() if claim}
        where = f"namespace {self._namespace}" if self._namespace else "this namespace"
        if not named:
            raise UserError(
                f"{where} has no claim of {'release ' + release if release else 'a release'} for {volume}; install the phase first, "
                "which makes its volumes, or name a claim of your own with --claim and an image with --image"
            )
        if len(named) > 1:
            raise UserError(
                f"{where} has volumes of several releases ({', '.join(sorted(named))}); choose one with --release"
            )
        return next(iter(named.values()))

    def release_spec(self, release: str | None, claim: str) -> Json:
        """Return image, pull secrets, node selection and security context of a pod of the release that has the claim."""
        selector = f"{OURS},{INSTANCE}={release}" if release else OURS
        jobs = self.call("get", "jobs,pods", "-l", selector, "-o", "json")["items"]
        specs = [each["spec"].get("template", {}).get("spec") or each["spec"] for each in jobs]
        specs = [each for each in specs if each["containers"][0].get("command", [""])[0] == "trainlab"] or specs
        if not specs:
            raise UserError(
                f"claim {claim}: no job or pod of its release is there to take the image from; name one that has Python with --image"
            )
        kept = ("imagePullSecrets", "nodeSelector", "tolerations", "securityContext")
        spec = {key: specs[0][key] for key in kept if specs[0].get(key)}
        return {**spec, "image": specs[0]["containers"][0]["image"]}

    @contextmanager
    def running(self, volume: str) -> Iterator["Pod"]:
        """Start a pod that mounts the volume, and remove it whatever happens."""
        self.check_right()
        target = self._spec(self, volume)
        made = self.call("create", "-o", "json", "-f", "-", document=manifest(target, self._minutes))
        name = made["metadata"]["name"]
        try:
            self._wait(name)
            yield Pod(self, name, target.claim)
        finally:
            with suppress(UserError):
                self.call("delete", "pod", name, "--ignore-not-found", "--wait=false", "--grace-period=0", "-o", "name")

    def _wait(self, name: str) -> None:
        """Wait until the pod runs; raises UserError with what keeps it."""
        began = time.monotonic()
        reported = ""
        while True:
            status = self.call("get", "pod", name, "-o", "json").get("status", {})
            if status.get("phase") == "Running":
                return
            waiting = [each.get("state", {}).get("waiting") or {} for each in status.get("containerStatuses") or []]
            reasons = [
                f"{each.get('reason')}: {each.get('message', '')}".rstrip(": ")
                for each in waiting
                if each.get("reason")
            ]
            reasons += [
                f"{each.get('reason')}: {each.get('message')}"
                for each in status.get("conditions") or []
                if each.get("reason") == "Unschedulable"
            ]
            why = "; ".join(reasons) or f"its phase is {status.get('phase', 'unknown')}"
            seconds = time.monotonic() - began
            fatal = any(
                word in why for word in ("ErrImageNeverPull", "InvalidImageName", "CreateContainer", "ImagePullBackOff")
            )
            if (
                status.get("phase") in ("Failed", "Succeeded")
                or fatal
                or seconds > START
                or ("Unschedulable" in why and seconds > NO_NODE)
            ):
                raise UserError(
                    f"pod {name} does not start ({why}); correct --image, --claim or --pod-spec, or make room on a node"
                )
            if why != reported and seconds > 5:
                reported = why
                note(f"pod {name}: {why}")
            time.sleep(1)


class Pod:
    """A pod that runs and has the volume at /volume."""

    def __init__(self, pods: Pods, name: str, claim: str) -> None:
        self._pods, self._name, self.claim = pods, name, claim

    def ask(
        self,
        request: Mapping[str, Any],
        send: Callable[[IO[bytes]], None] | None = None,
        take: Callable[[IO[bytes]], None] | None = None,
    ) -> Json:
        """Send a request, and what `send` writes; `take` reads what comes before the answer. Raises Answered, Dropped or UserError."""
        command = self._pods.command("exec", "-i", self._name, "--", "python3", "-c", SCRIPT)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdin and process.stdout and process.stderr
        watch = _Watch(process)
        reported: list[str] = []
        errors = process.stderr
        listener = threading.Thread(target=lambda: reported.append(errors.read().decode(errors="replace")), daemon=True)
        listener.start()
        try:
            try:
                process.stdin.write(json.dumps(request).encode() + b"\n")
                if send:
                    send(_Counted(process.stdin, watch))  # type: ignore[arg-type]
                process.stdin.flush()
            except BrokenPipeError:
                pass  # it has answered, or is gone: its output says which
            stream = _Counted(process.stdout, watch)
            if take:
                take(stream)  # type: ignore[arg-type]
            answer: Json = line_of(stream, "answer")["answer"]  # type: ignore[arg-type]
            return answer
        except Dropped as error:
            process.kill()
            listener.join(5)
            raise Dropped(self._gone() or _last("".join(reported)) or str(error)) from None
        except Answered as error:
            if error.answer["error"] == "short":
                raise Dropped("the connection ended") from None
            raise
        finally:
            watch.end()
            process.kill()
            with suppress(OSError):
                process.stdin.close()
            process.wait()

    def _gone(self) -> str:
        """Raise UserError if the pod has ended: another attempt cannot help."""
        try:
            status = self._pods.call("get", "pod", self._name, "-o", "json").get("status", {})
        except UserError as error:
            if "not found" in str(error).lower():
                raise UserError(
                    f"pod {self._name} was removed; the next attempt goes on where this one ended"
                ) from None
            return ""
        if status.get("phase") in ("Failed", "Succeeded"):
            why = status.get("reason") or "its container ended"
            raise UserError(
                f"pod {self._name} ended ({why}); the next attempt goes on where this one ended (--minutes is how long a pod may live)"
            )
        return ""


class _Watch:
    """Kills a process through which no byte has gone for a minute."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.last, self._process, self._ended = time.monotonic(), process, threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while not self._ended.wait(1):
            if time.monotonic() - self.last > STALL:
                self._process.kill()
                return

    def end(self) -> None:
        """Stop watching."""
        self._ended.set()


class _Counted:
    """A stream that tells the watch of each byte."""

    def __init__(self, stream: IO[bytes], watch: _Watch) -> None:
        self._stream, self._watch = stream, watch

    def write(self, data: bytes) -> int:
        count = self._stream.write(data)
        self._watch.last = time.monotonic()
        return count

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._watch.last = time.monotonic()
        return data

    def readline(self) -> bytes:
        data = self._stream.readline()
        self._watch.last = time.monotonic()
        return data


def _last(text: str) -> str:
    """Return what kubectl said, without its noise."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ").removeprefix("Error from server ") if lines else ""


def manifest(target: Target, minutes: int) -> Json:
    """Return the pod: passes the `restricted` level, has no token, ends by itself."""
    mount: Json = {"name": "volume", "mountPath": "/volume"}
    if target.sub_path:
        mount["subPath"] = target.sub_path
    container: Json = {
        "name": "volume",
        "image": target.image,
        "command": ["sleep", str(60 * minutes)],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [mount],
    }
    spec: Json = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "activeDeadlineSeconds": 60 * minutes,
        "containers": [container],
        "volumes": [{"name": "volume", "persistentVolumeClaim": {"claimName": target.claim}}],
        **target.spec,
        "securityContext": {
            **target.spec.get("securityContext", {}),
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    labels = {"app.kubernetes.io/name": "transfer", COMPONENT: "transfer", "app.kubernetes.io/part-of": "trainlab"}
    labels[f"{DOMAIN}/owner"] = "transfer"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "trainlab-transfer-", "labels": labels},
        "spec": spec,
    }
