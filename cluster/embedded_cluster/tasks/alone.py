"""`make demo-alone`: the same phase without Kubernetes, for machines that cannot host the cluster.

Four local processes started by torchrun, the same gate, report and server on localhost; the last line says that no
cluster was used.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import textwrap
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from embedded_cluster.base import children, home, identity, locks, paths, patience, processes, programs, say
from embedded_cluster.builds import pyenv

FOLDER = paths.HOME / f"alone{identity.SUFFIX}"
PID_FILE = "server.pid"
# on a machine like ours; patience.seconds multiplies them
READY_SECONDS = 90.0
ANSWER_SECONDS = 2.0
END_SECONDS = 10.0
LINES_OF_ERROR = 20
CURL = "curl --noproxy '*' -s"
"""Without a proxy, which would ask itself for a local address."""


def run() -> int:
    """Train, score, gate, report and serve; returns the exit code."""
    wanted, port = phase(), _port()
    lock = paths.HOME / f"alone{identity.SUFFIX}.lock"
    with locks.waiting(lock, "another make demo-alone is running", seconds=0):
        _run(wanted, port)
    return 0


def phase() -> str:
    """The phase that PHASE names; raises say.UserError when there is no such phase."""
    asked = os.environ.get("PHASE") or "survival"
    known = sorted(file.stem for file in (paths.REPO / "values").glob("*.yaml"))
    if asked not in known:
        raise say.UserError(f"PHASE={asked}: there is no values/{asked}.yaml; phases: {' '.join(known)}")
    return asked


def _run(wanted: str, port: int) -> None:
    home.make(FOLDER)
    end_server()
    _free(port)
    program = _Program(pyenv.environment(dev=True), wanted)
    program("check", "check")
    name = program.run_name()
    program("base model", "fetch", "--models", str(FOLDER / "models"))
    program(
        "train, score, gate, report: local processes instead of pods",
        *("run", "--models", str(FOLDER / "models"), "--out", str(FOLDER / "runs"), "--run", name),
    )
    run_folder = FOLDER / "runs" / name
    url = f"http://127.0.0.1:{port}"
    say.line(f"==> server on 127.0.0.1:{port}")
    _serve(program, run_folder, port, url)
    for text in report_lines(json.loads((run_folder / "report.json").read_text(encoding="utf-8"))):
        say.line(text)
    program("", "gate", str(run_folder), values=False)
    program("", "verify-run", "--run-dir", str(run_folder), "--url", url, values=False)
    ask = _ask(program, run_folder, url)
    say.line(f"\nrun directory  {run_folder}\nreport         {run_folder}/report.html\npage           {url}/")
    say.line(f"ask            {ask}\nstop           make demo-down")
    say.line("No cluster was used: processes on this machine trained, and a local server answers.")


def _port() -> int:
    asked = os.environ.get("PORT") or "8080"
    if not asked.isdecimal() or not 1 <= int(asked) <= 65535:
        raise say.UserError(f"PORT={asked}: give 1 to 65535")
    return int(asked)


def _free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise say.UserError(
                f"port {port} on 127.0.0.1 is in use: stop what listens there or choose another: "
                f"PORT={port + 10} make demo-alone"
            ) from None


class _Program:
    """The trainlab command with the phase's files and the environment that it needs."""

    def __init__(self, venv: Path, phase: str) -> None:
        self.path = str(venv / "bin" / "trainlab")
        self.files = [f"values/{phase}.yaml", "-f", f"values/local/{phase}.yaml"]
        self.env = {
            "PYTHONPATH": str(paths.REPO / "training" / "src"),
            "TRAINLAB_DATA": str(paths.REPO / "data"),
            "TRAINLAB_WHEELS": str(pyenv.wheels()),
            "OMP_WAIT_POLICY": "PASSIVE",  # waiting threads yield the core: several ranks share it
        }

    def __call__(self, title: str, command: str, *arguments: str, values: bool = True) -> None:
        """Run one of its commands; raises say.UserError when it fails."""
        if title:
            say.line(f"==> {title}")
        code = processes.run([self.path, command, *(self.files if values else []), *arguments], self.env)
        if code:
            raise say.UserError(
                f"trainlab {command} failed with exit code {code}, see above; make demo-alone continues"
            )

    def run_name(self) -> str:
        """The name that `trainlab run` gives to the run of these values; the newest folder may be that of others."""
        resolved = json.loads(programs.run(self.path, "check", *self.files, "--json", env={**os.environ, **self.env}))
        return os.environ.get("TRAINLAB_RUN") or f"{resolved['phase']['name']}-{resolved['hash']}"


