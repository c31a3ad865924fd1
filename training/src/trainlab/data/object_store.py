"""Objects of an S3 bucket as files in the folder of data sets; used by table_rows.py and corpus.py. No torch.

The bucket is that of an OpenShift AI connection, whose Secret site.envSecrets names: its keys are the variables below. Read by
pyarrow, which datasets needs anyway.
"""

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.data.hub_download import KEY, place
from trainlab.errors import UserError
from trainlab.models.fetch import RECORD, no_space, once
from trainlab.progress import note

NEEDED = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_S3_ENDPOINT", "AWS_S3_BUCKET")
REGION = "AWS_DEFAULT_REGION"
CONNECT_SECONDS, SILENT_SECONDS = 10.0, 30.0
"""How long to wait for a connection, and for the next byte of an answer."""
ATTEMPTS = 4
OBJECTS = "objects"
SECRET = "the connection's Secret, which site.envSecrets names (without a cluster: the environment)"


def folder(source: str, root: Path) -> Path:
    """Return where the objects of `s3:PATH` are kept below the folder of data sets."""
    return place(root, source) / OBJECTS


def fetch(source: str, root: Path, suffixes: Collection[str]) -> Path:
    """Make sure that an object, or those directly below a prefix that have one of the suffixes, are below `root`; return their folder.

    What is whole stays, also after an interruption. Raises UserError with the remedy.
    """
    target = folder(source, root).parent
    bucket = {"endpoint": os.environ.get("AWS_S3_ENDPOINT"), "bucket": os.environ.get("AWS_S3_BUCKET")}

    def is_filled() -> bool:
        if not (target / RECORD).exists():
            return False
        record = files.read_json(target / RECORD)
        return not bucket["bucket"] or all(record[key] == value for key, value in bucket.items())

    def fill(work: Path) -> dict[str, Any]:
        return {"source": source, **bucket, "files": _copy(source, work / OBJECTS, suffixes)}

    return once(target, is_filled, fill, resume=True) / OBJECTS


def _copy(source: str, work: Path, suffixes: Collection[str]) -> dict[str, str]:
    """Copy into `work`; return name -> SHA-256."""
    from pyarrow import fs

    if missing := [name for name in NEEDED if not os.environ.get(name)]:
        raise UserError(f"{KEY} is {source}: {', '.join(missing)} missing; set it in {SECRET}")
    bucket, path = os.environ["AWS_S3_BUCKET"], source.removeprefix("s3:")
    with _explained(source, f"{bucket} at {os.environ['AWS_S3_ENDPOINT']}"):
        store = _store()
        info = store.get_file_info(f"{bucket}/{path}")
        objects = [info] if info.type == fs.FileType.File else []
        if info.type == fs.FileType.Directory:
            objects = [each for each in store.get_file_info(fs.FileSelector(f"{bucket}/{path}")) if each.is_file]
        chosen = [each for each in objects if Path(each.base_name).suffix.lower() in suffixes]
        if not chosen:
            raise UserError(
                f"{KEY} is {source}: bucket {bucket} has no object there that ends in {', '.join(suffixes)}; correct the path"
            )
        note(f"{source}: {len(chosen)} objects, {files.megabytes(sum(each.size for each in chosen))}")
        work.mkdir(exist_ok=True)
        for old in work.iterdir():  # of an earlier attempt
            if old.name not in {each.base_name for each in chosen}:
                old.unlink()
        for each in chosen:
            path_here = work / each.base_name
            if path_here.exists() and path_here.stat().st_size == each.size:
                continue
            with store.open_input_stream(each.path) as stream, files.atomic_write(path_here) as out:
                while chunk := stream.read(files.CHUNK):
                    out.write(chunk)
    return {each.base_name: files.sha256(work / each.base_name) for each in chosen}


def _store() -> Any:
    from pyarrow import fs

    scheme, __, host = os.environ["AWS_S3_ENDPOINT"].rpartition("://")
    authority = os.environ.get("SSL_CERT_FILE")  # site.caConfigMap
    return fs.S3FileSystem(
        access_key=os.environ["AWS_ACCESS_KEY_ID"],
        secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        endpoint_override=host.rstrip("/"),
        scheme=scheme or "https",
        region=os.environ.get(REGION) or "us-east-1",
        connect_timeout=CONNECT_SECONDS,
        request_timeout=SILENT_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        **({"tls_ca_file_path": authority} if authority else {}),
    )


@contextmanager
def _explained(source: str, where: str) -> Iterator[None]:
    """Turn what pyarrow raises into one sentence."""
    try:
        yield
    except OSError as error:
        if no_space(error):
            raise
        text = " ".join(str(error).split())
        if "ACCESS_DENIED" in text or "403" in text or "INVALID_ACCESS_KEY" in text or "SIGNATURE" in text:
            why = f"bucket {where} refuses these keys (403); correct {SECRET}, or give them the right to list and read"
        elif "NO_SUCH_BUCKET" in text or "404" in text:
            why = f"there is no bucket {where}; correct AWS_S3_BUCKET in {SECRET}"
        else:
            why = f"bucket {where} does not answer as it should ({text[-200:]}); check address, certificates and network; what is whole is kept"
        raise UserError(f"{KEY} is {source}: {why}") from None
