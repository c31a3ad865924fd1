"""A round's job on this machine: `trainlab run` in processes of its own, which a killed room finds again."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.config import AdaptersPhase
from trainlab.config.loading import load_values, run_name
from trainlab.engine.checkpoints import RESUMES
from trainlab.errors import UserError
from trainlab.models.fetch import datasets_dir
from trainlab.room import run_folder
from trainlab.room.interface import Status
from trainlab.run import results

ENDED = "it was ended from outside"
DETACHED = """import subprocess, sys
with open(sys.argv[1], "ab") as log:
    job = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
print(job.pid)
"""
"""Starts the job as a child of nobody who is left: Ctrl-C in `make room` ends all that descends from it."""
MAX_STARTS = 4
"""Of a job, whose worker may be killed for the room to see; from the second on it resumes."""


class LocalRunner:
    """Trains the rounds of a phase of recipe adapters; `models` gets their rows, `runs` their results, `state` logs and pids."""

    def __init__(self, values: Path, models: Path, runs: Path, state: Path) -> None:
        """Raise UserError for values of another recipe."""
        self._models, self._runs, self._state = models, runs, state / "jobs"
        self._values = values
        phase = load_values([values], os.environ).phase
        if not isinstance(phase, AdaptersPhase):
            raise UserError(
                f"--job {values}: phase.recipe is {phase.recipe}; a round needs adapters, as in values/room/adapters.yaml"
            )

    def start(self, round_id: str, rows: Sequence[Mapping[str, Any]]) -> str:
        """Write the rows, start the job; see Runner.start."""
        record = self._state / f"{round_id}.json"
        if not record.exists():
            run_folder.write_rows(self._rows(round_id), rows)
            overlay = self._state / f"{round_id}.values.json"
            files.write_json(overlay, {"phase": {"data": {"source": f"pvc:rooms/{round_id}"}}})
            phase = load_values([self._values, overlay], os.environ).phase
            files.write_json(record, {"run": run_name(phase, {}), "round": round_id, "starts": 0, "pid": 0})
        job = files.read_json(record)
        if not job["starts"]:
            self._launch(job)
        return str(job["run"])

    def status(self, run: str) -> Status:
        """Return what the run's files say; a job that was lost goes on from its checkpoint. See Runner.status."""
        job, run_dir = self._job(run), self._runs / run
        if results.finished(run_dir):
            return run_folder.status(run_dir, "done")
        if not self._alive(job):
            if job["starts"] >= MAX_STARTS or not self._lost(job):
                return run_folder.status(run_dir, "failed", self._last_error(job))
            self._launch(job)
        return run_folder.status(run_dir, "running")

    def kill_worker(self, run: str) -> str:
        """Kill the first rank of the job as a node's end would; see Runner.kill_worker."""
        job = self._job(run)
        for pid in self._family(int(job["pid"])):
            if _name(pid).startswith("rank "):
                os.kill(pid, signal.SIGKILL)
                return f"{_name(pid)} of {run} was killed; the job goes on from its last checkpoint."
        raise UserError(f"{run}: no rank is running yet, or none any more; try again while it trains")

    def take_home(self, run: str, owner: str, name: str) -> Path | None:
        """Return a ZIP file of an owner's adapter; see TakesHome.take_home."""
        return run_folder.take_home(self._runs, self._models, run, owner, name, self._state / "home")

    def _rows(self, round_id: str) -> Path:
        return datasets_dir(self._models) / "rooms" / round_id

    def _launch(self, job: dict[str, Any]) -> None:
        overlay, log = (self._state / f"{job['round']}.{end}" for end in ("values.json", "log"))
        command = [sys.executable, "-m", "trainlab.cli", "run", str(self._values), "-f", str(overlay)]
        command += ["--models", str(self._models), "--out", str(self._runs), "--run", job["run"]]
        started = subprocess.run(
            [sys.executable, "-c", DETACHED, str(log), *command], stdout=subprocess.PIPE, check=True
        )
        job |= {"starts": job["starts"] + 1, "pid": int(started.stdout)}
        files.write_json(self._state / f"{job['round']}.json", job)

    def _job(self, run: str) -> dict[str, Any]:
        for path in self._state.glob("*.json"):
            job = json.loads(path.read_text(encoding="utf-8"))
            if job.get("run") == run:
                return dict(job)
        raise UserError(f"{run}: this room started no such run")

    def _alive(self, job: Mapping[str, Any]) -> bool:
        """Whether the job's launcher runs; its pid may be somebody else's by now."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(int(job["pid"]), os.WNOHANG)  # of a child that ended nothing is left
        try:
            return str(job["run"]).encode() in Path(f"/proc/{job['pid']}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False

    def _lost(self, job: Mapping[str, Any]) -> bool:
        """Whether the job ended for want of a process, so that it resumes, and not for an error that would come again."""
        return self._last_error(job).endswith((RESUMES, ENDED))

    def _last_error(self, job: Mapping[str, Any]) -> str:
        try:
            lines = (self._state / f"{job['round']}.log").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return "its log is gone"
        return next((line for line in reversed(lines) if line.startswith("error:")), ENDED)

    def _family(self, pid: int) -> list[int]:
        """Return a process and all below it."""
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        except OSError:
            return []
        return [pid, *(descendant for child in children for descendant in self._family(int(child)))]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
