"""LoRA adapters: added to the frozen weights by PEFT, saved alone and never merged; used by sft.

The result is what vLLM and our own server load on top of the base: adapter_config.json and adapter_model.safetensors.
"""

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, TaskType, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save_file
from transformers import PreTrainedModel

from trainlab.config import LanguagePhase, SftPhase
from trainlab.errors import UserError
from trainlab.models import compute
from trainlab.models.layers import check_depth, decoder_layers


def add(model: PreTrainedModel, phase: SftPhase) -> tuple[PreTrainedModel, dict[str, float | int]]:
    """Return the model with fresh adapters, the only weights that train, and {trainable, total, share} in parameters.

    B starts at zero, so the model starts as the base model (Hu et al., section 4.1). Adapters are kept in float32
    (PEFT's default) for the reason given in layers.py. Raises UserError for a target or a layer that the model lacks.
    """
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
    config = LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=list(settings.target_modules) or sorted(names),
        layers_to_transform=list(range(len(layers)))[-last:] if last else None,
    )
    adapted: Any = get_peft_model(model, config)
    trainable, total = adapted.get_nb_trainable_parameters()
    return adapted, {"trainable": trainable, "total": total, "share": trainable / total}


def save(model: PeftModel, folder: Path, phase: LanguagePhase, whole: dict[str, Any] | None = None) -> None:
    """Write the adapter into `folder` in `model.saved_dtype`; `whole` holds all weights where those of `model` are sharded.

    Not `save_pretrained`: it may ask a hub about the base model's vocabulary, writes a model card meant for the hub,
    and records the base's path inside this pod as the model's source for whoever gets the folder.
    """
    dtype = compute.saved_dtype(phase)
    state = get_peft_model_state_dict(model, whole, save_embedding_layers=False)
    save_file(
        {name: tensor.detach().to(dtype).cpu().contiguous() for name, tensor in state.items()},
        folder / "adapter_model.safetensors",
        metadata={"format": "pt"},
    )
    config: Any = model.peft_config["default"]
    held = config.base_model_name_or_path, config.revision, config.inference_mode
    name, _, revision = phase.model.source.partition("@")
    config.base_model_name_or_path, config.revision = name.removeprefix("hf:"), revision or None
    config.inference_mode = True
    config.save_pretrained(folder)
    config.base_model_name_or_path, config.revision, config.inference_mode = held
