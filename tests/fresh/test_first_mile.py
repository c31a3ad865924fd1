"""`make demo` and `make test` on a machine that has only what the README's line of requirements installs.

The quick ones follow a command to its first step that takes minutes and end it there, as Ctrl-C or a timeout would.
"""

from __future__ import annotations

import pytest
from embedded_cluster.builds import apt
from slow import but_the_first

from fresh import roots
from fresh.fresh_machine import AMPLE, HOME, Machine, booted
from fresh.watching import HANGS, Ended

pytestmark = pytest.mark.fresh
BUILD, GO = r"==> build \d+ of \d+ programs", r"==> Go 1\."
LINT = r"ruff check"
LARGE = r"==> (wheels of|Python environment)"
"""The steps that download or unpack gigabytes."""
WHEELS = {"bookworm": ("wheels-*",)}
"""For the image's Python; another Python's are linked from these, which an overlay does not allow."""


def ends_well(ended: Ended) -> None:
    """What holds for each run that was ended at its line: it ends soon, with that status, and nothing keeps running."""
    assert ended.stopped, ended.shown()
    assert "Traceback" not in ended.text, ended.shown()
    assert ended.code not in (0, 1), ended.shown()
    assert not ended.left, ended.shown()


@pytest.mark.parametrize(("suite", "tmp"), but_the_first([("bookworm", "1m"), ("trixie", "4g")]))
def test_demo_builds(suite: str, tmp: str) -> None:
    """`make demo` installs what is missing, finds or downloads Go and builds, and needs nothing of /tmp."""
    with booted(Machine(suite, tmp=tmp, caches=WHEELS.get(suite, ()), setup=AMPLE)) as fresh:
        ended = fresh.run("make demo", until=GO, seconds=HANGS)
    ends_well(ended)
    for line in ("==> Debian packages: ", "==> Can this machine host the cluster?", "==> Go 1."):
        assert line in ended.text, ended.shown()


@pytest.mark.rest
@pytest.mark.parametrize("suite", roots.SUITES.values())
def test_tests_begin(suite: str) -> None:
    """`make test` installs what is missing and makes the Python environment; test_tests_lint follows it further."""
    with booted(Machine(suite)) as fresh:
        ended = fresh.run("make test", until=LARGE, seconds=HANGS)
    ends_well(ended)
    assert "==> Debian packages: " in ended.text, ended.shown()


@pytest.mark.tier
@pytest.mark.parametrize("suite", roots.SUITES.values())
def test_tests_lint(suite: str) -> None:
    """`make test` reaches its first lint line with everything that lint needs."""
    with booted(Machine(suite, caches=WHEELS.get(suite, ()))) as fresh:
        ended = fresh.run("make test", until=LINT, seconds=HANGS)
    ends_well(ended)


def test_plain_user_is_told_what_root_has_to_install() -> None:
    """Without root nothing is installed: one sentence names the command, with sudo."""
    with booted(Machine(user=roots.USER)) as fresh:
        ended = fresh.run("make demo", seconds=HANGS)
    assert ended.code == 2, ended.shown()
    assert "this machine cannot host the cluster" in ended.text, ended.shown()
    assert "the cluster needs root, and this is uid 1000" in ended.text, ended.shown()
    assert "sudo apt-get install python3-venv" in ended.err, ended.shown()
    assert "Traceback" not in ended.text, ended.shown()


def test_plain_user_gets_the_demo_without_a_cluster() -> None:
    """With python3-venv a plain user's `make demo` says why there is no cluster and continues without."""
    with booted(Machine(user=roots.USER, more=apt.PACKAGES, caches=WHEELS["bookworm"])) as fresh:
        ended = fresh.run("make demo", until=LARGE, seconds=HANGS)
    ends_well(ended)
    assert "the cluster needs root, and this is uid 1000" in ended.text, ended.shown()
    assert "Going on WITHOUT Kubernetes" in ended.text, ended.shown()


@pytest.mark.tier
@pytest.mark.parametrize("suite", roots.SUITES.values())
def test_plain_user_trains(suite: str) -> None:
    """The same to its end: trained, gated, and the server answers; then `make demo-down` leaves nothing running."""
    with booted(Machine(suite, user=roots.USER, more=apt.PACKAGES, caches=WHEELS.get(suite, ()))) as fresh:
        ended = fresh.run("make demo && make demo-down", seconds=2400)
    assert ended.code == 0, ended.shown()
    for line in (
        "==> base model",
        "==> train, score, gate, report",
        "==> server on 127.0.0.1:8080",
        "No cluster was used",
    ):
        assert line in ended.text, ended.shown()
    assert not ended.left, ended.shown()


def test_programs_for_a_plain_user() -> None:
    """`make binaries`, which `make check` and `make test` need, does not require root."""
    with booted(Machine(user=roots.USER, more=apt.PACKAGES)) as fresh:
        ended = fresh.run("make binaries", until=BUILD, seconds=HANGS)
    ends_well(ended)


@pytest.mark.rest
def test_again_after_the_end() -> None:
    """A second `make demo` after one that was ended in the middle continues, and waits for no other command.

    After `make demo-down CACHE=1` nothing is left below TRAINLAB_HOME, and no link in the checkout.
    """
    with booted(Machine(more=apt.PACKAGES, setup=AMPLE)) as fresh:
        ends_well(fresh.run("make demo", until=GO, seconds=HANGS))
        again = fresh.run("make demo", until=BUILD, seconds=HANGS)
        down = fresh.run(f"make demo-down CACHE=1 && ls -A {HOME} && git status --short --ignored", seconds=HANGS)
    ends_well(again)
    assert "another make demo" not in again.text, again.shown()  # its own parts may wait for each other
    assert down.code == 0, down.shown()
    kept = [line for line in down.text.splitlines() if not line.startswith((" ", "=", "changed=", "!! ", "?? "))]
    assert not kept, down.shown()
    assert "!! .venv" not in down.text, down.shown()
