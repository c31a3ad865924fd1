"""Does a served classifier say what its run recorded? Used by `trainlab verify-run` (helm test); no torch."""

import base64
import io
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

from trainlab import files
from trainlab.serve.client import NotServed, Unreachable, request_options

RECORDED = {"base": "before.json", "tuned": "after.json"}


def ask(run_dir: Path, url: str, model: str, timeout: float) -> str:
    """Send the images of demo_outputs/ to `model` at `url`; return a sentence when all labels match the recorded ones.

    Raises Unreachable while nothing answers (or with 404 of another server, 429, 5xx), NotServed for a wrong answer.
    """
    shown = files.read_json(run_dir / "demo_outputs" / RECORDED[model])
    pictures = files.read_json(run_dir / "demo_outputs" / "images.json")
    batch = np.stack([pixels(pictures[str(entry["id"])]) for entry in shown])
    address = f"{url.rstrip('/')}/v2/models/{model}/infer"
    tensor = {"name": "images", "shape": list(batch.shape), "datatype": "UINT8", "data": batch.ravel().tolist()}
    body = {"inputs": [tensor], "outputs": [{"name": "label"}]}
    try:
        reply = httpx.post(address, json=body, timeout=timeout, **request_options(address))
    except httpx.HTTPError as error:
        raise Unreachable(f"{url}: cannot be reached ({error})") from None
    try:
        value: Any = reply.json()
    except ValueError:
        value = None
    if reply.status_code != 200:
        ours = isinstance(value, dict) and "error" in value
        text = f"{address}: HTTP {reply.status_code}: {value['error'] if ours else reply.text[:200].strip()}"
        again = reply.status_code in (429, 500, 502, 503, 504) or (reply.status_code == 404 and not ours)
        raise (Unreachable if again else NotServed)(text)
    try:
        said = [str(label) for label in value["outputs"][0]["data"]]
    except (KeyError, IndexError, TypeError):
        raise NotServed(f"{address}: the answer is not an inference response") from None
    recorded = [entry["prediction"] for entry in shown]
    if said != recorded:
        differ = sum(a != b for a, b in zip(said, recorded, strict=False))
        raise NotServed(f"{address}: {differ} of {len(recorded)} labels differ from demo_outputs/{RECORDED[model]}")
    right = sum(entry["prediction"] == entry["label"] for entry in shown)
    return f"{url} labels {len(said)} images as the run recorded, {right} of them correctly"


def pixels(text: str) -> Any:
    """Return a PNG file in base64 as a uint8 array (C, H, W)."""
    array = np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
