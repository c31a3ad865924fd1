"""Whole runs in processes of their own: two pods as an operator starts them, and what is refused before any rank."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from checkout import SOURCES, VALUES
from ports import free_port
from safetensors.torch import load_file
from slow import but_the_first
from tiny import make_job, make_phase, phase_from
from trainlab.config.types import quantity
from trainlab.errors import UserError
from trainlab.recipes import sft
from trainlab.run import launch
from workplace import Workplace

TRAIN = {"epochs": 2, "batch_size": 2, "learning_rate": 0.01, "checkpoints": 2, "validation_fraction": 0.2}


@pytest.fixture
def place(tmp_path: Path, tiny_model: Path, phase_dict: dict[str, Any]) -> Workplace:
    shutil.copytree(tiny_model, tmp_path / "models" / "tiny")
    return Workplace(tmp_path, make_phase(phase_dict, train=TRAIN, resources={"nodes": 2}))


@pytest.mark.slow
def test_two_pods_make_one_run_that_equals_one_rank_with_accumulation(place: Workplace) -> None:
    env = {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "auto",  # what the operator sets; auto would start a rank per core
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": str(free_port()),
        "TRAINLAB_RUN": "pods",
    }
    pods = [place.start(**env, PET_NODE_RANK=str(i)) for i in range(2)]
    outputs = [pod.communicate()[0] for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0], "\n".join(outputs)
    assert "trainlab: gate: " in outputs[0] and "gate" not in outputs[1]

    run_dir = place.root / "pods"
    expected = {
        *("phase.json", "manifest.json", "training_history.json", "training_summary.json", "gate.json", "report.json"),
        *("report.html", "eval_before.json", "eval_after.json", "best_model", "demo_outputs"),
        *("tensorboard", "progress.json", "attempts.json", "last_step"),
    }
    assert {p.name for p in run_dir.iterdir()} == expected
    summary = json.loads((run_dir / "training_summary.json").read_text())
    assert (summary["world_size"], summary["effective_batch"], summary["steps"]) == (2, 4, 10)
    manifest = json.loads((run_dir / "manifest.json").read_text())
    assert manifest["ended"] and manifest["world_size"] == 2
    assert len(json.loads((run_dir / "eval_after.json").read_text())["items"]) == 4

    one = phase_from({**place.phase.model_dump(), "train": {**TRAIN, "gradient_accumulation": 2}})
    sft.fit(make_job(one, place.root / "models" / "tiny", place.root / "data", place.root / "one"))
    first = load_file(run_dir / "best_model" / "model.safetensors")
    second = load_file(place.root / "one" / "best_model" / "model.safetensors")
    assert max(float((first[name] - second[name]).abs().max()) for name in first) < 1e-4

    again = place.start("--run", "pods")
    output = again.communicate()[0]
    assert again.returncode == 0 and "is complete: nothing to do" in output
    pods = [place.start(**env, PET_NODE_RANK=str(i)) for i in range(2)]
    outputs = [pod.communicate()[0] for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0], "\n".join(outputs)
    assert "is complete: nothing to do" in outputs[0] and "scoring" not in outputs[0]


@pytest.mark.rest
def test_ranks_without_gpus_are_forked_from_a_process_that_has_imported_torch(place: Workplace) -> None:
    """Python names each import of each process: 5 CPU-seconds for torch and what trains, once for a pod and not for each rank."""
    pod = place.python("--run", "once", "--processes", "2", PYTHONPROFILEIMPORTTIME="1")
    output = pod.communicate()[0]
    assert pod.returncode == 0 and "trainlab: gate: " in output, output[-2000:]
    for module in ("torch", "trl", "datasets"):
        assert len(re.findall(rf"\| +{re.escape(module)}\n", output)) == 1, module


@pytest.mark.slow
def test_a_forked_rank_that_is_killed_ends_the_job_with_a_sentence(place: Workplace) -> None:
    """The kernel calls it by its number, which is how the drills find it."""
    phase = phase_from({**place.phase.model_dump(), "train": {**TRAIN, "epochs": 100, "batch_size": 1}})
    pod = Workplace(place.root, phase).start("--run", "killed", "--processes", "2")
    assert pod.stdout is not None
    while "training from step 0" not in (line := pod.stdout.readline()):
        assert line, "ended before it trained"
    children = Path(f"/proc/{pod.pid}/task/{pod.pid}/children").read_text().split()
    names = {Path(f"/proc/{child}/comm").read_text().strip(): int(child) for child in children}
    assert {"rank 0", "rank 1"} <= {*names}
    os.kill(names["rank 1"], signal.SIGKILL)
    output = pod.communicate()[0]
    assert pod.returncode == 1 and "Traceback" not in output, output
    assert "error: rank 1 was ended by SIGKILL: its memory ran out" in output


def test_a_corrupt_line_is_said_once_before_any_rank_starts(place: Workplace) -> None:
    path = place.root / "data" / "train" / "fire.jsonl"
    path.write_text(path.read_text() + '{"id": ')
    pod = place.start("--run", "bad", "--processes", "2")
    output = pod.communicate()[0]
    assert pod.returncode == 2 and output.count("fire.jsonl:7: not JSON") == 1 and "Traceback" not in output
    assert not (place.root / "bad").exists()


@pytest.mark.slow
def test_an_error_inside_a_rank_ends_the_job_with_its_code_and_no_traceback(place: Workplace) -> None:
    phase = phase_from({**place.phase.model_dump(), "lora": {"rank": 2, "target_modules": ["nope"]}})
    broken = Workplace(place.root, phase)
    pod = broken.start("--run", "layers", "--processes", "1")
    output = pod.communicate()[0]
    assert pod.returncode == 2 and "Traceback" not in output
    assert "error: rank 0: phase.lora.target_modules: the model has no linear layer 'nope'" in output


@pytest.mark.slow
@pytest.mark.parametrize("number", but_the_first([signal.SIGTERM, signal.SIGINT]))
def test_a_signal_ends_the_job_with_a_sentence(place: Workplace, number: signal.Signals) -> None:
    phase = phase_from({**place.phase.model_dump(), "train": {**TRAIN, "epochs": 100, "batch_size": 1}})
    pod = Workplace(place.root, phase).start("--run", "ended", "--processes", "2")
    assert pod.stdout is not None
    until = ""
    while "training from step 0" not in until:
        until = pod.stdout.readline()
        assert until, "ended before it trained"
    pod.send_signal(number)
    output = pod.communicate()[0]
    assert pod.returncode == 128 + number and "Traceback" not in output, output
    assert f"error: ended by {number.name}; the same command goes on from the last complete checkpoint" in output


# A disk of our own that fills up as soon as the first checkpoint is whole; then there is room again.
FULL_DISK = """
mount -t tmpfs -o size=64m tmpfs "$DISK"
(
  until [ -e "$DISK/checkpoints/$FIRST/complete.json" ]; do sleep 0.02; done
  dd if=/dev/zero of="$DISK/ballast" bs=64k 2> /dev/null
) &
code=0; "$@" || code=$?
wait
echo "first run: $code, then there are: $(cd "$DISK/checkpoints" && echo */complete.json)"
rm "$DISK/ballast"
code=0; "$@" || code=$?
echo "second run: $code"
"""


@pytest.mark.rest
@pytest.mark.skipif(
    subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode != 0,
    reason="a file system of our own needs root",
)
def test_a_disk_that_fills_keeps_the_last_good_checkpoint(place: Workplace) -> None:
    """On a real full file system: one sentence, exit code 1, and the same command goes on from the last good one."""
    train = {
        **TRAIN,
        "epochs": 60,
        "checkpoints": 3,
    }  # seconds between two checkpoints, so that the disk is full by then
    phase = phase_from({**place.phase.model_dump(), "train": train, "resources": {"nodes": 1}})
    work = Workplace(place.root, phase)
    disk = place.root / "full"
    disk.mkdir()
    before = ("unshare", "--mount", "sh", "-c", FULL_DISK, "sh")
    run = work.python("--run", "full", "--processes", "1", before=before, DISK=str(disk), FIRST="checkpoint-200")
    output = run.communicate()[0]
    assert "first run: 1, then there are: checkpoint-200/complete.json" in output, output
    assert "the volume is full while" in output and "Traceback" not in output, output
    assert "checkpoint-200; free space" in output and f"resuming from {disk}/checkpoints/checkpoint-200" in output, (
        output
    )
    assert "second run: 0" in output, output


def test_threads_are_the_share_of_the_cores_and_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert launch.threads(4, None) == 2 and launch.threads(16, None) == 1
    assert launch.threads(1, quantity("300m")) == 1 and launch.threads(2, quantity("6")) == 3


@pytest.mark.parametrize("given", ["", "many", "0", "-1", "2.5"])
def test_threads_that_are_no_number_are_refused_in_a_sentence(
    given: str, phase_dict: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    phase = phase_from(phase_dict)
    with pytest.raises(UserError, match=f"^OMP_NUM_THREADS is {given}: give a number of threads from 1"):
        launch._limit_threads(phase, 1)


BLOCKS = """
import ctypes, resource, sys
from trainlab.config.loading import load_values
from trainlab.run import launch
from pathlib import Path
launch.set_environment(load_values([Path(sys.argv[1])]).phase, 2)
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    block = libc.malloc(48 << 20)
    ctypes.memset(block, 1, 48 << 20)
    libc.free(block)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.parametrize(("given", "kept"), [({}, True), ({"MALLOC_MMAP_MAX_": "65536"}, False)])
