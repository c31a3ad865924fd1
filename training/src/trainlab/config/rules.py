"""What may not be combined in a values file: one rule per row, read by Python here and by Helm as rules.json.

A sentence is `key: reason; remedy`. What a table cannot express is in rule.py. A rule for one recipe needs no
condition on it if a key of its conditions belongs to that recipe alone.
"""

import json
import re
from collections.abc import Iterator

from trainlab.config.inputs import QUESTIONS, VERSES
from trainlab.config.methods import STAGES
from trainlab.config.rule import Condition, Rule
from trainlab.config.types import PATH

TESTS = ("is not", "is", "in", "starts not", "starts", "holds", "has not form", "differs", "exceeds")
COLUMNS = "phase.data.table.columns"
VOLUMES = {
    "models": ("",),
    "runs": ("",),
    "data": ("site.storage.data.size", "site.storage.data.existing"),
}
"""Volume -> when a release has it: if any of these holds."""

_VLLM_ON_CPU = "phase.serve.runtime is vllm, phase.serve.gpus is 0"

OWN_ENVIRONMENT = {
    "HOME": "",
    "PYTHONUNBUFFERED": "",
    "OMP_NUM_THREADS": "phase.resources.gpus_per_node is 0",
    "USER": "phase.serve.runtime is vllm",
    "VLLM_NO_USAGE_STATS": "phase.serve.runtime is vllm",
    "VLLM_CPU_KVCACHE_SPACE": _VLLM_ON_CPU,
    "VLLM_CPU_OMP_THREADS_BIND": _VLLM_ON_CPU,
    "HF_TOKEN": "",
    "HF_HUB_OFFLINE": "",
    "SSL_CERT_FILE": "site.caConfigMap",
    "NODE_NAME": "",
    "TRAINLAB_DATASETS": "",
    "TRAINLAB_FETCH_ERROR": "",
    "TRAINLAB_REPORT_TO": "",
    "TRAINLAB_RUN": "",
    "TRAINLAB_PROGRESS_PORT": "",
    "TRAINLAB_TERMINATION_MESSAGE": "",
}
"""Variables that the chart's templates set, and when; of two with the same name the API server keeps one."""

OVERRIDES = {
    "EPOCHS": "phase.train.epochs",
    "BATCH_SIZE": "phase.train.batch_size",
    "LEARNING_RATE": "phase.train.learning_rate",
    "LORA_RANK": "phase.lora.rank",
}
"""Variables that often configure training scripts -> the key that `trainlab` sets to their value (loading.py)."""


def _rule(row: str) -> Rule:
    """Return the rule of a row that is written as in TABLE; an empty condition always holds."""
    sentence, conditions = re.sub(r"\n +", " ", row).rsplit(" if ", 1)
    key, says = sentence.split(": ", 1)
    return Rule(key, says, tuple(map(_condition, filter(None, conditions.split(", ")))))


def _condition(text: str) -> Condition:
    key, *condition = text.removeprefix("no ").split(" ", 1)
    if not condition:
        return key, "unset" if text.startswith("no ") else "set", True
    test = next(test for test in TESTS if condition[0].startswith(f"{test} "))
    operand = condition[0].removeprefix(f"{test} ")
    if test in ("in", "holds"):
        return key, test, operand.split()
    return key, test, json.loads(operand) if re.fullmatch("null|[0-9]+", operand) else operand


