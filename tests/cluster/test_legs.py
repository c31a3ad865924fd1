"""The versions of the operators are those of the leg that TRAINLAB_LEG chooses."""

import pytest
from embedded_cluster.base import paths
from embedded_cluster.base.say import UserError
from embedded_cluster.builds import modules
from embedded_cluster.nodes import operators, render

PINNED = sorted(file.parent.name for file in (paths.COMPONENT_MODULES / modules.OLDER).glob("*/go.mod"))


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> None:
    """The older leg, in this process."""
    monkeypatch.setenv(modules.LEG, modules.OLDER)


def test_each_program_of_the_older_leg_is_older_than_today() -> None:
    """And is a program of the cluster."""
    assert PINNED == ["jobset", "kserve", "kueue", "trainer"]
    for name in PINNED:
        (path, today), (same, before) = modules.module(name), modules.module(f"{modules.OLDER}/{name}")
        assert path == same and [int(part) for part in before[1:].split(".")] < [
            int(part) for part in today[1:].split(".")
        ]


def test_the_older_leg_has_its_own_modules_and_shares_the_others(older: None) -> None:
    for name in modules.COMPONENTS:
        mine = paths.COMPONENT_MODULES / (f"{modules.OLDER}/{name}" if name in PINNED else name)
        assert modules.folder(name) == mine


def test_the_older_leg_changes_the_manifests_that_differ_there(older: None) -> None:
    """Over the others, file by file."""
    changed = {name for name, one in operators.OPERATORS.items() if len(render._overlays(one)) == 2}
    assert changed == {"kserve", "trainer"}
    for name in changed:
        ours, theirs = render._overlays(operators.OPERATORS[name])
        assert [file for file in theirs.rglob("*.yaml") if not (ours / file.relative_to(theirs)).is_file()] == []


def test_a_leg_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(modules.LEG, "newest")
    with pytest.raises(UserError, match="TRAINLAB_LEG=newest: give today or older, or unset it"):
        modules.folder("kueue")
