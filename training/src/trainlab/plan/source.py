"""From checked values to a planner Job: reads the phase, counts rows and estimates tokens from the data set next to it.

Used by plan_command and the engine; `plan_of` is the plan of a run's own phase, without its site. Blocks that only some recipes have (`lora`, `pretrain`) are read by key, so a phase without them plans too.
"""

import math
import os
import re
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainlab.config import (
    CptPhase,
    DpoPhase,
    LanguagePhase,
    Phase,
    PretrainPhase,
    ResnetPhase,
    SftPhase,
    TextPhase,
    Values,
)
from trainlab.config.methods import STAGES, PretrainStage
from trainlab.config.rule import PRODUCT_LABEL, SHARE
from trainlab.config.types import CIFAR10, TOPICS, quantity
from trainlab.data import chat_rows, corpus, table_files
from trainlab.errors import UserError
from trainlab.models import architectures
from trainlab.plan import devices, estimate
from trainlab.plan.checks import served_rank
from trainlab.plan.devices import BF16_CAPABILITY, Device
from trainlab.plan.job import Job, Trainable, Volume

LOADERS = 2  # a process for the training and one for the validation rows, which stays as well, for each of train.dataloader_workers
CHARS_PER_TOKEN = 4.0  # English with the vocabularies of the table
TEMPLATE_TOKENS = 15  # chat markers of a system, user and assistant turn
NOT_TEXT = ("id", "style", "theme", "form")  # keys of a row that the model never reads
DEFAULT_GPU = "L40S"  # if neither node selector nor phase.needs.gpu_model names a GPU
SLICED_GPU = "A100-80GB"  # the same for a slice, which an L40S has not
EXPANDED_BYTES = 4  # of a weight of a GGUF file, which is expanded beside it
GGUF_BYTES = 0.75  # of a weight in the file that a pypi: wheel holds, beside which it is expanded: 98.4 MB for 134.5 M
CIFAR10_BYTES = 357e6  # 170.5 MB, unpacked to 186.2 MB before it is removed (recipes/image_sources.py)


