"""Helper programs of the host end with the process that started them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from embedded_cluster.base import programs


def test_with_us_but_not_with_another_parent(tmp_path: Path) -> None:
    """As a parent that was killed before setpriv ran: nobody would end the program any more."""
    there = tmp_path / "there"
    subprocess.run(["sh", "-c", '"$@"; true', "sh", *programs.with_us(), "touch", str(there)], check=True)
    assert not there.exists()
    programs.run(*programs.with_us(), "touch", str(there))
    assert there.exists()
