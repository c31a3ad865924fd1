"""Which tests stay with one worker of pytest-xdist, and which of them begin; `--dist loadgroup` reads the marks."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

# The usual cluster's, whatever the shell that runs the tests has: read by embedded_cluster.identity when it is imported.
for name in [name for name in os.environ if name == "TRAINLAB_CLUSTER" or name.endswith("_SUBNET")]:
    del os.environ[name]
ROOT = Path(__file__).resolve().parents[1]
TOGETHER = {"tests/charts": "renderings", "tests/contract/test_values.py": "renderings"}
"""Files that ask for the same renderings of the chart; every other file is a group of its own, for its fixtures."""
FIRST = ("tests/api", "tests/fresh", "tests/charts", "tests/plugins", "training/tests")
"""The longest groups begin, so that what is left at the end is short."""


def pytest_configure() -> None:
    """Let what the tests start take signals as from a terminal, also where nohup or `&` of a script started pytest.

    A signal that is ignored is so in every program that is started; one with a handler is not.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before xdist, which reads the groups in this hook, too
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put each test into a group, and the groups of the folders in FIRST to the front."""
    for item in items:
        if not any(item.iter_markers("xdist_group")):
            item.add_marker(pytest.mark.xdist_group(_group(_file(item))))
    items.sort(
        key=lambda item: next((n for n, folder in enumerate(FIRST) if _file(item).startswith(folder)), len(FIRST))
    )


def _file(item: pytest.Item) -> str:
    return item.path.relative_to(ROOT).as_posix()


def _group(file: str) -> str:
    return next((group for start, group in TOGETHER.items() if file.startswith(start)), file)
