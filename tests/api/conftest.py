"""Two API servers for all tests of this folder, each bare before and after every test; one worker per server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from api_server.harness import Cluster
from api_server.server import Server
from api_server.training_api import Training

HERE = Path(__file__).resolve().parent
GATE = {
    "test_dry_run": {
        "test_everything_rendered_is_taken[today]",
        "test_sub_paths_a_third_volume_and_an_ingress_are_taken[today-trainjob-team]",
        "test_sub_paths_a_third_volume_and_an_ingress_are_taken[today-pytorchjob-]",
        "test_queues_are_taken[today]",
        "test_an_unknown_field_is_refused[today]",
    },
    "test_live": {"test_life_of_a_release[helm4]", "test_applied_twice_is_the_same[trainjob]"},
    "test_room": {"test_a_round_has_its_job_by_the_rooms_own_rights"},
    "test_served": {"test_a_served_model_is_replaced_only_by_a_promoted_one[helm]"},
}
"""One of each kind, for `make test`, by name or by name and case; of the files that are not here, WHOLE ones are. `make test-api`
has the rest."""
WHOLE = {"test_server"}


@pytest.hookimpl(tryfirst=True)  # loaded later, so it runs before tests/conftest.py, which groups what has no group yet
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, which `make check` leaves to `make test`, with the server that they share, and what is not
    of the gate with `tier`. Raises UsageError for a name of GATE that no test has.
    """
    unused = {(file, name) for file in {item.path.stem for item in items} for name in GATE.get(file, ())}
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.api)
            file, name = item.path.stem, getattr(item, "originalname", item.name)
            names = {name, item.name.partition("@")[0]} & GATE.get(file, set())
            unused -= {(file, used) for used in names}
            if file not in WHOLE and not names:
                item.add_marker(pytest.mark.tier)
            fixtures = getattr(item, "fixturenames", ())
            if "server" in fixtures:
                item.add_marker(pytest.mark.xdist_group("training API" if "training" in fixtures else "bare OpenShift"))
    if unused and not any("::" in argument for argument in config.args):
        raise pytest.UsageError(f"tests/api/conftest.py: GATE: no such test: {sorted(unused)}")


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Server:
    """A bare OpenShift; a Kubernetes for a file that uses `training`."""
    return cast("Server", request.getfixturevalue("training" if "training" in request.fixturenames else "openshift"))


@pytest.fixture(scope="session")
def openshift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A bare OpenShift."""
    yield from _started(Server(tmp_path_factory.mktemp("api") / "server", mortal=True))


@pytest.fixture(scope="session")
def training(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Kubernetes that serves training, serving and queue."""
    yield from _started(Training(tmp_path_factory.mktemp("training") / "server", mortal=True))


def _started(one: Server) -> Iterator[Server]:
    one.start()
    yield one
    one.stop()


@pytest.fixture
def cluster(server: Server, tmp_path: Path) -> Iterator[Cluster]:
    """Leftovers of a test fail that test and do not affect the next one."""
    one = Cluster(server, tmp_path)
    before = one.objects()
    yield one
    server.fault({})
    left = one.objects() - before
    if left:
        server.stop()
        server.start()
    assert not left
