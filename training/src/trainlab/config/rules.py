"""What may not go together in a phase; each rule is a sentence `key: reason; remedy`, with the key below phase.

Helm says the same sentences (charts/trainjob/templates/_checks.tpl and its neighbours); tests compare them.
"""

from trainlab.config import rules_hub, rules_stage, rules_text, rules_vision
from trainlab.config.phase_fields import PhaseFields


def conflict(phase: PhaseFields) -> str | None:
    """Return the first thing that does not fit together, None when all is well."""
    rules = (rules_text.conflict, rules_hub.conflict, rules_vision.conflict, rules_stage.conflict, _tasks, _common)
    return next(filter(None, (rule(phase) for rule in rules)), None)


def _tasks(phase: PhaseFields) -> str | None:
    tasks = phase.evaluate.tasks
    if tasks and phase.recipe == "resnet":
        return f"evaluate.tasks: {', '.join(tasks)} with recipe resnet, which tunes no language model; set []"
    double = next((name for name in tasks if tasks.count(name) > 1), None)
    return f"evaluate.tasks: {double} stands there twice; name it once" if double else None


def _common(phase: PhaseFields) -> str | None:
    gpus, processes = phase.resources.gpus_per_node, phase.resources.processes_per_node
    if gpus and processes != gpus:
        return (
            f"resources.processes_per_node: {processes} processes for {gpus} GPUs per pod; "
            "set it to the same number as resources.gpus_per_node"
        )
    if phase.train.memory_snapshot and not gpus:
        return (
            "train.memory_snapshot: true with resources.gpus_per_node 0; only GPU allocations are recorded: set false"
        )
    if phase.unfreeze.tie_word_embeddings and not phase.unfreeze.lm_head:
        return "unfreeze.tie_word_embeddings: true needs unfreeze.lm_head: true; set one of the two differently"
    if phase.train.cache_frozen_activations and phase.unfreeze.tie_word_embeddings:
        return "train.cache_frozen_activations: true needs a frozen trunk; set it, or unfreeze.tie_word_embeddings, to false"
    if phase.train.cache_frozen_activations and phase.lora.rank:
        return (
            f"lora.rank: {phase.lora.rank} with train.cache_frozen_activations true; adapters lie in every layer, so there is no "
            "frozen trunk: set cache_frozen_activations to false"
        )
    if phase.train.cache_frozen_activations and phase.train.packing:
        return (
            "train.packing: true with train.cache_frozen_activations true; the cache knows single rows: set one false"
        )
    if {"lm_head", "embed_tokens"} & set(phase.lora.target_modules):
        return "lora.target_modules: names lm_head or embed_tokens; vLLM serves no such adapter: take them out"
    if phase.serve.runtime == "vllm" and phase.serve.gpus == 0:
        return "serve.gpus: 0 with serve.runtime vllm; give it at least 1 or set runtime to trainlab"
    if phase.evaluate.generate_rows and phase.data.heldout_rows:
        if phase.evaluate.generate_rows > phase.data.heldout_rows:
            return (
                f"evaluate.generate_rows: {phase.evaluate.generate_rows} is more than data.heldout_rows "
                f"{phase.data.heldout_rows}; lower it"
            )
    return None
