"""A pinned revision of a hub's model, whole and compared with the digests that the hub lists; used by fetch.py.

Also what the hub's client raises in one line, for data sets (data/hub/download.py).
"""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from trainlab.errors import UserError

KEY = "phase.model.source"
WAY_TO_HUB = "the way to the hub (a mirror: HF_ENDPOINT, in a release site.env; its certificates: site.caConfigMap)"
IGNORED = ["*.pt", "*.bin", "*.onnx", "onnx/*", "original/*", "*.gguf"]
CLIENTS_OWN = ".cache"  # below a folder that the client fills: which files are whole, and parts of others


def token() -> str | None:
    """Return the hub's token, None without one."""
    return os.environ.get("HF_TOKEN") or None


def download(source: str, folder: Path) -> str:
    """Fill `folder`, or what is missing in it, with the model of `source`; return the license of its card.

    Raises UserError with the remedy, OSError for a full volume.
    """
    name, _, revision = source.removeprefix("hf:").partition("@")
    for part in folder.glob(f"{CLIENTS_OWN}/**/*.incomplete"):  # the client never goes on with one of another process
        part.unlink()
    try:
        _download(name, revision, folder)
    except UserError as error:
        raise UserError(f"{KEY} is {source}: {error}") from None
    except Exception as error:  # of huggingface_hub, its HTTP library, JSON: it lets all of them through
        if no_space(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        raise UserError(f"{KEY} is {source}: {_why(name, error)}") from None
    shutil.rmtree(folder / CLIENTS_OWN, ignore_errors=True)  # it has dates, and would count in the model's digest
    return _license(folder / "README.md")


def _download(name: str, revision: str, folder: Path) -> None:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.utils import filter_repo_objects

    snapshot_download(name, revision=revision, local_dir=folder, token=token(), ignore_patterns=IGNORED)
    # The client compares sizes alone (2.4, file_download.http_get).
    found = HfApi().verify_repo_checksums(name, revision=revision, local_dir=folder, token=token())
    missing = filter_repo_objects(found.missing_paths, ignore_patterns=IGNORED)
    if wrong := sorted({*(one["path"] for one in found.mismatches), *missing}):
        for path in wrong:
            (folder / path).unlink(missing_ok=True)  # so that the next attempt fetches it
        raise UserError(
            f"{', '.join(wrong)}: not the content whose digest the hub lists; repeat the fetch, and if that does not help "
            f"check {WAY_TO_HUB}"
        )


def _why(name: str, error: Exception) -> str:
    """Return what is wrong with a fetch, and the remedy."""
    from huggingface_hub import constants
    from huggingface_hub.errors import DisabledRepoError, HfHubHTTPError, RevisionNotFoundError

    page = f"{constants.ENDPOINT}/{name}"
    if isinstance(error, RevisionNotFoundError):
        return f"{page} has no such revision; take the commit from its page (Files and versions, History)"
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    if status in (401, 403, 404) and not isinstance(error, DisabledRepoError):
        how = "with the token of HF_TOKEN" if token() else "without a token"
        account = " with the token's account" if token() else ""
        return (
            f"the hub does not give it {how} ({status}): accept the license of a gated model at {page}{account}, put a token "
            "that may read it into the Secret that site.hfTokenSecret names (without a cluster: HF_TOKEN), or correct the name"
        )
    return (
        f"cannot be fetched: {first_line(error)}; check {WAY_TO_HUB}, or use a pvc: source; the next attempt goes on with "
        "the files that are missing"
    )


def _license(card: Path) -> str:
    found = re.search(r"^license:\s*(\S+)", card.read_text(encoding="utf-8"), re.M) if card.exists() else None
    return found.group(1) if found else "not stated"


def no_space(error: BaseException) -> bool:
    """True if a full volume is behind an error."""
    return any(getattr(one, "errno", None) == errno.ENOSPC for one in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or one.__context__


def first_line(error: Exception) -> str:
    """Return the first informative line; the hub's client begins with `401 Client Error.` and the like."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[: 2 if lines[0].endswith("Client Error.") else 1]) if lines else type(error).__name__
