"""The one error that users see as a sentence; any other exception is a bug and keeps its traceback."""

LOST_PEER = 200
"""Exit code of a rank, and of its pod, whose peer is gone: no error of its own, and not a code of a signal."""

STOPPED = 143
"""Exit code of a rank, and of its pod, that kept a checkpoint at SIGTERM, its own or another pod's: 128 and the signal."""


class UserError(Exception):
    """Wrong input or environment: the message names file, key, value and remedy; the CLI prints it and exits 2."""
