"""A pinned revision of a hub's model, whole and compared with the digests that the hub lists; used by fetch.py.

Also what the hub's client raises in one line, for data sets (data/hub/download.py).
"""

import errno
import glob
import os
import re
import shutil
import socket
import ssl
import sys
import traceback
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from trainlab import files
from trainlab.errors import UserError
from trainlab.models import stored_weights

KEY = "phase.model.source"
WAY_TO_HUB = "the way to the hub (a mirror: HF_ENDPOINT, in a release site.env; its certificates: site.caConfigMap)"
CLIENTS = ("httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3", "aiohttp")  # of HTTP
XET_PATIENCE = {
    **{"HF_XET_CLIENT_CONNECT_TIMEOUT": "5s", "HF_XET_CLIENT_READ_TIMEOUT": "10s"},
    **{"HF_XET_CLIENT_RETRY_MAX_ATTEMPTS": "1", "HF_XET_CLIENT_RETRY_MAX_DURATION": "10s"},
}
"""Of hf_xet, which by itself gives up after four minutes."""
CLIENTS_OWN = ".cache"  # below a folder that the client fills: which files are whole, and parts of others


def token() -> str | None:
    """Return the hub's token, None without one."""
    return os.environ.get("HF_TOKEN") or None


def download(source: str, folder: Path) -> str:
    """Fill `folder`, or what is missing in it, with the model of `source`; return the license of its card.

    Raises UserError with the remedy, OSError for a full volume.
    """
    name, _, revision = source.removeprefix("hf:").partition("@")
    _drop_parts(folder)
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
    """Fetch what stored_weights.choose names, compare it with the hub's digests, and expand a GGUF file."""
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.hf_api import RepoFile

    def parts(index: str) -> list[str]:
        return stored_weights.read_parts(
            Path(hf_hub_download(name, index, revision=revision, local_dir=folder, token=token()))
        )

    api = HfApi()
    tree = api.list_repo_tree(name, recursive=True, revision=revision, token=token())
    chosen = stored_weights.choose({one.path: one.size for one in tree if isinstance(one, RepoFile)}, parts)
    for old in _left_over(folder, chosen.files):
        old.unlink()
    _refuse_too_large(folder, chosen.files)
    _fill(name, revision, folder, chosen.files)
    # The client compares sizes alone (2.4, file_download.http_get).
    found = api.verify_repo_checksums(name, revision=revision, local_dir=folder, token=token())
    wrong = {*(one["path"] for one in found.mismatches), *found.missing_paths} & {*chosen.files}
    if wrong:
        for path in wrong:
            (folder / path).unlink(missing_ok=True)  # so that the next attempt fetches it
        raise UserError(
            f"{', '.join(sorted(wrong))}: not the content whose digest the hub lists; repeat the fetch, and if that does not "
            f"help check {WAY_TO_HUB}"
        )
    if chosen.gguf:
        expand(folder, chosen.gguf)


def _fill(name: str, revision: str, folder: Path, chosen: Collection[str]) -> None:
    """Fetch files: by plain HTTP, or by Xet where HF_HUB_DISABLE_XET=0 asks for it, and by HTTP again if Xet's hosts give nothing."""
    from huggingface_hub import constants, snapshot_download

    def fetch() -> None:
        patterns = [*map(glob.escape, chosen)]
        snapshot_download(name, revision=revision, local_dir=folder, token=token(), allow_patterns=patterns)

    if constants.HF_HUB_DISABLE_XET:
        fetch()
        return
    for key, value in XET_PATIENCE.items():
        os.environ.setdefault(key, value)
    try:
        fetch()
    except RuntimeError as error:  # of hf_xet
        if no_space(error):
            raise
        print(f"trainlab: by plain HTTP, as Xet fails ({first_line(error)})", file=sys.stderr, flush=True)
        constants.HF_HUB_DISABLE_XET = True
        _drop_parts(folder)  # Xet does not write a file from its beginning to its end
        fetch()