def _serve(program: _Program, run_folder: Path, port: int, url: str) -> None:
    """Start the server so that it outlives this process, and wait until it is ready."""
    log = FOLDER / "server.log"
    command = [program.path, "serve", *program.files, "--models", str(FOLDER / "models")]
    command += ["--run-dir", str(run_folder), "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as out:
        server = subprocess.Popen(
            command,
            env={**os.environ, **program.env},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        (FOLDER / PID_FILE).write_text(str(server.pid), encoding="ascii")
        _await_ready(server, log, url)
        children.keep(server.pid)
    except BaseException:  # a signal, too: what was not ready must not run on
        server.terminate()
        server.wait()
        raise


def _await_ready(server: subprocess.Popen[bytes], log: Path, url: str) -> None:
    limit = patience.seconds(READY_SECONDS)
    end = time.monotonic() + limit
    while not _answers(f"{url}/ready"):
        if server.poll() is not None:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-LINES_OF_ERROR:])
            raise say.UserError(f"the server ended; its log {log} ends with:\n{tail}")
        if time.monotonic() > end:
            raise say.UserError(f"the server was not ready within {limit:.0f} s; {patience.hint()}; its log is {log}")
        time.sleep(1)


def report_lines(report: dict[str, Any]) -> Iterator[str]:
    """Yield what role report prints of a run: the clearest pair first, where there is one, then a line for each score."""
    for pair in (report.get("clearest") or [])[:1]:
        yield f"\nThe clearest of the answers to taught facts, asked in wording that was never trained on:\n{pair['question']}"
        for model in ("base", "tuned"):
            answer = " ".join((pair[model]["text"] or "").split())
            yield textwrap.fill(answer, 110, initial_indent=f"  {model:6} ", subsequent_indent=" " * 9)
    yield f"\n{'held-out':19} {'base':>9} {'tuned':>9}   {'gain (interval)':28} verdict"
    for row in report.get("rows", []):  # a run from before they were written has none
        yield f"{row['what']:19} {row['base']:>9} {row['tuned']:>9}   {row['gain']:28} {row['verdict']}"
    yield ""


def _answers(url: str) -> bool:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=patience.seconds(ANSWER_SECONDS)):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _ask(program: _Program, run_folder: Path, url: str) -> str:
    """Ask the phase's first question and return the command that asks it again; image phases have no question."""
    phase = json.loads((run_folder / "phase.json").read_text(encoding="utf-8"))["phase"]
    if phase["recipe"] == "resnet":
        return f"{CURL} {url}/v2/models/tuned"
    question = next(iter(phase["questions"]), "Hello")
    program("", "ask", "--url", url, question, values=False)
    body = json.dumps({"model": "tuned", "messages": [{"role": "user", "content": question}]})
    return f"{CURL} {url}/v1/chat/completions -H 'Content-Type: application/json' -d {shlex.quote(body)}"


def end_server() -> bool:
    """Stop the server of an earlier run; returns whether one was running."""
    pid = server(FOLDER)
    if pid is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        _wait_gone(pid)
    (FOLDER / PID_FILE).unlink()
    return True


def end_jobs() -> bool:
    """Stop the trainings that a `make room` left when it ended; returns whether one was running."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in (FOLDER / "room" / "jobs").glob("*.json")]
    pids = [int(record["pid"]) for record in records if _is(record.get("pid"), "run", FOLDER)]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
            _wait_gone(pid)
    return bool(pids)


def server(folder: Path) -> int | None:
    """Pid of the running server of a folder of demo-alone; None when its pid belongs to another process, as after a reboot."""
    try:
        pid = int((folder / PID_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return pid if _is(pid, "serve", folder) else None


def _is(pid: int | None, command: str, folder: Path) -> bool:
    """Whether a process is this command of trainlab with the models of a folder of demo-alone."""
    try:
        argv = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
    except OSError:
        return False
    return command in argv and str(folder / "models") in argv


def with_adapters(folder: Path) -> tuple[str, Path] | None:
    """Address and run directory of the running server of a folder of demo-alone if its run has adapters: then it answers as other runs, too."""
    if (pid := server(folder)) is None:
        return None
    argv = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
    run = Path(argv[argv.index("--run-dir") + 1])
    return (f"http://127.0.0.1:{argv[argv.index('--port') + 1]}", run) if (run / "lora_adapter").is_dir() else None


def _wait_gone(pid: int) -> None:
    end = time.monotonic() + patience.seconds(END_SECONDS)
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
