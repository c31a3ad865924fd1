"""A Helm repository: the charts of a folder as the archives of `helm package`, and the index that `helm repo add` reads."""

import gzip
import hashlib
import io
import tarfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

from trainlab.errors import UserError

SUFFIX, INDEX = ".tgz", "index.yaml"


def repository(folder: Path) -> dict[str, bytes]:
    """Return file name -> content: an archive of each chart in `folder`, and the index with their digests.

    The same charts give the same bytes, so that a restarted room serves what clients have cached. Raises UserError.
    """
    files, entries = dict[str, bytes](), dict[str, list[dict[str, Any]]]()
    try:
        for chart in sorted(path.parent for path in folder.glob("*/Chart.yaml")):
            meta: dict[str, Any] = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
            name = f"{meta['name']}-{meta['version']}{SUFFIX}"
            files[name] = archive(chart, meta["name"])
            digest = hashlib.sha256(files[name]).hexdigest()
            entries[meta["name"]] = [{**meta, "urls": [name], "digest": digest, "created": "1970-01-01T00:00:00Z"}]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise UserError(f"--charts {folder}: {error!r}; name a folder of Helm charts, such as charts") from None
    if not files:
        raise UserError(f"--charts {folder}: holds no */Chart.yaml; name a folder of Helm charts, such as charts")
    index = {"apiVersion": "v1", "entries": entries, "generated": "1970-01-01T00:00:00Z"}
    return {**files, INDEX: yaml.safe_dump(index, allow_unicode=True).encode()}


def archive(chart: Path, name: str) -> bytes:
    """Return a chart's files, below a folder of its name, without what .helmignore names by patterns of file names."""
    ignored = chart / ".helmignore"
    lines = ignored.read_text(encoding="utf-8").splitlines() if ignored.exists() else []
    patterns = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,  # type: ignore[arg-type]
    ):
        for path in sorted(each for each in chart.rglob("*") if each.is_file()):
            if any(fnmatch(path.name, pattern) for pattern in patterns):
                continue
            content = path.read_bytes()
            entry = tarfile.TarInfo(f"{name}/{path.relative_to(chart).as_posix()}")
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
