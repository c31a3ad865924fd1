"""Which weights are trained: the last decoder layers and the head, with the head untied or tied; used by sft."""

from typing import Any

import torch
from transformers import PreTrainedModel

from trainlab.config import CptPhase, SftPhase
from trainlab.errors import UserError


def unfreeze(model: PreTrainedModel, phase: SftPhase | CptPhase) -> dict[str, float | int]:
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
    for layer in list(layers)[-settings.layers :]:
        layer.requires_grad_(True)
    if settings.lm_head:
        head.requires_grad_(True)
    for parameter in model.parameters():
        # A step of 5e-5 is lost in bfloat16 weights of 0.02 (8 bits): trained weights are kept in float32, and autocast
        # computes in bfloat16.
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    total = sum(p.numel() for p in model.parameters())
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return {"trainable": trainable, "total": total, "share": trainable / total}


def everything(model: PreTrainedModel) -> dict[str, float | int]:
    """Train all weights, kept in float32 for the reason above; return {trainable, total, share}. A tied head stays tied."""
    model.requires_grad_(True)
    for parameter in model.parameters():
        parameter.data = parameter.data.float()
    total = sum(p.numel() for p in model.parameters())
    return {"trainable": total, "total": total, "share": 1.0}


def check_depth(layers: torch.nn.ModuleList, asked: int, key: str) -> None:
    """Raise UserError if `key` asks for more layers than there are."""
    if asked > len(layers):
        raise UserError(f"{key} is {asked}: the model has {len(layers)} layers; set it to at most that")


def decoder_layers(model: PreTrainedModel) -> torch.nn.ModuleList:
    """Return the decoder layers of a causal language model, adapters around it or not."""
    unwrap: Any = getattr(model, "get_base_model", None)  # PEFT's; importing it takes seconds
    inner: Any = unwrap() if unwrap else model
    layers = getattr(inner.base_model, "layers", None)
    if not isinstance(layers, torch.nn.ModuleList):
        raise UserError(
            f"phase.model.source: a {type(model).__name__} has no list of decoder layers; use another model"
        )
    return layers
