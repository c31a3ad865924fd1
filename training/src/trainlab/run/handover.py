"""What the pod's first container, `trainlab fetch`, tells its second, `trainlab run`: an error, in a file of their common volume.

The training operator sees the exit code of the second container only. It takes a pod whose first one failed for one that is
lost, and makes it again without end (training-operator 1.9.4, pkg/controller.v1/common/pod.go, exitCode). So the first one ends
well, and the second one with the error.
"""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainlab.errors import UserError

VARIABLE = "TRAINLAB_FETCH_ERROR"


@contextmanager
def failures_told() -> Iterator[None]:
    """Write what a block raises into the file that the environment names; without one it is raised."""
    path = os.environ.get(VARIABLE)
    try:
        yield
    except Exception as error:
        if not path:
            raise
        if not isinstance(error, UserError):
            traceback.print_exc()
        print(f"error: {error}", file=sys.stderr)
        Path(path).write_text(str(error) or type(error).__name__, encoding="utf-8")


def check() -> None:
    """Raise UserError with what the first container told."""
    path = Path(os.environ.get(VARIABLE) or os.devnull)
    if path.is_file():
        raise UserError(path.read_text(encoding="utf-8"))
