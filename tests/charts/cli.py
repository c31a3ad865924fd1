"""The package's command line, called in this process: one process for each of a hundred messages takes a minute."""

import contextlib
import io
import subprocess
import sys

from trainlab.cli import main


def trainlab(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run `trainlab` with text on standard input; the result is as from a process of its own."""
    out, err, stdin, code = io.StringIO(), io.StringIO(), sys.stdin, 0
    sys.stdin = io.TextIOWrapper(io.BytesIO(given.encode()), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(arguments)
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.stdin = stdin
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def check(*files: str) -> subprocess.CompletedProcess[str]:
    """Run `trainlab check` on values files; the last wins."""
    return trainlab("check", files[0], *(part for file in files[1:] for part in ("-f", file)))