def _drop_parts(folder: Path) -> None:
    for part in folder.glob(f"{CLIENTS_OWN}/**/*.incomplete"):  # the client never goes on with one of another process
        part.unlink()


def expand(folder: Path, name: str) -> None:
    """Write the model of a GGUF file next to it; raises UserError for one that transformers cannot read."""
    from trainlab.models.chat import expand_gguf  # imports torch: only the pod that fills the volume pays for it

    print(f"trainlab: expanding {name}", file=sys.stderr, flush=True)
    try:
        expand_gguf(folder, name)
    except Exception as error:  # a file of any origin can be wrong in as many ways as transformers has code
        if isinstance(error, UserError) or no_space(error):
            raise
        raise UserError(
            f"{name} cannot be expanded ({cause(error)}); use a model with safetensors, or another GGUF file"
        ) from None


def _left_over(folder: Path, chosen: Collection[str]) -> list[Path]:
    """Return the files of an earlier attempt that are not part of the model."""
    own = folder / CLIENTS_OWN
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and own not in path.parents and path.relative_to(folder).as_posix() not in chosen
    ]


def _refuse_too_large(folder: Path, chosen: Mapping[str, int]) -> None:
    """Say what is fetched; raise UserError if the volume has no room for what is not there yet."""
    have = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    needed = sum(chosen.values()) - have
    print(f"trainlab: {len(chosen)} files, {files.megabytes(sum(chosen.values()))}", file=sys.stderr, flush=True)
    if needed > shutil.disk_usage(folder).free:
        raise UserError(
            f"{files.megabytes(needed)} are to be fetched, and {folder.parent} has {files.free_text(folder)}; enlarge the volume"
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
    way = f"check {WAY_TO_HUB}, or " if of_network(error) else ""
    return f"cannot be fetched: {cause(error)}; {way}use a pvc: source; the next attempt goes on with the files that are missing"


def _license(card: Path) -> str:
    found = re.search(r"^license:\s*(\S+)", card.read_text(encoding="utf-8"), re.M) if card.exists() else None
    return found.group(1) if found else "not stated"


def no_space(error: BaseException) -> bool:
    """True if a full volume is behind an error."""
    return any(getattr(one, "errno", None) == errno.ENOSPC for one in _chain(error))


def of_network(error: BaseException) -> bool:
    """True if the way to the hub or the hub's answer is behind an error, not the content of a file."""
    from huggingface_hub.errors import HfHubHTTPError

    network = (ConnectionError, TimeoutError, socket.gaierror, ssl.SSLError, HfHubHTTPError)
    chain = list(_chain(error))
    if any(isinstance(one, network) or type(one).__module__.partition(".")[0] in CLIENTS for one in chain):
        return True
    return _not_a_hub(error)


def _not_a_hub(error: BaseException) -> bool:
    """True if the client could not read what answered it."""
    frames = traceback.walk_tb(error.__traceback__)
    own = any(frame.f_globals.get("__name__", "").startswith("huggingface_hub.") for frame, _ in frames)
    return own and isinstance(error, ValueError)


def cause(error: BaseException) -> str:
    """Return why something failed, in one line: what the hub said, else the innermost error that others were raised from."""
    from huggingface_hub.errors import HfHubHTTPError

    inner = error
    while not isinstance(inner, HfHubHTTPError) and inner.__cause__ and str(inner.__cause__).strip():
        inner = inner.__cause__
    text = first_line(inner)
    if _not_a_hub(error):
        return f"what answers there is no hub ({text})"
    return text if " " in text else f"{type(inner).__name__}: {text}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it came from, the innermost last."""
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or one.__context__


def first_line(error: BaseException) -> str:
    """Return the first informative line; the hub's client begins with `401 Client Error.` and the like."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[: 2 if lines[0].endswith("Client Error.") else 1]) if lines else type(error).__name__