def job_of(values: Values, files: list[Path]) -> Job:
    """Return the job of a values file; `files` are those it was read from (data/ is looked for next to them)."""
    phase = values.phase
    block: dict[str, Any] = phase.model_dump()
    train, resources, lora = block.get("train", {}), block["resources"], block.get("lora") or {}
    unfreeze = block.get("unfreeze", {})
    on_gpu = resources["gpus_per_node"] > 0
    dtype = block["model"]["dtype"]
    narrow = dtype == "bfloat16" or (dtype == "auto" and on_gpu)
    rank = int(lora.get("rank") or 0)
    stage, serving = phase.stage_block, values.site.serving
    some = (isinstance(phase, SftPhase) and not stage) or (isinstance(phase, CptPhase) and not phase.text.train_all)
    kind: Trainable = "lora" if rank else ("top" if some else "all")
    rows, tokens = text_blocks(phase) if isinstance(phase, TextPhase) else _data(phase, files)
    vllm = serving and phase.serve.runtime == "vllm" and kind == "lora"
    needs = phase.needs.model_dump()
    sharded, weight_bytes = bool(stage and stage.fsdp), 2 if narrow else 4
    saved_bytes, served_bytes = (
        {"bfloat16": 2, "float32": 4}.get(name, weight_bytes)
        for name in (block["model"].get("saved_dtype"), block["serve"].get("dtype"))
    )
    return Job(
        name=phase.name,
        model=phase.model.source,
        arch=architectures.find(phase.model.source),
        trainable=kind,
        top_layers=int({"all": 0, "top": unfreeze.get("layers"), "lora": lora.get("layers")}[kind] or 0),
        train_head=kind == "top" and bool(unfreeze.get("lm_head")),
        tie_word_embeddings=bool(unfreeze.get("tie_word_embeddings")),
        lora_rank=rank,
        lora_dropout=bool(rank and lora["dropout"]),
        activations_cached=kind != "all" and bool(train.get("cache_frozen_activations")),
        from_scratch=phase.model.source.startswith("init:"),
        reference=sharded and isinstance(phase, DpoPhase),
        rows=rows,
        tokens_per_row=tokens,
        max_length=block["model"].get("max_length", 0),
        packed=isinstance(phase, TextPhase) or bool(train.get("packing")),
        sequences=2 if isinstance(phase, DpoPhase) else 1,
        epochs=float(train.get("epochs") or 1),
        batch=int(train.get("batch_size") or 1),
        accumulation=int(train.get("gradient_accumulation") or 1),
        learning_rate=train.get("learning_rate"),
        warmup_fraction=float(train.get("warmup_fraction") or 0),
        checkpoints=train.get("checkpoints"),
        keep_checkpoints=int(train.get("keep_checkpoints") or 1),
        final_model=bool(train.get("save_final_model")),
        # engine/saving.py; the checkpoints of resnet hold the best network in any case
        keeps_best=not sharded
        and phase.recipe != "resnet"
        and bool(phase.set_aside or getattr(phase.data, "validation", None)),
        weight_bytes=weight_bytes,
        saved_bytes=saved_bytes,
        served_bytes=served_bytes,
        gradient_bytes=4,  # trained weights are kept in float32 (models/layers.py), and DDP sends them unchanged
        precision="bf16" if narrow else "fp32",
        checkpointing=isinstance(phase, LanguagePhase) and phase.recomputes,
        compiled_lengths=_compiled_lengths(phase),
        autotuned=(block.get("stage") or {}).get("compile_mode") not in (None, "default"),
        tf32=bool(train.get("tf32")),
        chunked_loss=isinstance(phase, TextPhase),
        sharded=sharded,
        nodes=phase.resources.nodes,
        devices_per_node=phase.resources.processes_per_node,
        on_gpu=on_gpu,
        cores_per_pod=quantity(phase.resources.cpu),
        memory_per_pod=quantity(phase.resources.memory),
        loaders=LOADERS * int(train.get("dataloader_workers") or 0),
        shared_memory=quantity(phase.resources.shared_memory),
        timeout_seconds=60.0 * phase.resources.timeout_minutes,
        volumes=tuple(
            Volume(name, None if volume.existing else quantity(volume.size or needs[name]), volume.access_mode)
            for name, volume in values.site.storage.volumes.items()
        ),
        stored_bytes={"pypi": EXPANDED_BYTES + GGUF_BYTES, "hf": 2}.get(
            phase.model.source.partition(":")[0], saved_bytes
        ),
        data_bytes=_data_bytes(phase),
        text_bytes=_text_bytes(phase),
        drawn_bytes=2 if dtype == "bfloat16" else 4,
        prepare_cores=quantity(values.site.prepare.cpu),
        prepare_memory=quantity(values.site.prepare.memory),
        stages_before=STAGES.index(phase.parent) + 1 if phase.parent else 0,
        serve_runtime=phase.serve.runtime if serving else "",
        serve_gpus=phase.serve.gpus if serving else 0,
        serve_cores=quantity(phase.serve.cpu),
        serve_memory=quantity(phase.serve.memory),
        # the startup probe of charts/trainjob/templates/_serving.tpl, five seconds each
        serve_start_seconds=5.0
        * max(240 if phase.serve.runtime == "vllm" else 60, math.ceil(quantity(phase.serve.memory) / 5e8)),
        serve_tokens=block["model"].get("max_length", 0) + phase.serve.max_tokens,
        serve_concurrency=phase.serve.max_concurrency,
        serve_adapters=getattr(phase.serve, "max_adapters", 0),
        serve_rank=served_rank(rank),
        serve_max_lora_rank=served_rank(rank) if vllm else None,  # as the chart passes it to vLLM
    )


def _compiled_lengths(phase: Phase) -> int:
    """Return how many lengths of batches are compiled (engine/compiled.py): those of a curriculum, else one."""
    stage = phase.stage_block
    if not (stage and stage.compile):
        return 0
    return len({step.length for step in stage.curriculum}) if isinstance(stage, PretrainStage) else 1


def listed(job: Job) -> tuple[Job, str | None]:
    """Return the job with the bytes of its model's files, as the hub lists them, and its chat template.

    Raises UserError for a model that is on no hub.
    """
    from trainlab.models import stored_weights

    if not job.model.startswith("hf:"):
        raise UserError(f"--hub: phase.model.source is {job.model}, which is on no hub; plan without --hub")
    listing, template = stored_weights.files_on_hub(job.model)
    expanded = EXPANDED_BYTES * job.arch.parameters if listing.gguf and job.arch else 0
    return replace(job, model_bytes=float(sum(listing.files.values()) + expanded)), template


