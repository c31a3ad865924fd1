"""side_by_side ends, wherever in it a signal arrives."""

import os
import signal
import subprocess
import sys
from pathlib import Path

CLUSTER = Path(__file__).resolve().parents[2] / "cluster"
INTERRUPTED = """
import linecache, sys, time
from embedded_cluster.base import children

WATCHED = ("children.py", "_base.py", "thread.py", "threading.py")

def run(number):
    "True if a signal arrived before the line of this number."
    lines = 0
    def trace(frame, event, value):
        nonlocal lines
        if not frame.f_code.co_filename.endswith(WATCHED):
            return None
        # Python looks for signals after calls, not where a `with` releases its lock, which is an event of its line, too.
        if event == "line" and not linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
            lines += 1
            if lines == number:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace
    sys.settrace(trace)
    try:
        assert children.side_by_side(lambda item: time.sleep(0.01) or item, range(3), 2) == [0, 1, 2]
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False

number = 1
while run(number):
    number += 1
print(number)
"""
SECONDS = 25.0
"""It takes three; a lock that stays taken makes it wait for ever."""


def test_a_signal_before_any_line_ends_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        env={"PYTHONPATH": str(CLUSTER)},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0 and int(done.stdout) > 15, done.stdout + done.stderr


KEEPS = """
import subprocess
from embedded_cluster.base import children
kept, other = (subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL) for _ in range(2))
children.keep(kept.pid)
children.end_all()
print(other.wait(), kept.poll(), kept.pid)
"""


def test_what_is_to_outlive_the_command_is_not_ended() -> None:
    """The server of `make room`: Ctrl-C ends the room, the next one finds it answering."""
    done = subprocess.run(
        [sys.executable, "-c", KEEPS],
        env={**os.environ, "PYTHONPATH": str(CLUSTER)},
        capture_output=True,
        text=True,
        check=True,
    )
    ended, kept, pid = done.stdout.split()
    os.kill(int(pid), signal.SIGKILL)
    assert (ended, kept) == ("-9", "None")
