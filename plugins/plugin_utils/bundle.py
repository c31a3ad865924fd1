"""A tar.gz whose files are text, written anew as a whole, so that whoever interrupts its writer has the last complete one."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
import time
from pathlib import Path

from ansible.errors import AnsibleActionFail


def write(archive: Path, files: dict[str, str]) -> None:
    """Write the files, by their path in it, below a folder named like the archive; only its owner may read it.

    AnsibleActionFail where that is not possible.
    """
    try:
        _write(archive, files)
    except OSError as error:
        raise AnsibleActionFail(
            f"collect_dest: {archive.parent}: the bundle cannot be written there ({error.strerror}); name a folder that can be written"
        ) from error


def _write(archive: Path, files: dict[str, str]) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=archive.parent, prefix=f".{archive.name}.")  # mode 0600
    with os.fdopen(handle, "wb") as stream, tarfile.open(fileobj=stream, mode="w:gz") as made:
        for name, text in sorted(files.items()):
            content = text.encode("utf-8")
            info = tarfile.TarInfo(f"{archive.name.removesuffix('.tar.gz')}/{name}")
            info.size, info.mtime = len(content), int(time.time())
            made.addfile(info, io.BytesIO(content))
    Path(part).replace(archive)
