"""What the numbers of a plan say about the job itself, a function a rule: refusals (cannot work) and warnings (works, but read this)."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from trainlab.config.types import split
from trainlab.plan import rounding
from trainlab.plan.device_memory import HOST_BYTES, LOGIT_BYTES, batches_ahead, host_bytes
from trainlab.plan.devices import BF16_CAPABILITY, TF32_CAPABILITY
from trainlab.plan.estimate import Plan, flop_per_token
from trainlab.plan.units import claim, count, gib, seconds, size
from trainlab.plan.volumes import preparation

# What to change in a values file, by finding code.
KEYS = {
    "unknown-model": "phase.model.source",
    "context": "phase.model.max_length",
    "serve-context": "phase.serve.max_tokens, phase.model.max_length",
    "serve-heads": "phase.serve.gpus",
    "layers": "phase.unfreeze.layers, phase.lora.layers",
    "untied": "phase.unfreeze.tie_word_embeddings",
    "memory": "phase.train.batch_size, phase.train.gradient_checkpointing, phase.model.max_length, phase.resources",
    "memory-tight": "phase.train.batch_size, phase.model.max_length",
    "logits": "phase.train.batch_size",
    "unknown-data": "phase.data.train_rows",
    "batch": "phase.train.batch_size",
    "warmup": "phase.train.warmup_fraction",
    "tied-head": "phase.unfreeze.tie_word_embeddings",
    "frozen-recompute": "phase.train.gradient_checkpointing",
    "network": "phase.train.gradient_accumulation, phase.resources.nodes",
    "access-mode": "site.storage.NAME.accessMode",
    "models-volume": "site.storage.models.size",
    "runs-volume": "site.storage.runs.size",
    "data-volume": "site.storage.data.size",
    "volume-tight": "site.storage.NAME.size",
    "engine-memory": "phase.serve.gpus, phase.model.max_length",
    "server-memory": "phase.serve.memory",
    "bf16": "phase.model.dtype",
    "tf32": "phase.train.tf32",
    "shared-memory": "phase.resources.shared_memory, phase.train.dataloader_workers",
    "rounding": "phase.model.saved_dtype, phase.train.learning_rate",
    "lora-rank": "phase.lora.rank",
    "few-tokens": "phase.data.train_rows",
    "host-memory": "phase.resources.memory",
    "prepare-memory": "site.prepare.memory, site.prepare.cpu",
    "deadline": "phase.resources.timeout_minutes",
    "server-start": "site.storage",
    "node": "phase.resources.cpu, phase.resources.memory, phase.serve.cpu, phase.serve.memory",
}


@dataclass(frozen=True)
class Finding:
    """A reason to stop (refuse) or to reconsider (warn); `code` is stable, `text` has numbers and remedy."""

    level: Literal["refuse", "warn"]
    code: str
    text: str

    @property
    def key(self) -> str:
        """The keys of a values file that the remedy changes, empty if there are none."""
        return KEYS.get(self.code, "")

    @property
    def line(self) -> str:
        """The finding in one line, the same from the CLI and from the playbooks."""
        mark = "REFUSED" if self.level == "refuse" else "warning"
        return f"{mark} [{self.code}] {self.text}" + (f" ({self.key})" if self.key else "")


def refuse(code: str, text: str) -> Finding:
    """Return a finding that makes `trainlab plan` exit 1."""
    return Finding("refuse", code, text)


def warn(code: str, text: str) -> Finding:
    """Return a finding that is only printed."""
    return Finding("warn", code, text)


VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # what --max-lora-rank accepts (vLLM engine arguments)
VLLM_DEFAULT_RANK = 16
OPTIMAL_TOKENS = 20  # per parameter: compute-optimal training (Hoffmann et al. 2022)
TIGHT = 0.9  # of the usable memory, or of a volume
CPU_SLACK = 2.0  # of a time on a CPU: the planner knows the cores, not which
TEN_GIB = 10 * 2**30


def check(plan: Plan) -> list[Finding]:
    """Return all findings about a plan, refusals first."""
    findings = [finding for rule in RULES for finding in rule(plan)]
    return sorted(findings, key=lambda finding: finding.level != "refuse")


def check_volumes(plan: Plan) -> list[Finding]:
    """Return the findings about volumes alone, which hold whatever the GPU is."""
    return list(_volumes(plan))


def _model(plan: Plan) -> Iterator[Finding]:
    job, arch = plan.job, plan.job.arch
    if arch is None:
        if plan.parameters is not None:  # one of our own networks, counted elsewhere
            return
        yield warn(
            "unknown-model",
            f"{job.model}: not in the table, so no memory, FLOP or time; give its config.json with --model-config",
        )
    elif job.max_length > arch.context:
        yield refuse(
            "context", f"max_length {job.max_length} is longer than the {arch.context} tokens of {arch.name}; lower it"
        )
    elif job.serve_runtime == "vllm" and job.serve_tokens > arch.context:
        yield refuse(
            "serve-context",
            f"a question and its answer may have {job.serve_tokens:,} tokens (model.max_length and serve.max_tokens), more than the "
            f"{arch.context:,} of {arch.name}, with which vLLM does not start; lower one of them",
        )
    elif job.serve_runtime == "vllm" and not split(arch.heads, arch.kv_heads, job.serve_gpus or 1):
        yield refuse(
            "serve-heads",
            f"vLLM divides the {arch.heads} heads and {arch.kv_heads} of keys and values of {arch.name} evenly among {job.serve_gpus} GPUs "
            "(serve.gpus), and does not start; take a divisor of the heads that divides the others, or is a multiple of them",
        )
    if arch and job.top_layers > arch.layers:
        yield refuse(
            "layers", f"{job.top_layers} layers are trained, {arch.name} has {arch.layers}; lower their number"
        )
    if arch and job.train_head and job.tie_word_embeddings and not arch.tied:
        yield refuse(
            "untied", f"unfreeze.tie_word_embeddings is true, and {arch.name} ties no head to its embedding; set false"
        )


def _memory(plan: Plan) -> Iterator[Finding]:
    need, device, job = plan.memory, plan.device, plan.job
    if need is None:
        return
    usable = device.usable_gib * 2**30
    where = "the pod's memory limit" if device.is_cpu else f"{device.name} ({device.nominal_gib:g} GB nominal)"
    text = f"{gib(need.total)} needed, {gib(usable)} usable of {where}: "
    if need.sharding > need.training:
        text += "all weights in float32 before they are sharded" + (", and the reference" if job.reference else "")
    else:
        text += f"weights {gib(need.weights)}, optimizer states {gib(need.states)}, gradients {gib(need.gradients)}, "
        text += f"copies {gib(need.copies)}, " if need.copies else ""
        text += f"activations {gib(need.activations)}, logits {gib(need.logits)}"
    if need.total > usable:
        fixed = need.weights + need.states + need.copies + need.gradients + need.cache + need.context
        if need.sharding > usable:
            remedy = "each GPU holds them once, however many there are: use a larger GPU or a smaller model"
        elif fixed <= usable:
            remedy = "lower the batch or max_length, or compute activations again"
        elif job.sharded and need.gradients:
            remedy = "set phase.train.gradient_accumulation 1, shard over more devices or use a larger GPU"
        elif job.sharded:
            remedy = "shard over more devices or use a larger GPU"
        elif job.from_scratch or job.stages_before:
            remedy = f"shard over at least {int(fixed // usable) + 1} devices (stage.fsdp), or use a larger GPU"
        else:
            remedy = "train fewer weights, or use a larger GPU"
        yield refuse("memory", f"{text}; {remedy}")
    elif need.total > TIGHT * usable:
        yield warn("memory-tight", f"{text}; a larger batch may run out of memory")
    if need.logits > need.total / 3 and not job.chunked_loss and job.arch is not None:
        yield warn(
            "logits",
            f"{gib(need.logits)} of {gib(need.total)} are logits (vocabulary {job.arch.vocab:,}, {LOGIT_BYTES} bytes "
            "each with copy and gradient); a chunked or fused loss needs a fraction of that",
        )


def _schedule(plan: Plan) -> Iterator[Finding]:
    when, job = plan.schedule, plan.job
    if when is None:
        yield warn(
            "unknown-data", "rows or tokens are unknown here; give --rows and --tokens-per-row for steps and time"
        )
        return
    few = bool(job.rows and job.rows < job.effective_batch and not job.packed)
    if few:
        text = f"{job.rows} rows are fewer than one effective batch of {job.effective_batch}; lower it"
        yield refuse("batch", text) if job.unit == "image" else warn("batch", text)
    if when.warmup >= when.steps and not (few and job.unit == "image"):
        yield refuse(
            "warmup",
            f"warm-up is {when.warmup} steps, the run has {when.steps}: the learning rate never reaches its set value; "
            "set train.warmup_fraction 0, or train more steps",
        )


def _frozen(plan: Plan) -> Iterator[Finding]:
    job, arch = plan.job, plan.job.arch
    if arch is None or job.trainable != "top":
        return
    if job.train_head and job.tie_word_embeddings and arch.tied:
        length = job.tokens_per_row or job.max_length
        free = flop_per_token(replace(job, tie_word_embeddings=False, checkpointing=False), arch, length)
        factor = flop_per_token(job, arch, length) / free
        yield warn(
            "tied-head",
            f"{arch.name} ties head and input embedding: training the head sends the gradient through all "
            f"{arch.layers} layers, {factor:.1f} times the FLOP of an untied head (unfreeze.tie_word_embeddings: false)",
        )
    elif job.checkpointing:
        yield warn("frozen-recompute", "activation checkpointing runs the frozen layers twice; switch it off")


def _network(plan: Plan) -> Iterator[Finding]:
    cost, job = plan.cost, plan.job
    if cost is None or job.nodes < 2:
        return
    if cost.speed_up < job.world * 0.7:
        yield warn(
            "network",
            f"each step takes {seconds(cost.step_seconds)} and sends {size(cost.bytes_per_step)} in "
            f"{seconds(cost.network_seconds)}: {job.world} ranks are {cost.speed_up:.1f} times as fast as one (before "
            "overlap); accumulate more, train fewer weights (LoRA) or use a faster link",
        )


def _volumes(plan: Plan) -> Iterator[Finding]:
    job = plan.job
    for volume in job.volumes:
        if job.nodes > 1 and volume.access_mode == "ReadWriteOnce":
            yield refuse(
                "access-mode",
                f"volume {volume.name} is ReadWriteOnce and the job has {job.nodes} nodes: pods on other nodes cannot "
                "mount it; use ReadWriteMany",
            )
    for need in plan.volumes:
        room = next((each.bytes for each in job.volumes if each.name == need.name), None)
        if room is None:  # the size of an existing claim is the cluster's to know
            continue
        text = f"volume {need.name} is {claim(room)} ({size(room)}): {size(need.bytes)} at its fullest: "
        text += ", ".join(need.parts)
        if need.bytes > room:
            enough = math.ceil(need.bytes / TIGHT / TEN_GIB) * TEN_GIB
            yield refuse(
                f"{need.name}-volume",
                f"{text}; set {claim(enough)} or more{need.remedy}",
            )
        elif need.bytes > TIGHT * room:
            yield warn("volume-tight", f"{text}; the file system needs some of it as well")


def _server(plan: Plan) -> Iterator[Finding]:
    need, job = plan.server, plan.job
    if need is None or need.total <= need.room:
        return
    text = (
        f"weights {gib(need.weights)}, keys and values of one request of {job.serve_tokens:,} tokens {gib(need.cache)}"
    )
    if need.runtime == "vllm" and not need.gpus:
        yield refuse(
            "server-memory",
            f"phase.serve.memory is {claim(job.serve_memory)}: vLLM on CPU needs {gib(need.total)} and may use "
            f"{gib(need.room)}: {text}; raise it, or lower phase.model.max_length",
        )
    elif need.runtime == "vllm":
        text = f"phase.serve.gpus is {need.gpus}: vLLM needs {gib(need.total)} on each and may use {gib(need.room)}: {text}"
        yield refuse("engine-memory", f"{text}; use more GPUs or a larger one, or lower phase.model.max_length")
    else:
        text = f"weights {gib(need.weights)}, keys and values of the requests of {job.serve_tokens:,} tokens that it answers at once "
        text += gib(need.cache)
        remedy = "raise it, or lower phase.serve.max_concurrency"
        if need.others:
            text += f", adapters of {job.serve_adapters} other runs {gib(need.others)}"
            remedy += " or phase.serve.max_adapters"
        yield refuse(
            "server-memory",
            f"phase.serve.memory is {claim(need.room)}: the server needs {gib(need.total)}: base and tuned {text}; {remedy}",
        )


def _numerics(plan: Plan) -> Iterator[Finding]:
    job, device = plan.job, plan.device
    if job.precision == "bf16" and 0 < device.capability < BF16_CAPABILITY:
        yield refuse("bf16", f"{device.name} (capability {device.capability}) has no BF16; use a newer GPU")
    if job.tf32 and 0 < device.capability < TF32_CAPABILITY:
        yield refuse("tf32", f"{device.name} (capability {device.capability}) has no TF32; use a newer GPU")
    elif job.tf32 and job.precision == "bf16":
        yield warn("tf32", "matrices are multiplied in bfloat16 here, so that TF32 changes nothing; remove it")


def _loaders(plan: Plan) -> Iterator[Finding]:
    job = plan.job
    ahead = job.devices_per_node * batches_ahead(job)
    if job.loaders and ahead > job.shared_memory:
        yield refuse(
            "shared-memory",
            f"the batches that the processes of {job.devices_per_node} ranks hold ready take {size(ahead)} of /dev/shm, which has "
            f"{size(job.shared_memory)}; raise it, or use fewer processes",
        )


def _rounding(plan: Plan) -> Iterator[Finding]:
    job, when = plan.job, plan.schedule
    if job.arch is None or when is None or job.trainable == "lora" or job.learning_rate is None:
        return
    if job.saved_bytes == 2 and (lost := rounding.lost(job.learning_rate, when.steps)):
        yield refuse("rounding", lost)


def _lora(plan: Plan) -> Iterator[Finding]:
    job = plan.job
    if job.trainable != "lora" or job.serve_max_lora_rank is None:
        return
    if job.lora_rank > VLLM_RANKS[-1]:
        yield refuse("lora-rank", f"rank {job.lora_rank}: vLLM serves at most {VLLM_RANKS[-1]}; lower it")
    elif job.lora_rank > job.serve_max_lora_rank:
        yield refuse(
            "lora-rank",
            f"rank {job.lora_rank} with --max-lora-rank {job.serve_max_lora_rank} (vLLM's default is "
            f"{VLLM_DEFAULT_RANK}): the adapter is refused when it loads; set {served_rank(job.lora_rank)}",
        )


def _pretrain(plan: Plan) -> Iterator[Finding]:
    job, when = plan.job, plan.schedule
    if job.arch is None or when is None or not job.from_scratch:
        return
    optimal = OPTIMAL_TOKENS * job.arch.parameters
    if when.tokens < 0.2 * optimal:
        yield warn(
            "few-tokens",
            f"{count(when.tokens)} tokens are {100 * when.tokens / optimal:.1f} % of the {count(optimal)} that are "
            f"compute-optimal for {count(job.arch.parameters)} parameters: a rehearsal of the pipeline, not a usable "
            "model",
        )


def _host(plan: Plan) -> Iterator[Finding]:
    job = plan.job
    if not job.on_gpu or plan.parameters is None or plan.trainable is None or not job.memory_per_pod:
        return
    need = host_bytes(job, plan.parameters, plan.trainable)
    if need > job.memory_per_pod:
        yield refuse(
            "host-memory",
            f"a pod of {job.devices_per_node} ranks needs {gib(need)} of its node's memory, and its limit is "
            f"{claim(job.memory_per_pod)}: {gib(HOST_BYTES)} for the libraries of each rank, its weights where they are float32, and what "
            f"train.cache_frozen_activations keeps; "
            f"set {claim(math.ceil(need / 2**30) * 2**30)} or more",
        )


def _preparation(plan: Plan) -> Iterator[Finding]:
    need, limit = preparation(plan.job, plan.storage), plan.job.prepare_memory
    if need and limit and need.bytes > limit:
        which = "the Job that prepares the text and draws the first weights"
        enough = claim(math.ceil(need.bytes / 2**30) * 2**30)
        yield refuse(
            "prepare-memory", f"{which} needs {gib(need.bytes)}, and its limit is {claim(limit)}; set {enough} or more"
        )


def _node(plan: Plan) -> Iterator[Finding]:
    job, node = plan.job, plan.job.node
    if node is None:
        return
    pods = [("a pod of the training", job.cores_per_pod, job.memory_per_pod, job.devices_per_node if job.on_gpu else 0)]
    pods += [("the server's pod", job.serve_cores, job.serve_memory, job.serve_gpus)] if job.serve_runtime else []
    for who, cores, memory, gpus in pods:
        if cores > node.free_cores or memory > node.free_memory or (node.gpu and gpus > node.gpus):
            asked = f"{cores:g} cores, {claim(memory)}" + (f" and {gpus} GPUs" if gpus else "")
            of = f"{node.cores:g} cores and {gib(node.memory)}" + (f" and {node.gpus} {node.gpu}" if node.gpu else "")
            yield refuse(
                "node",
                f"{who} asks for {asked}; a node of {of} leaves it {node.free_cores:g} cores and {gib(node.free_memory)}: "
                "it would be Pending for ever; lower what it asks for, or use larger nodes",
            )


def _deadline(plan: Plan) -> Iterator[Finding]:
    cost, limit = plan.cost, plan.job.timeout_seconds
    slack = CPU_SLACK if plan.device.is_cpu else 1.0
    if cost is not None and cost.total_seconds > limit * slack:
        yield refuse(
            "deadline",
            f"steps take {seconds(cost.seconds)}, checkpoints {seconds(cost.checkpoint_seconds)}, loading {seconds(cost.load_seconds)}, "
            f"compiling {seconds(cost.compile_seconds)}, and the job is ended after {seconds(limit)}; raise the limit, or train less",
        )


def _server_start(plan: Plan) -> Iterator[Finding]:
    need, limit = plan.server, plan.job.serve_start_seconds
    if need is None:
        return
    reads = max(1, need.gpus) * need.weights / plan.storage
    if reads > limit:
        yield refuse(
            "server-start",
            f"the server reads {size(need.weights)} in {seconds(reads)} at {size(plan.storage)}/s, and is started again after "
            f"{seconds(limit)}; use a faster volume (--storage), or phase.serve.dtype bfloat16",
        )


def served_rank(rank: int) -> int:
    """Return the smallest --max-lora-rank that fits an adapter of this rank."""
    return next((allowed for allowed in VLLM_RANKS if allowed >= rank), rank)


RULES: tuple[Callable[[Plan], Iterator[Finding]], ...] = (
    _model,
    _memory,
    _schedule,
    _frozen,
    _network,
    _volumes,
    _server,
    _numerics,
    _loaders,
    _rounding,
    _lora,
    _pretrain,
    _host,
    _preparation,
    _node,
    _deadline,
    _server_start,
)
