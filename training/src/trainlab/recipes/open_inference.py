"""The Open Inference Protocol V2, without torch: the shapes of tensors, and a client that compares a server with its run's record.

Source: kserve/open-inference-protocol, specification/protocol/inference_rest.md. Tensor data may be flat or nested, in
row-major order. Versions of models and the binary extension are not offered.
"""

import base64
import io
from pathlib import Path
from typing import Annotated, Any

import httpx
import numpy as np
from PIL import Image
from pydantic import BaseModel, Field

from trainlab import files
from trainlab.serve.client import NotServed, Unreachable, request_options

INPUT, PROBABILITIES, LABEL = "images", "probabilities", "label"
RECORDED = {"base": "before.json", "tuned": "after.json"}
MAX_IMAGES = 256  # images of one request: as JSON some 3 MB with three channels of 32 x 32


class Refused(Exception):
    """An answer with an HTTP error status and the protocol's error body."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": message}


class InputTensor(BaseModel):
    """One tensor of a request."""

    name: str
    shape: list[Annotated[int, Field(ge=0)]]
    datatype: str
    data: list[Any]


class OutputName(BaseModel):
    """One tensor that the client requests."""

    name: str


class InferRequest(BaseModel):
    """Body of POST /v2/models/NAME/infer."""

    id: str | None = None
    inputs: list[InputTensor]
    outputs: list[OutputName] | None = None

    def pixels(self, channels: int, size: int) -> Any:
        """Return the images as a uint8 array (N, channels, size, size); raises Refused if they are not that."""
        wanted = f"one input {INPUT!r}, UINT8, shape [N, {channels}, {size}, {size}]"
        if [tensor.name for tensor in self.inputs] != [INPUT]:
            names = ", ".join(tensor.name for tensor in self.inputs) or "none"
            raise Refused(400, f"inputs: {names}; this model takes {wanted}")
        tensor = self.inputs[0]
        if tensor.datatype != "UINT8":
            raise Refused(400, f"inputs.{INPUT}.datatype is {tensor.datatype}: must be UINT8, pixels of 0 to 255")
        if len(tensor.shape) != 4 or tensor.shape[1:] != [channels, size, size]:
            raise Refused(400, f"inputs.{INPUT}.shape is {tensor.shape}: this model takes {wanted}")
        count = tensor.shape[0]
        if not 1 <= count <= MAX_IMAGES:
            raise Refused(
                400, f"inputs.{INPUT}.shape: {count} images; send 1 to {MAX_IMAGES} at once, fewer of large ones"
            )
        try:
            values = np.asarray(tensor.data)
        except ValueError:
            raise Refused(
                400, f"inputs.{INPUT}.data: rows of different lengths; send it flat or as shape says"
            ) from None
        if values.dtype.kind not in "iu":
            raise Refused(400, f"inputs.{INPUT}.data: holds a value that is not an integer")
        if values.size != np.prod(tensor.shape):
            raise Refused(
                400, f"inputs.{INPUT}.data has {values.size} values: shape {tensor.shape} has {np.prod(tensor.shape)}"
            )
        if values.min() < 0 or values.max() > 255:
            raise Refused(400, f"inputs.{INPUT}.data: {values.min()} to {values.max()}; pixels are 0 to 255")
        return values.astype(np.uint8).reshape(tensor.shape)

    def wanted(self) -> list[str]:
        """Return the names of the outputs that the client requests; raises Refused for an unknown one."""
        known = [PROBABILITIES, LABEL]
        names = [output.name for output in self.outputs or []] or known
        for name in names:
            if name not in known:
                raise Refused(400, f"outputs: {name} does not exist; this model returns {', '.join(known)}")
        return names


def metadata(name: str, channels: int, size: int, classes: int) -> dict[str, Any]:
    """Return the model metadata."""
    return {
        "name": name,
        "platform": "pytorch",
        "inputs": [{"name": INPUT, "datatype": "UINT8", "shape": [-1, channels, size, size]}],
        "outputs": [
            {"name": PROBABILITIES, "datatype": "FP32", "shape": [-1, classes]},
            {"name": LABEL, "datatype": "BYTES", "shape": [-1]},
        ],
    }


def response(model: str, request: InferRequest, shares: Any, labels: list[str]) -> dict[str, Any]:
    """Return the answer for probabilities (N, classes)."""
    tensors = {
        PROBABILITIES: {"datatype": "FP32", "shape": list(shares.shape), "data": [float(p) for p in shares.ravel()]},
        LABEL: {"datatype": "BYTES", "shape": [len(shares)], "data": [labels[int(row.argmax())] for row in shares]},
    }
    outputs = [{"name": name, **tensors[name]} for name in request.wanted()]
    return {"model_name": model, **({"id": request.id} if request.id is not None else {}), "outputs": outputs}


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
        served = [str(label) for label in value["outputs"][0]["data"]]
    except (KeyError, IndexError, TypeError):
        raise NotServed(f"{address}: the answer is not an inference response") from None
    recorded = [entry["prediction"] for entry in shown]
    if served != recorded:
        differ = sum(a != b for a, b in zip(served, recorded, strict=False))
        raise NotServed(f"{address}: {differ} of {len(recorded)} labels differ from demo_outputs/{RECORDED[model]}")
    right = sum(entry["prediction"] == entry["label"] for entry in shown)
    return f"{url} labels {len(served)} images as the run recorded, {right} of them correctly"


def pixels(text: str) -> Any:
    """Return a PNG file in base64 as a uint8 array (C, H, W)."""
    array = np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
