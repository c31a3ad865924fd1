"""How many times as fast is `trainlab prepare` on eight processors as on one: measured on one and two, computed for eight?

PYTHONPATH=training/src python bench/prepare_factor.py [--megabytes 150] [--processors 2] [--json FILE]    (needs the packages of
the trainer image) Texts of some 4,000 characters from the Python files of this environment, as .jsonl files, with a byte-level BPE trained
here on some of them. The rules that drop source code are off, so that as much is kept as of prose. `trainlab prepare` runs once on one processor, where all is done in one process, and once on two, where the first
process reads and writes while others clean, sign and tokenize. All files that the two sides write must be equal. CPU seconds are
counted, of the first process and of the others by themselves, so that other programs on the machine do not count.

The computed factor is Amdahl's: what the first process does beside others counts as a part that nothing else runs beside. It reads and
writes while the others compute, so the factor is a lower bound as long as memory and volume keep up. For a long text the start is left
out. Exits with 1 when that of eight processors is below NEEDED, or a file differs.
"""

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import outcome
from tokenization import make_tokenizer
from trainlab import files
from trainlab.data.prepare import pipeline
from trainlab.data.prepare.options import Options
from trainlab.progress import Progress
from trainlab.run.manifest import cpu_model

PROCESSORS, NEEDED = 8, 6.0
LENGTH, FOR_TOKENIZER = 3500, 2000  # characters of a text; texts
OF_PROSE = ("letters", "word_length", "repeated_lines")  # rules
START = "tokenizer, digests of the sources"
TICKS = os.sysconf("SC_CLK_TCK")


def texts(limit: int) -> Iterator[str]:
    """Yield paragraphs of the environment's Python files, joined to LENGTH characters or more, until they have `limit` bytes."""
    size, seen = 0, set[bytes]()
    for folder in (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")):
        for path in sorted(Path(folder).rglob("*.py")):
            content, part = path.read_bytes(), ""
            if (digest := sha256(content).digest()) in seen:
                continue
            seen.add(digest)
            for paragraph in content.decode("utf-8", "replace").split("\n\n"):
                part += paragraph[:100_000] + "\n\n"
                if len(part) >= LENGTH:
                    yield part
                    size += len(part.encode())
                    part = ""
                if size >= limit:
                    return


def write_corpus(folder: Path, limit: int) -> list[str]:
    """Write the texts in four .jsonl files; return those that a tokenizer is trained on."""
    some: list[str] = []
    streams = [(folder / f"part-{number}.jsonl").open("w", encoding="utf-8") for number in range(4)]
    for count, text in enumerate(texts(limit)):
        streams[count % 4].write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
        some += [text] if len(some) < FOR_TOKENIZER and count % 10 == 0 else []
    for stream in streams:
        stream.close()
    return some


def others() -> list[str]:
    """Return the processes that this one has started and that still run."""
    tasks = Path("/proc/self/task").iterdir()
    return [child for task in tasks for child in (task / "children").read_text("ascii").split()]


def of_others() -> float:
    """Return their CPU seconds."""
    ticks = 0
    for child in others():
        fields = Path(f"/proc/{child}/stat").read_text("ascii").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])  # proc(5): utime, stime
    return ticks / TICKS


class Clock(Progress):
    """Notes for each step the seconds of this process, of the others, and of the wall."""

    def __init__(self) -> None:
        super().__init__(speaks=False)
        self.steps: dict[str, dict[str, float]] = {}
        self.peak = 0
        """MiB of the largest of the other processes, by the end of a step."""

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Measure a step."""
        began = _now()
        yield
        self.peak = max([self.peak, *map(peak_mib, others())])
        self.steps[text] = {key: round(value - began[key], 2) for key, value in _now().items()}


def peak_mib(process: str) -> int:
    """Return the peak of resident memory of a process in MiB."""
    status = Path(f"/proc/{process}/status").read_text("ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def _now() -> dict[str, float]:
    return {"first": time.process_time(), "others": of_others(), "wall": time.perf_counter()}


def side(source: Path, out: Path, tokenizer: Path, processors: int, smoke: bool) -> dict[str, Any]:
    """Prepare on so many processors, in this process, which keeps that affinity; return what each step took."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:processors])
    vars(pipeline)["WORTH"] = 0 if smoke else pipeline.WORTH
    clock, began = Clock(), _now()
    options = Options(tokenizer, block_length=64 if smoke else 2048, without=OF_PROSE)
    report = pipeline.prepare([str(source)], out, options, clock)
    total = {key: value - began[key] for key, value in _now().items()}
    before = {
        key: round(total[key] - sum(step[key] for step in clock.steps.values()), 2) if key != "others" else 0.0
        for key in total
    }
    return {
        "steps": {START: before, **clock.steps},
        "documents": report["documents"],
        "characters": report["characters"],
        "peak_mib": {"first": peak_mib("self"), "largest of the others": clock.peak},
        "tokens": report["tokens"]["made"],
        "load": round(os.getloadavg()[0], 1),
    }


def factor(single: dict[str, Any], several: dict[str, Any], start: bool) -> dict[str, float]:
    """Return the CPU seconds of one process, those of the first of several, and how many times as fast PROCESSORS are by Amdahl's law.

    Without `start`, which takes a second or two however long the text is, as for a long text.
    """
    total, serial = (
        sum(step["first"] for name, step in side["steps"].items() if start or name != START)
        for side in (single, several)
    )
    wall = serial + max(0.0, total - serial) / PROCESSORS
    return {"cpu_seconds": round(total, 1), "serial": round(serial, 1), "factor": round(total / wall, 2)}


def equal(left: Path, right: Path) -> bool:
    """Tell whether two prepared folders hold the same files, lock and folder aside."""
    sums = [
        {path.name: files.sha256(path) for path in folder.glob("*.*") if path.is_file()} for folder in (left, right)
    ]
    return sums[0] == sums[1]


def main() -> int:
    """Measure both sides, compare, print; return the exit code."""
    parser = outcome.parser(__doc__)
    parser.add_argument("--megabytes", type=int, default=150, help="of text (default %(default)s)")
    parser.add_argument("--processors", type=int, default=2, help="of the second side (default %(default)s)")
    args = parser.parse_args()
    if args.smoke:
        args.megabytes = 1
    sides: dict[int, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as name:
        work, source = Path(name), Path(name) / "corpus"
        source.mkdir()
        make_tokenizer(work / "tokenizer", write_corpus(source, args.megabytes * 10**6))
        for processors in (1, args.processors):
            call = (source, work / f"out-{processors}", work / "tokenizer", processors, args.smoke)
            code = f"import json; from pathlib import *; import prepare_factor; print(json.dumps(prepare_factor.side(*{call})))"
            done = subprocess.run(
                [sys.executable, "-c", code],
                capture_output=True,
                text=True,
                env=os.environ | {"PYTHONPATH": ":".join(sys.path)},
            )
            if done.returncode:
                sys.exit(done.stderr)
            sides[processors] = json.loads(done.stdout)
        same = equal(work / "out-1", work / f"out-{args.processors}")
        size = sum(path.stat().st_size for path in source.iterdir())
    ends = sides[1], sides[args.processors]
    computed = {"this text": factor(*ends, True), "a long text": factor(*ends, False)}
    result = {
        "megabytes": round(size / 1e6, 1),
        "on": sides,
        f"computed_for_{PROCESSORS}": computed,
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
    }
    long = computed["a long text"]["factor"]
    return outcome.end(
        args, result, equal=same, at_least={f"times as fast on {PROCESSORS}, a long text": (long, NEEDED)}
    )


if __name__ == "__main__":
    sys.exit(main())