TABLE = r"""
phase.data.source: builtin:digits holds images, but recipe {phase.recipe} reads text; name a data set of questions
  if phase.data.source is builtin:digits, phase.recipe in sft dpo
phase.text.prepare: with data.source {phase.data.source}; the blocks are written to the folder that data.source names:
  set pvc:FOLDER
  if phase.text.prepare, phase.data.source starts not pvc:
phase.text.prepare: with stage.tokenizer trained; blocks are made of a tokenizer's tokens before anything is trained:
  name one with stage.tokenizer
  if phase.text.prepare, phase.stage.tokenizer is trained
site.step: prepare without phase.text.prepare; there is no text to prepare: remove it, or set text.prepare
  if site.step is prepare, no phase.text.prepare
phase.data.table.config: {phase.data.table.config} with data.source {phase.data.source}; only a hub data set has
  configurations: remove it
  if phase.data.table.config, phase.data.source starts not hf:
phase.data.table.split: {phase.data.table.split} with data.source {phase.data.source}; only a hub data set has splits:
  remove it
  if phase.data.table.split is not train, phase.data.source starts not hf:
phase.data.table.question_template: '{phase.data.table.question_template}' with columns of verses; an instruction has no
  template: remove it
  if phase.data.table.question_template, phase.data.table.columns.verse
phase.data.source: {phase.data.source} in stage {phase.stage.name}; rows of a table are measured with the model's tokenizer,
  which a stage gets from its parent: set a pvc: folder with train and heldout
  if phase.recipe is sft, phase.data.source starts hf:, phase.stage.name
phase.data.source: {phase.data.source} without data.table; a bucket holds tables, whose columns it names: add it
  if phase.recipe is sft, phase.data.source starts s3:, no phase.data.table
phase.data.table: given in stage {phase.stage.name}; rows of a table are measured with the model's tokenizer, which a
  stage gets from its parent: remove it, and divide the rows with `trainlab questions`
  if phase.data.table, phase.data.source starts not hf:, phase.stage.name
phase.data.table.accept_license: false with data.source {phase.data.source}; texts may be under copyright whatever the data
  set card says, as song lyrics are; clear the rights to train on them, then set it to true
  if phase.recipe is sft, phase.data.source starts hf:, no phase.data.table.accept_license
phase.model.source: {phase.model.source}; no hub has it, and Google's model of 270 M parameters has another name: set
  hf:google/gemma-3-270m@9b0cfec892e2bc2afd938c98eabe4e4a7b1e0ca1
  if phase.model.source starts hf:google/gemma-270m
phase.model.source: {phase.model.source}; its attention needs code of its own, which vLLM has removed: set
  hf:microsoft/Phi-3-mini-4k-instruct@f39ac1d28e925b323eae81227eaba4464caced4e
  if phase.model.source starts hf:microsoft/Phi-3-small
phase.vision.flip: true with data.source builtin:digits; a mirrored digit is a different symbol: set false
  if phase.vision.flip, phase.data.source is builtin:digits
phase.model.source: {phase.model.source} in a phase that is not a stage; set stage.name, or name a model
  if phase.recipe is sft, phase.model.source starts parent:, no phase.stage.name
phase.model.source: {phase.model.source} with stage.parent {phase.stage.parent}; set parent:llama-SIZE
  if phase.stage.parent, phase.model.source starts not parent:
phase.lora.rank: {phase.lora.rank} in stage sft; stage lora needs a rank, the others train the model itself
  if phase.stage.name is sft, phase.lora.rank is not 0
phase.lora.rank: {phase.lora.rank} in stage lora; stage lora needs a rank, the others train the model itself
  if phase.stage.name is lora, phase.lora.rank is 0
phase.train.cache_frozen_activations: true in stage {phase.stage.name}, which trains all layers; set false
  if phase.train.cache_frozen_activations, phase.stage.name
phase.serve.args: {phase.serve.args} with runtime {phase.serve.runtime}; only vllm takes arguments: remove them, or
  set runtime vllm
  if phase.serve.args, phase.serve.runtime is not vllm
phase.serve.dtype: float32 with runtime vllm, whose kernels for adapters take 16 bits on a GPU; set bfloat16
  if phase.serve.runtime is vllm, phase.lora.rank, phase.serve.gpus, phase.serve.dtype is float32
phase.serve.dtype: not set, so float32 as model.dtype, with runtime vllm, whose kernels for adapters take 16 bits on a GPU;
  set bfloat16
  if phase.serve.runtime is vllm, phase.lora.rank, phase.serve.gpus, no phase.serve.dtype, phase.model.dtype is float32
phase.serve.dtype: not set, so float32 as trained without GPUs, with runtime vllm, whose kernels for adapters take 16 bits on
  a GPU; set bfloat16
  if phase.serve.runtime is vllm, phase.lora.rank, phase.serve.gpus, no phase.serve.dtype, phase.model.dtype is auto,
  phase.resources.gpus_per_node is 0
phase.serve.weights: base, but runtime trainlab answers as base and tuned side by side; leave it out
  if phase.serve.weights is base, phase.serve.runtime is trainlab
phase.serve.weights: base, but vllm for a run with adapters answers as base and tuned side by side; leave it out
  if phase.serve.weights is base, phase.lora.rank
phase.stage.fsdp: true with 0 GPUs, needs at least 2; set false
  if phase.stage.fsdp, phase.resources.gpus_per_node is 0
phase.stage.fsdp: true with 1 GPUs, needs at least 2; set false
  if phase.stage.fsdp, phase.resources.nodes is 1, phase.resources.gpus_per_node is 1
phase.stage.compile: true with 0 GPUs, needs at least 1; set false
  if phase.stage.compile, phase.resources.gpus_per_node is 0
phase.stage.compile_mode: {phase.stage.compile_mode} without stage.compile; nothing is compiled: set stage.compile to true,
  or remove it
  if phase.stage.compile_mode, no phase.stage.compile
phase.train.tf32: true with resources.gpus_per_node 0; only GPUs have TF32: remove it
  if phase.train.tf32, phase.resources.gpus_per_node is 0
phase.train.tf32: true with model.dtype bfloat16; matrices are multiplied in bfloat16, not in float32: remove it
  if phase.train.tf32, phase.model.dtype is bfloat16
phase.data.validation: {phase.data.validation} without data.table; the rows of a hub are those of a table, whose columns it
  names: add it, or name a folder with pvc:
  if phase.recipe is sft, phase.data.validation starts hf:, no phase.data.table
phase.data.validation: {phase.data.validation} in stage {phase.stage.name}; its pairs are rows of a folder: name one with pvc:
  if phase.recipe is dpo, phase.data.validation starts hf:
phase.stage.fp8: 'on' with 0 GPUs, needs those of compute capability 8.9 or higher; set 'auto' or 'off'
  if phase.stage.fp8 is on, phase.resources.gpus_per_node is 0
phase.stage.fp8: 'on' without stage.compile; not compiled it is slower than bfloat16: set stage.compile to true, or 'auto'
  if phase.stage.fp8 is on, no phase.stage.compile
phase.stage.fp8: 'on' with model.dtype {phase.model.dtype}; only matrices of bfloat16 multiply in FP8: set model.dtype to
  bfloat16, or 'off'
  if phase.stage.fp8 is on, phase.model.dtype is float32
phase.unfreeze.tie_word_embeddings: true needs unfreeze.lm_head: true; change one of the two
  if phase.unfreeze.tie_word_embeddings, no phase.unfreeze.lm_head
phase.train.cache_frozen_activations: true needs a frozen embedding; set it, or unfreeze.tie_word_embeddings, to false
  if phase.train.cache_frozen_activations, phase.unfreeze.tie_word_embeddings, no phase.lora.rank
phase.lora.rank: {phase.lora.rank} with train.cache_frozen_activations true; adapters are in every layer, so no layer
  is entirely frozen: set lora.layers, or cache_frozen_activations to false
  if phase.train.cache_frozen_activations, phase.lora.rank, no phase.lora.layers
phase.train.packing: true with train.cache_frozen_activations true; the cache holds single rows: set one to false
  if phase.train.cache_frozen_activations, phase.train.packing
phase.lora.dropout: {phase.lora.dropout} in recipe adapters, which drops no inputs: remove it
  if phase.recipe is adapters, phase.lora.dropout
phase.train.gradient_accumulation: {phase.train.gradient_accumulation} in recipe adapters, whose steps are one pass: remove it
  if phase.recipe is adapters, phase.train.gradient_accumulation is not 1
phase.train.gradient_checkpointing: true in recipe adapters, which keeps all activations: remove it
  if phase.recipe is adapters, phase.train.gradient_checkpointing
phase.train.validation_fraction: {phase.train.validation_fraction} in recipe adapters, which teaches every fact: set 0
  if phase.recipe is adapters, phase.train.validation_fraction
phase.data.train_rows: {phase.data.train_rows} in recipe adapters, which trains each owner's facts: remove it
  if phase.recipe is adapters, phase.data.train_rows
phase.data.heldout_rows: {phase.data.heldout_rows} in recipe adapters, which asks each owner's test wordings: remove it
  if phase.recipe is adapters, phase.data.heldout_rows
phase.evaluate.tasks: {phase.evaluate.tasks} in recipe adapters, which runs none; remove them
  if phase.recipe is adapters, phase.evaluate.tasks
phase.questions: given in recipe adapters, which answers none; remove them
  if phase.recipe is adapters, phase.questions
phase.gate.metric: taught_recall without data.taught; name the wordings to ask, test or dev, or choose another metric
  if phase.gate.metric is taught_recall, no phase.data.taught
phase.data.taught: {phase.data.taught} with data.table; a table has no folder taught: remove one of the two
  if phase.data.taught, phase.data.table
phase.data.taught_wordings: {phase.data.taught_wordings} without data.taught; name the wordings to ask, test or dev,
  or remove it
  if phase.data.taught_wordings, no phase.data.taught
phase.gate.min_refused: {phase.gate.min_refused} without data.refused_rows; no refusal is taught: set that, or remove this
  if phase.gate.min_refused, no phase.data.refused_rows
phase.lora.target_modules: names lm_head or embed_tokens; vLLM cannot serve such an adapter: remove them
  if phase.lora.target_modules holds lm_head embed_tokens
phase.resources.processes_per_node: {phase.resources.processes_per_node} processes for {phase.resources.gpus_per_node}
  GPUs per pod; set it to resources.gpus_per_node
  if phase.resources.gpus_per_node, phase.resources.processes_per_node differs phase.resources.gpus_per_node
phase.train.memory_snapshot: true with resources.gpus_per_node 0; only GPU allocations are recorded: set false
  if phase.train.memory_snapshot, phase.resources.gpus_per_node is 0
phase.evaluate.generate_rows: {phase.evaluate.generate_rows} is more than data.heldout_rows {phase.data.heldout_rows};
  lower it
  if phase.evaluate.generate_rows exceeds phase.data.heldout_rows
site.env: OUTPUT_DIR has no effect, as runs are in their volume; remove it, and set site.storage.runs
  if site.env.OUTPUT_DIR is not null
site.env: TRAINLAB_DATA would replace the image's data sets, and the run would keep its name; remove it, and name yours with
  phase.data.source
  if site.env.TRAINLAB_DATA is not null
site.env: PYTHONPATH is refused for servers by KServe of OpenShift AI, after the training; remove it
  if site.env.PYTHONPATH is not null, site.serving, site.platform is not kubernetes
site.gpuResource: '{site.gpuResource}' is not an extended resource name; use vendor/resource, e.g. nvidia.com/gpu
  if site.gpuResource has not form ^[a-z0-9.-]+/[A-Za-z0-9._-]+$
site.auth: true with site.serving false; nothing is served: change one of the two
  if site.auth, no site.serving
site.expose.enabled: true with site.serving false; nothing is served: change one of the two
  if site.expose.enabled, no site.serving, no site.tensorboard.enabled
site.monitoring.enabled: true with site.serving false; nothing is served: change one of the two
  if site.monitoring.enabled, no site.serving
site.auth: true with site.platform kubernetes; only OpenShift AI checks tokens: set false
  if site.auth, site.platform is kubernetes
site.hardwareProfile.name: {site.hardwareProfile.name} with site.serving false; only a server has a profile; remove it
  if site.hardwareProfile.name, no site.serving
site.hardwareProfile.name: {site.hardwareProfile.name} with site.platform kubernetes; only OpenShift AI reads it;
  remove it
  if site.hardwareProfile.name, site.platform is kubernetes
site.hardwareProfile.namespace: {site.hardwareProfile.namespace} without site.hardwareProfile.name; name the profile
  if site.hardwareProfile.namespace, no site.hardwareProfile.name
site.expose.host: {site.expose.host} with site.expose.enabled false; set that to true, or remove it
  if site.expose.host, no site.expose.enabled
site.expose.ingressClass: {site.expose.ingressClass} with site.expose.enabled false; set that to true, or remove it
  if site.expose.ingressClass, no site.expose.enabled
site.expose.tlsSecret: {site.expose.tlsSecret} with site.expose.enabled false; set that to true, or remove it
  if site.expose.tlsSecret, no site.expose.enabled
site.expose.annotations: given with site.expose.enabled false; set that to true, or remove the annotations
  if site.expose.annotations, no site.expose.enabled
site.tensorboard.host: {site.tensorboard.host} with site.tensorboard.enabled false; set that to true, or remove it
  if site.tensorboard.host, no site.tensorboard.enabled
site.tensorboard.host: {site.tensorboard.host} with site.expose.enabled false; set that to true, or remove it
  if site.tensorboard.host, site.tensorboard.enabled, no site.expose.enabled
site.tensorboard.host: {site.tensorboard.host} with site.auth true; TensorBoard asks for no token, so it gets no address;
  remove it
  if site.tensorboard.host, site.auth
site.monitoring.labels: given with site.monitoring.enabled false; set that to true, or remove the labels
  if site.monitoring.labels, no site.monitoring.enabled
site.storage.data.subPath: {site.storage.data.subPath} without size and existing, so that the data sets are in the
  model volume; set one of the two, or remove subPath
  if site.storage.data.subPath, no site.storage.data.size, no site.storage.data.existing
site.storage.data.accessMode: {site.storage.data.accessMode} without size and existing, so that the data sets are in
  the model volume; set one of the two, or remove accessMode
  if site.storage.data.accessMode is not ReadWriteMany, no site.storage.data.size, no site.storage.data.existing
site.env: OMP_NUM_THREADS is set by the chart; remove it
  if phase.serve.runtime is vllm, phase.serve.gpus is 0, site.env.OMP_NUM_THREADS is not null
site.images.vllm: '{site.images.vllm}' with phase.serve.gpus 0 is vLLM's image for GPUs; name one for CPU, or set gpus
  1
  if phase.serve.runtime is vllm, phase.serve.gpus is 0, site.images.vllm starts docker.io/vllm/vllm-openai:
site.images.vllm: '{site.images.vllm}' with phase.serve.gpus 0 is vLLM's image for GPUs; name one for CPU, or set gpus
  1
  if phase.serve.runtime is vllm, phase.serve.gpus is 0, site.images.vllm starts docker.io/vllm/vllm-openai@
site.images.vllm: empty with phase.serve.runtime vllm; name vLLM's image
  if phase.serve.runtime is vllm, no site.images.vllm
"""
"""`key: reason; remedy`, and if what: `KEY` is set, `no KEY` is unset, `KEY TEST OPERAND` as in rule.py."""


