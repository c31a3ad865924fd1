"""`trainlab`, or a program, in a fork of a process that has imported torch and the trainers: a start takes no ten CPU-seconds.

For tests whose subject is not the start itself. What Python or a library reads while it is imported is as in the first start
(variables such as PYTHONPATH, LD_*, HF_*); whoever changes these starts a Python of their own.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

from ports import free_port

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["torch.utils.tensorboard", "trainlab.engine.trainer", "trainlab.evaluation.answer_score", "trainlab.cli"]
)


class Run:
    """A `trainlab`, or `program`, that has been started, with what tests use of subprocess.Popen; stdout has stderr in it."""

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str], program: Path | None = None) -> None:
        reader, writer = CONTEXT.Pipe(duplex=False)
        self._process = CONTEXT.Process(target=_main, args=(list(arguments), dict(env), program, writer))
        self._process.start()
        writer.close()
        self.stdout = os.fdopen(os.dup(reader.fileno()), encoding="utf-8")
        reader.close()
        self.pid = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        """The exit code, or minus the number of the signal that ended it; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return `returncode`."""
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Return the rest of its output once it has ended. Raises TimeoutExpired after `timeout` seconds."""
        texts: list[str] = []
        reader = threading.Thread(target=lambda: texts.append(self.stdout.read()), daemon=True)
        reader.start()
        reader.join(timeout)
        if reader.is_alive():
            raise subprocess.TimeoutExpired("trainlab", timeout or 0)
        self._process.join()
        return texts[0], None


def ranks(program: Path, arguments: Sequence[str], env: Mapping[str, str]) -> list[Run]:
    """Start both ranks of a job on this machine, as torchrun does."""
    meeting = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    both = [{**env, **meeting, "RANK": rank, "LOCAL_RANK": rank, "GLOO_SOCKET_IFNAME": "lo"} for rank in "01"]
    return [Run(arguments, each, program) for each in both]


def ended(runs: Sequence[Run]) -> str:
    """Return what they print until all have ended well."""
    with ThreadPoolExecutor() as readers:  # at once: a rank whose pipe is full would wait, and the others for it
        text = "".join(output for output, _ in readers.map(lambda run: run.communicate(timeout=1200), runs))
    assert [run.returncode for run in runs] == [0] * len(runs), text
    return text


def _main(arguments: Sequence[str], env: Mapping[str, str], program: Path | None, writer: Connection) -> None:
    """Be `python -m trainlab.cli ARGUMENTS`, or `python PROGRAM ARGUMENTS`."""
    for stream in (1, 2):
        os.dup2(writer.fileno(), stream)
    writer.close()
    assert "torch" in sys.modules, "nothing was imported before the fork; is trainlab in PYTHONPATH?"
    os.environ.clear()
    os.environ.update(env)
    if program:
        sys.argv = [str(program), *arguments]
        runpy.run_path(str(program), run_name="__main__")
        return
    from trainlab import cli

    cli.main(arguments)
