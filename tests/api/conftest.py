"""One API server per test process, bare before and after every test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import Cluster
from server import Server

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of this folder, which `make check` leaves to `make test`."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.api)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The one API server of this test process."""
    one = Server(tmp_path_factory.mktemp("api") / "server")
    one.start()
    yield one
    one.stop()


@pytest.fixture
def cluster(server: Server, tmp_path: Path) -> Iterator[Cluster]:
    """A bare cluster; what a test leaves behind is a failure of that test, and does not reach the next one."""
    one = Cluster(server, tmp_path)
    before = one.objects()
    yield one
    server.fault({})
    left = one.objects() - before
    if left:
        server.stop()
        server.start()
    assert not left
