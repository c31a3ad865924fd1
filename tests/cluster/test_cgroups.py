"""The processes of the cluster, from its cgroups, which come and go while they are read."""

import threading
from pathlib import Path

import pytest
from embedded_cluster.base import cgroups, identity


def test_groups_that_go_while_they_are_read_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of ending pods do."""
    top = tmp_path / identity.GROUP / "n2"
    stays = top / "init"
    stays.mkdir(parents=True)
    (stays / "cgroup.procs").write_text("4711\n")
    monkeypatch.setattr(cgroups, "hierarchies", lambda: [cgroups.Hierarchy(tmp_path, 2, "")])
    ended = threading.Event()

    def pods() -> None:
        while not ended.is_set():
            made = [top / f"pod{number}" / "container" for number in range(20)]
            for folder in made:
                folder.mkdir(parents=True)
            for folder in made:
                folder.rmdir()
                folder.parent.rmdir()

    thread = threading.Thread(target=pods)
    thread.start()
    try:
        assert all(cgroups.processes("n2") == {4711} for _ in range(400))
    finally:
        ended.set()
        thread.join()