def device_of(values: Values, job: Job, gpu: str | None) -> tuple[Job, Device, str]:
    """Return job, device and where the device came from; `gpu` overrides, and moves a CPU job onto one GPU per pod.

    The job computes as model.dtype `auto` does on the device (models/compute.py): in bfloat16 on GPUs that have it.
    """
    job, device, where = _device_of(values, job, gpu)
    if values.phase.model.dtype == "auto" and job.on_gpu:
        narrow = device.capability >= BF16_CAPABILITY
        size = 2 if narrow else 4
        saved, served = getattr(values.phase.model, "saved_dtype", None), getattr(values.phase.serve, "dtype", None)
        job = replace(
            job,
            weight_bytes=size,
            saved_bytes=job.saved_bytes if saved else size,
            served_bytes=job.served_bytes if served else size,
            precision="bf16" if narrow else "fp32",
        )
    return job, device, where


def _device_of(values: Values, job: Job, gpu: str | None) -> tuple[Job, Device, str]:
    if gpu:
        if job.on_gpu:
            return job, devices.find(gpu), "--gpu"
        moved = replace(job, on_gpu=True, devices_per_node=1, memory_per_pod=0)
        return moved, devices.find(gpu), "--gpu"
    if not job.on_gpu:
        return job, devices.cpu(job.cores_per_pod, job.memory_per_pod), "phase.resources"
    resource, label = values.site.gpu_resource, values.site.node_selector.get(PRODUCT_LABEL)
    # one that the device plugin does not rename is seen by verify.yml alone
    shared = any(re.search(SHARE, name, re.IGNORECASE) for name in (label or "", resource))
    share = ", a share: its memory is that of all who have one" if shared else ""
    sliced = f", slice of site.gpuResource {resource}" if devices.SLICE.search(resource) else ""
    if label:
        return job, _slice(label, resource), f"site.nodeSelector {PRODUCT_LABEL}{sliced}{share}"
    if sliced:
        return (
            job,
            _slice(SLICED_GPU, resource),
            f"assumed; name the GPU with site.nodeSelector {PRODUCT_LABEL}{sliced}",
        )
    if named := values.phase.needs.gpu_model:
        try:
            return job, devices.find(named), f"phase.needs.gpu_model{share}"
        except devices.UnknownDevice:  # our own key, which a name of the table mends
            known = ", ".join(devices.DEVICES)
            raise UserError(f"phase.needs.gpu_model: {named!r} is not in the table; set one of {known}") from None
    return job, devices.find(DEFAULT_GPU), f"assumed; name it with --gpu or phase.needs.gpu_model{share}"


def plan_of(
    phase: Phase,
    gpu: str | None = None,
    network: float = 1.0,
    rows: int | None = None,
    tokens_per_row: float | None = None,
) -> estimate.Plan:
    """Return the plan of a phase on GPUs of this name, nodes linked with `network` bytes per second.

    `rows` and `tokens_per_row` count where the planner does not know the data set. A GPU that is not in the table is planned as the
    default one, on which bytes do not depend. `parameters` is None for an unknown model.
    """
    fields: dict[str, Any] = {"phase": phase}
    values = Values.model_construct(**fields)  # not judged again: the site is the chart's, and not the default one
    job = job_of(values, [])
    job = replace(job, rows=job.rows or rows, tokens_per_row=job.tokens_per_row or tokens_per_row)
    try:
        job, device, __ = device_of(values, job, gpu.replace(" ", "-") if gpu and job.on_gpu else None)
    except UserError:
        device = devices.find(DEFAULT_GPU)
    if isinstance(phase, ResnetPhase):
        return estimate.estimate_images(phase, job, device, network)
    return estimate.estimate(job, device, network)


def _slice(name: str, resource: str) -> Device:
    """Return the device of a name, or the slice of it that a resource is."""
    device = devices.find(name)
    return device if devices.SLICE.search(name) else devices.slice_of(device, resource)


def _data_bytes(phase: Phase) -> float | None:
    """Return the bytes of the data set on a volume, 0 for one in the image, None if unknown."""
    source = str(phase.data.source)
    if getattr(phase.data, "validation", None):
        return None
    if source == CIFAR10:
        return CIFAR10_BYTES
    if isinstance(phase, PretrainPhase) and source.startswith("pvc:") and phase.data.train_rows:
        rows = phase.data.train_rows + (phase.data.heldout_rows or 0)
        vocabulary = architectures.of_phase(phase).vocab
        return float(rows * phase.model.max_length * (2 if vocabulary <= 2**16 else 4))  # data/prepare/blocks.py
    return None if source.startswith(("pvc:", "hf:", "s3:")) else 0.0


