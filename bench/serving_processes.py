"""The engines of serving.py as processes: how each is started, when it is ready, what memory its processes take."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import trainlab
from ports import free_port
from trainlab import files

STARTS, ENDS = 900.0, 60.0  # seconds that a start and an end may take
SAMPLED = 0.5  # seconds between two looks at the memory


@dataclass(frozen=True)
class Setup:
    """What both engines are given: a run, its base below `models`, and the sizes."""

    kind: str
    phase: Any
    models: Path
    run_dir: Path
    threads: int

    @property
    def base(self) -> Path:
        """Folder of the base model."""
        return self.models / self.phase.model.source.removeprefix("pvc:")


@dataclass(frozen=True)
class Running:
    """Engines that are ready: the address of each model name, seconds until the last was ready, bytes so far."""

    urls: dict[str, str]
    ready: float
    memory: "Memory"


class Memory(threading.Thread):
    """Looks at the proportional set size of processes and their children until told to stop; `peak` is in bytes."""

    def __init__(self, pids: Sequence[int]) -> None:
        super().__init__(daemon=True)
        self._pids, self._over = pids, threading.Event()
        self.peak = 0

    def run(self) -> None:
        """Look, until `stop`."""
        while not self._over.wait(SAMPLED):
            self.peak = max(self.peak, sum(map(_pss, self._pids)))

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        self.join()


def _pss(pid: int) -> int:
    """Return the bytes of a process and its children; those that have just ended have none."""
    result = 0
    try:
        top = psutil.Process(pid)
        each = [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for process in each:
        try:
            result += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return result


def ours(setup: Setup, folder: Path) -> tuple[list[tuple[list[str], list[str]]], dict[str, str], str]:
    """Return (processes as (models, arguments), variables, path that says ready): one process with base and tuned."""
    written = folder / "phase.json"
    files.write_json(written, {"phase": setup.phase.model_dump(mode="json")})
    argv = ["-m", "trainlab.cli", "serve", str(written), f"--models={setup.models}", f"--run-dir={setup.run_dir}"]
    search = filter(None, [str(Path(trainlab.__file__).parents[1]), os.environ.get("PYTHONPATH")])
    return [(["base", "tuned"], argv)], {"PYTHONPATH": os.pathsep.join(search)}, "/ready"


def vllm(setup: Setup, packages: Path) -> tuple[list[tuple[list[str], list[str]]], dict[str, str], str]:
    """Return the same of vLLM with the chart's arguments: base and adapter in one process, full weights in one each."""
    serve = setup.phase.serve
    common = ["-m", "vllm.entrypoints.openai.api_server", "--dtype=float32", "--enforce-eager"]
    common += [f"--max-model-len={setup.phase.model.max_length + serve.max_tokens}"]
    common += [f"--max-num-seqs={serve.max_concurrency}"]

    def named(name: str, weights: Path, result: Path) -> list[str]:
        own = [f"--chat-template={result / 'chat_template.jinja'}", f"--generation-config={result}"]
        return [*common, f"--model={weights}", f"--served-model-name={name}", *own]

    if setup.kind == "adapter":
        adapter = setup.run_dir / "lora_adapter"
        lora = [
            "--enable-lora",
            "--max-loras=2",
            f"--max-lora-rank={setup.phase.lora.rank}",
            f"--lora-modules=tuned={adapter}",
        ]
        processes = [(["base", "tuned"], [*named("base", setup.base, adapter), *lora])]
    else:
        best = setup.run_dir / "best_model"
        processes = [(["base"], named("base", setup.base, best)), (["tuned"], named("tuned", best, best))]
    variables = {
        "PYTHONPATH": str(packages),
        "VLLM_CACHE_ROOT": f"{packages}.cache",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; what the chart gives it of the demo's 3 GiB
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
    }
    return processes, variables, "/health"


@contextmanager
def started(
    setup: Setup, processes: list[tuple[list[str], list[str]]], variables: dict[str, str], ready: str, folder: Path
) -> Iterator[Running]:
    """Start `processes`, wait until all are ready, yield, and end them."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}  # halves a start
    env = {**kept, "OMP_NUM_THREADS": str(setup.threads), "HF_HUB_OFFLINE": "1", **variables}
    urls: dict[str, str] = {}
    with ExitStack() as stack:
        began, running = time.monotonic(), []
        for models, argv in processes:
            port = free_port()
            log = folder / f"{'-'.join(models)}.log"
            command = [sys.executable, *argv, "--host=127.0.0.1", f"--port={port}"]
            with log.open("wb") as output:
                process = subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.STDOUT)
            stack.callback(_end, process)
            running.append((process, f"http://127.0.0.1:{port}", log))
            urls |= dict.fromkeys(models, f"http://127.0.0.1:{port}")
        memory = Memory([process.pid for process, _, _ in running])
        memory.start()
        stack.callback(memory.stop)
        for process, url, log in running:
            _wait(process, url + ready, log)
        yield Running(urls, time.monotonic() - began, memory)


def _wait(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    end = time.monotonic() + STARTS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"an engine ended with exit code {process.returncode}:\n{log.read_text()[-3000:]}")
        try:
            if httpx.get(url, trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"an engine was not ready after {STARTS:.0f} s:\n{log.read_text()[-3000:]}")


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill the leader of a session with all that it started, also in sessions of their own, and wait for its end."""
    family: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        top = psutil.Process(process.pid)
        family = [top, *top.children(recursive=True)]
    for each in family:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # what lost its parent before
    process.wait()


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(ENDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
