"""Which weights are trained: the last decoder layers and the head, all of them, or LoRA adapters; used by sft, adapters, cpt, dpo and engine/.

Adapters are added to the frozen weights by PEFT, saved alone and never merged: adapter_config.json and adapter_model.safetensors are
what vLLM and our own server load on top of the base."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file

from trainlab.config import AdaptersPhase, CptPhase, LanguagePhase, SftPhase
from trainlab.errors import UserError
from trainlab.models import compute

if TYPE_CHECKING:  # PEFT takes seconds to import, and only adapters need it
    from peft import LoraConfig, PeftModel
    from transformers import PreTrainedModel


def unfreeze(model: "PreTrainedModel", phase: SftPhase | CptPhase) -> dict[str, float | int]:
    """Freeze everything but what `phase.unfreeze` names; return {trainable, total, share} in parameters.

    SmolLM ties head and embedding: training the head then also trains the embedding, so the gradient flows through
    every layer. Unless `tie_word_embeddings`, the head gets its own weights, initially equal to the embedding.
    """
    settings, layers = phase.unfreeze, decoder_layers(model)
    check_depth(layers, settings.layers, "phase.unfreeze.layers")
    head: Any = model.get_output_embeddings()
    embedding: Any = model.get_input_embeddings()
    tied = head.weight is embedding.weight
    if settings.tie_word_embeddings and not tied:
        raise UserError(
            "phase.unfreeze.tie_word_embeddings is true: head and embedding of this model are not tied; set false"
        )
    if settings.lm_head and tied and not settings.tie_word_embeddings:
        head.weight = torch.nn.Parameter(embedding.weight.detach().clone())
        model.config.tie_word_embeddings = False
    model.requires_grad_(False)
    for part in [*list(layers)[-settings.layers :], *([head] if settings.lm_head else [])]:
        part.requires_grad_(True)
    return _trained(model)


def everything(model: "PreTrainedModel") -> dict[str, float | int]:
    """Train all weights; return {trainable, total, share} in parameters. A tied head stays tied."""
    return _trained(model.requires_grad_(True))


def _trained(model: torch.nn.Module) -> dict[str, float | int]:
    """Keep the weights that train in float32: a step of 5e-5 is lost in bfloat16 weights of 0.02 (8 bits). Autocast computes in
    bfloat16."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    total = sum(p.numel() for p in model.parameters())
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return {"trainable": trainable, "total": total, "share": trainable / total}


def check_depth(layers: torch.nn.ModuleList, asked: int, key: str) -> None:
    """Raise UserError if `key` asks for more layers than there are."""
    if asked > len(layers):
        raise UserError(f"{key} is {asked}: the model has {len(layers)} layers; set it to at most that")


def decoder_layers(model: "PreTrainedModel") -> torch.nn.ModuleList:
    """Return the decoder layers of a causal language model, adapters around it or not."""
    unwrap: Any = getattr(model, "get_base_model", None)  # PEFT's; importing it takes seconds
    inner: Any = unwrap() if unwrap else model
    layers = getattr(inner.base_model, "layers", None)
    if not isinstance(layers, torch.nn.ModuleList):
        raise UserError(
            f"phase.model.source: a {type(model).__name__} has no list of decoder layers; use another model"
        )
    return layers


def add_lora(model: "PreTrainedModel", phase: SftPhase) -> tuple["PreTrainedModel", dict[str, float | int]]:
    """Return the model with fresh adapters, the only weights that train, and {trainable, total, share} in parameters.

    B starts at zero, so the model starts as the base model (Hu et al., section 4.1). Adapters are kept in float32
    (PEFT's default), as all weights that train. Raises UserError for a target or a layer that the model lacks.
    """
    from peft import get_peft_model

    adapted: Any = get_peft_model(model, lora_config(model, phase))
    trainable, total = adapted.get_nb_trainable_parameters()
    return adapted, {"trainable": trainable, "total": total, "share": trainable / total}


def lora_config(model: "PreTrainedModel", phase: SftPhase | AdaptersPhase) -> "LoraConfig":
    """Return PEFT's settings of a phase's adapters for `model`; raises UserError for a target or a layer that it lacks."""
    from peft import LoraConfig, TaskType

    settings = phase.lora
    head = model.get_output_embeddings()
    linear = [name for name, part in model.named_modules() if isinstance(part, torch.nn.Linear) and part is not head]
    names = {name.rsplit(".", 1)[-1] for name in linear}  # PEFT's "all-linear" would list every layer's by its path
    odd = sorted(set(settings.target_modules) - names)
    if odd:
        raise UserError(
            f"phase.lora.target_modules: the model has no linear layer {odd[0]!r}; it has {', '.join(sorted(names))}"
        )
    layers, last = decoder_layers(model), settings.layers
    check_depth(layers, last or 0, "phase.lora.layers")
    return LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=list(settings.target_modules) or sorted(names),
        layers_to_transform=list(range(len(layers)))[-last:] if last else None,
    )


def lora_targets(model: "PreTrainedModel", config: "LoraConfig") -> list[str]:
    """Return the names of the linear layers that PEFT gives an adapter with these settings."""
    from peft.tuners.tuners_utils import check_target_module_exists

    linear = (name for name, part in model.named_modules() if isinstance(part, torch.nn.Linear))
    return [name for name in linear if check_target_module_exists(config, name)]


def save_lora(model: "PeftModel", folder: Path, phase: LanguagePhase, gathered: dict[str, Any] | None = None) -> None:
    """Write the adapter into `folder` in `model.saved_dtype`; `gathered` holds all weights where those of `model` are sharded.

    Not `save_pretrained`: it may ask a hub about the base model's vocabulary, writes a model card meant for the hub,
    and records the base's path inside this pod as the model's source for whoever gets the folder.
    """
    from peft import get_peft_model_state_dict

    state = get_peft_model_state_dict(model, gathered, save_embedding_layers=False)
    write_lora(state, model.peft_config["default"], folder, phase)


def write_lora(state: dict[str, torch.Tensor], config: Any, folder: Path, phase: LanguagePhase) -> None:
    """Write an adapter into `folder` in `model.saved_dtype`; `state`: PEFT's names -> tensors, `config`: its LoraConfig."""
    dtype = compute.saved_dtype(phase)
    save_file(
        {name: tensor.detach().to(dtype).cpu().contiguous() for name, tensor in state.items()},
        folder / "adapter_model.safetensors",
        metadata={"format": "pt"},
    )
    held = config.base_model_name_or_path, config.revision, config.inference_mode
    name, __, revision = phase.model.source.partition("@")
    config.base_model_name_or_path, config.revision = name.removeprefix("hf:"), revision or None
    config.inference_mode = True
    config.save_pretrained(folder)
    config.base_model_name_or_path, config.revision, config.inference_mode = held