def _repeated() -> Iterator[str]:
    """Yield the rows that differ in a name alone."""
    for question in (*QUESTIONS, "topic"):
        for verse in (*VERSES, "form"):
            remedy = "name instruction, verse and form, or question and answer"
            both = f"{COLUMNS}.{question}, {COLUMNS}.{verse}"
            yield f"{COLUMNS}: {question} and {verse} cannot be combined; {remedy} if {both}"
    for pair in (VERSES, QUESTIONS):
        for column, other in (pair, pair[::-1]):
            remedy = f"name {' and '.join(pair)}, or neither if the columns have these names"
            yield f"{COLUMNS}: {column} alone; {remedy} if {COLUMNS}.{column}, no {COLUMNS}.{other}"
    yield (
        f"phase.stage.parent: {{phase.stage.parent}} does not come before sft; the order is {', '.join(STAGES)} "
        "if phase.stage.name is sft, phase.stage.parent is not pretrain"
    )
    for name, when in OWN_ENVIRONMENT.items():
        more = " and name a Secret in site.hfTokenSecret" * (name == "HF_TOKEN")
        yield f"site.env: {name} is set by the chart; remove it{more} if {when}, site.env.{name} is not null"
    for name, key in (*OVERRIDES.items(), ("DATA_DIR", "phase.data.source")):
        why = "would change what the pods train, not the name of their run"
        yield f"site.env: {name} {why}; remove it, and set {key} if site.env.{name} is not null"
    for key in ("site.images.trainer", "site.images.vllm"):
        form = "write REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:DIGEST"
        yield f"{key}: '{{{key}}}' is no image reference; {form} if {key}, {key} has not form ^[A-Za-z0-9][A-Za-z0-9._:/@-]*$"
    for key in (f"site.storage.{volume}.subPath" for volume in VOLUMES):
        yield (
            f"{key}: '{{{key}}}' is not a folder inside a claim; write names of letters, digits, ., _ and - separated by /, none of "
            f"them . or .., e.g. team/models if {key}, {key} has not form ^{PATH}$"
        )
    for volume, any_of in VOLUMES.items():
        key = f"site.storage.{volume}.accessMode"
        for when in any_of:
            yield (
                f"{key}: ReadWriteOnce with phase.resources.nodes {{phase.resources.nodes}}: pods on several nodes cannot mount it; set "
                "ReadWriteMany (and a storageClass that supports it) or nodes 1 "
                f"if {when}, {key} is ReadWriteOnce, phase.resources.nodes is not 1"
            )


RULES: tuple[Rule, ...] = tuple(map(_rule, (*re.split(r"\n(?! )", TABLE.strip()), *_repeated())))
