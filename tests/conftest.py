"""Which tests stay on one worker of pytest-xdist, and which start first; `--dist loadgroup` reads the marks."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Generator
from pathlib import Path

import junit
import pytest

# The default cluster's, whatever the calling shell has set: read by embedded_cluster.base.identity on import.
for name in [name for name in os.environ if name == "TRAINLAB_CLUSTER" or name.endswith("_SUBNET")]:
    del os.environ[name]
ROOT = Path(__file__).resolve().parents[1]
TOGETHER = {"tests/charts": "renderings", "tests/contract/test_values.py": "renderings"}
"""Files that use the same renderings of the chart; every other file is a group of its own, for its fixtures."""
OWN_RENDERINGS = tuple(f"tests/charts/test_{name}.py" for name in ("cluster", "package", "refused"))
"""Long ones among them whose renderings are their own."""
UNTIL = float(os.environ.get("UNTIL") or 0)
"""The second of the epoch after which no test begins; 0: no limit (`make test-api`)."""
FIRST = (
    "tests/contract/test_contributing.py",
    "tests/api",
    "tests/fresh",
    "tests/charts",
    "tests/plugins",
    "training/tests",
)
"""The longest groups start first, so that the tail is short."""


def pytest_configure(config: pytest.Config) -> None:
    """Record what JUnit files have besides, and let what the tests start handle signals as in a terminal, even if nohup or a script's `&` started pytest.

    Child processes inherit an ignored signal, but not a handler. TERM ends the tests as Ctrl-C does: what they started is taken down.
    """
    config.pluginmanager.register(junit.Recorder())  # a hook of this file would not see training/tests
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before xdist, which also reads the groups in this hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put each test into a group, and the groups of the folders in FIRST to the front."""
    for item in items:
        if not any(item.iter_markers("xdist_group")):
            item.add_marker(pytest.mark.xdist_group(_group(_file(item))))
    items.sort(
        key=lambda item: next((n for n, folder in enumerate(FIRST) if _file(item).startswith(folder)), len(FIRST))
    )
    if UNTIL and items:
        files = list(dict.fromkeys(map(_file, items)))
        first = int(UNTIL // 3600) % len(files)
        items.sort(key=lambda item: (files.index(_file(item)) - first) % len(files))


def pytest_runtest_setup() -> None:
    """Begin no test that the time of a run is over for."""
    if UNTIL and time.time() > UNTIL:
        pytest.skip("left for another run: UNTIL is over")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what is imported out of the collections of garbage: transformers' trainer asks for three a run, each 0.3 s with torch's objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _file(item: pytest.Item) -> str:
    return item.path.relative_to(ROOT).as_posix()


def _group(file: str) -> str:
    return next(
        (group for start, group in TOGETHER.items() if file.startswith(start) and file not in OWN_RENDERINGS), file
    )
