"""Small file helpers; called by image_store.py and pyenv.py."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def link(source: Path, target: Path) -> None:
    """Make `target` a hard link to `source`, or a copy across file systems; an existing `target` is replaced."""
    part = target.with_name(f".{target.name}.part")
    part.unlink(missing_ok=True)
    try:
        os.link(source, part)
    except OSError:
        shutil.copyfile(source, part)
    part.replace(target)