def _text_bytes(phase: Phase) -> float:
    """Return the bytes of the text that text.prepare makes data.train_rows blocks of, if none of it is dropped."""
    if not isinstance(phase, PretrainPhase) or phase.text.prepare is None or not phase.data.train_rows:
        return 0.0
    if phase.text.prepare.source == TOPICS:
        return 0.0  # in the image
    rows = phase.data.train_rows + (phase.data.heldout_rows or 0)
    return rows * phase.model.max_length * TEXT_CHARS_PER_TOKEN


def _data(phase: Phase, files: list[Path]) -> tuple[int | None, float | None]:
    """Return (training rows, mean tokens per row with system prompt), (None, None) if the data set is not here.

    Raises UserError for questions with answers that training would refuse.
    """
    data: dict[str, Any] = phase.data.model_dump()
    kind, __, name = str(data.get("source", "")).partition(":")
    folder = _folder(name, files) if kind == "builtin" else None
    table = data.get("table")
    if kind == "hf" and table and table["fetch_rows"]:  # an upper bound: some rows are dropped when they are fetched
        rows = round(table["fetch_rows"] * (1 - table["heldout_fraction"]))
        return min(rows, data.get("train_rows") or rows), None
    if folder is None:
        return data.get("train_rows"), None
    taught = isinstance(phase, SftPhase)  # then load_train has taken data.train_rows, and put the refusals behind them
    if isinstance(phase, SftPhase):
        lengths = [len(row["question"]) + len(row["answer"]) for row in chat_rows.load_train(phase.data, folder)]
    else:
        lengths = _lengths(folder)
    if not lengths:
        return data.get("train_rows"), None
    system = len(str(data.get("system_prompt") or ""))
    tokens = (statistics.fmean(lengths) + system) / CHARS_PER_TOKEN + TEMPLATE_TOKENS
    return len(lengths) if taught else min(len(lengths), data.get("train_rows") or len(lengths)), tokens


def _lengths(folder: Path) -> list[int]:
    """Return the number of characters of each training row."""
    lengths: list[int] = []
    for path in sorted(folder.glob("train/*.jsonl")):
        for __, row in table_files.records(path):
            texts = [value for key, value in row.items() if isinstance(value, str) and key not in NOT_TEXT]
            lengths += [sum(map(len, texts))] * (1 + len(row.get("phrasings") or ()))
    return lengths


def _folder(name: str, files: list[Path]) -> Path | None:
    """Return the folder of a built-in data set: TRAINLAB_DATA, or data/ in a parent of the values files."""
    roots = [Path(os.environ["TRAINLAB_DATA"])] if os.environ.get("TRAINLAB_DATA") else []
    roots += [parent / "data" for path in files for parent in path.resolve().parents]
    return next((root / name for root in roots if (root / name / "train").is_dir()), None)


TEXT_CHARS_PER_TOKEN = 3.6  # of Python's manual with SmolLM2's vocabulary
# Tokens of the split `train`, all documents: 2.4 M of WikiText-2 is our estimate for vocabularies of about 50,000.
HUB_TOKENS = {("Salesforce/wikitext", "wikitext-2-raw-v1"): 2.4e6}


def text_blocks(phase: TextPhase) -> tuple[int | None, float]:
    """Return (blocks of the training part, None for text whose size is unknown here; tokens per block)."""
    length = phase.model.max_length
    tokens = _text_tokens(phase)
    if tokens is None:
        return phase.data.train_rows, float(length)
    have = max(1, int(tokens // length))
    return min(have, phase.data.train_rows or have), float(length)


def _text_tokens(phase: TextPhase) -> float | None:
    """Return the tokens of the training part, None if its text is neither here nor in the table."""
    source = phase.data.source
    if source == TOPICS:
        part = corpus.load(phase, Path("no file: the text comes with Python"))
        return sum(len(document.text) for document in part.train) / TEXT_CHARS_PER_TOKEN
    name = source.removeprefix("hf:").partition("@")[0]
    total = HUB_TOKENS.get((name, phase.text.hub_config or ""))
    return None if total is None else total * (1 - phase.text.heldout_fraction - phase.set_aside)