def test_big_blocks_stay_on_the_heap_of_a_launcher_whose_ranks_are_forked(given: dict[str, str], kept: bool) -> None:
    """The pages of a block are faulted in once, and not each time; what the user has set wins."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "MALLOC_", "OMP_"))}
    env = {**clean, "PYTHONPATH": str(SOURCES), **given}
    command = [sys.executable, "-c", BLOCKS, str(VALUES / "quick.yaml")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = (48 << 20) // os.sysconf("SC_PAGESIZE")
    assert (int(done.stdout) < 2 * pages) is kept, done.stdout


FORKED = """
import os, sys
from trainlab.config.loading import load_values
from trainlab.run import launch
from pathlib import Path
launch.set_environment(load_values([Path(sys.argv[1])]).phase, 1)
import torch
def parallel():
    values = torch.randn(2_000_000)
    return values[torch.randint(0, 2_000_000, (2_000_000,))].sum()
parallel()
if (child := os.fork()) == 0:
    torch.set_num_threads(2)
    parallel()
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.parametrize("given", but_the_first([{}, {"OMP_NUM_THREADS": "4"}]), ids=["unset", "set"])
def test_a_forked_rank_computes_in_parallel_though_its_launcher_computed(given: dict[str, str]) -> None:
    """libgomp's threads are not forked, and whoever inherits its pool waits for them forever (resnet reads its images in the launcher)."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "OMP_"))}
    command = [sys.executable, "-c", FORKED, str(VALUES / "quick.yaml")]
    env = {**clean, "PYTHONPATH": str(SOURCES), **given}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr
