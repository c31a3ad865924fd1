"""How often does a finished 2-rank gloo job exit with 0? Measures `dist.finish`, or plain interpreter teardown instead.

python bench/clean_exit.py [--runs 100] [--plain] [--json FILE]    (needs the packages of the trainer image)
Prints `100 of 100 exited with 0` and the same as JSON; exits with 1 when a run with dist.finish did not.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import outcome
from trainlab.run.launch import ONE_MACHINE

SOURCES = Path(__file__).resolve().parents[1] / "training" / "src"
RANKS, STEPS, LIMIT = 2, 20, 300  # limit: seconds for one run


def rank(plain: bool) -> None:
    """Train one layer with DDP for some steps and exit as a run does."""
    import torch
    import torch.distributed as td
    from trainlab.engine import dist

    dist.start(timeout_minutes=5)
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    if plain:
        td.destroy_process_group()
    else:
        dist.finish(0)


def once(plain: bool) -> tuple[int, str]:
    """Start one job with torchrun; return its exit code and the end of its output."""
    command = [sys.executable, "-m", "torch.distributed.run", *ONE_MACHINE, f"--nproc-per-node={RANKS}", __file__]
    own = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    env = {**os.environ, "PYTHONPATH": str(SOURCES), **own}
    done = subprocess.run(
        [*command, "--rank", *(["--plain"] if plain else [])],
        env=env,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    return done.returncode, (done.stdout + done.stderr)[-2000:]


def main() -> int:
    """Run the jobs one after another; return 0 if all exited with 0."""
    parser = outcome.parser(__doc__)
    parser.add_argument("--runs", type=int, default=100, metavar="N")
    parser.add_argument("--plain", action="store_true", help="exit with destroy_process_group and interpreter teardown")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.smoke:
        args.runs = 1
    if args.rank:
        rank(args.plain)
        return 0
    began, codes, last = time.monotonic(), [], ""
    for number in range(1, args.runs + 1):
        code, output = once(args.plain)
        codes.append(code)
        last = output if code else last
        print(f"run {number} of {args.runs}: {code}", file=sys.stderr, flush=True)
    clean = codes.count(0)
    result = {
        "runs": args.runs,
        "clean": clean,
        "ranks": RANKS,
        "exit": "teardown" if args.plain else "dist.finish",
        "seconds": round(time.monotonic() - began, 1),
        "last_failure": last,
    }
    print(f"{clean} of {args.runs} exited with 0")
    share = {} if args.plain else {"share of clean exits": (clean / args.runs, 1.0)}
    return outcome.end(args, result, equal=args.plain or clean == args.runs, at_least=share)


if __name__ == "__main__":
    sys.exit(main())
