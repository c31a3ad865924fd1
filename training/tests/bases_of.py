"""Tiny base models as different writers leave them, with a rope base that is nobody's default."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from trainlab import files
from trainlab.models import chat

ROPE = 100000.0  # SmolLM2's


def transformers_5(tiny_model: Path, folder: Path, **changed: Any) -> Path:
    """Write the tiny model to `folder` as transformers 5 does; `changed` keys of its config mean other random weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    shutil.copytree(tiny_model, folder)
    content = files.read_json(folder / "config.json")
    content["rope_parameters"]["rope_theta"] = ROPE
    files.write_json(folder / "config.json", {**content, **changed})
    if changed:
        torch.manual_seed(0)
        config = AutoConfig.from_pretrained(folder)
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    return folder


def transformers_4(base: Path, folder: Path) -> Path:
    """Write `base` as transformers 4 does: rope_theta, torch_dtype, the template in the tokenizer's settings."""
    shutil.copytree(base, folder)
    config = files.read_json(folder / "config.json")
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config["torch_dtype"] = config.pop("dtype")
    files.write_json(folder / "config.json", {**config, "transformers_version": "4.42.3"})
    tokenizer = files.read_json(folder / "tokenizer_config.json")
    for key in ("backend", "is_local", "local_files_only"):
        tokenizer.pop(key, None)
    template = folder / "chat_template.jinja"
    tokenizer |= {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template.read_text(encoding="utf-8")}
    files.write_json(folder / "tokenizer_config.json", tokenizer)
    template.unlink()
    return folder


def gemma(base: Path, folder: Path) -> Path:
    """Write a random Gemma 3 of text, which has two rope bases, with the tokenizer of `base`."""
    from transformers import AutoTokenizer, Gemma3ForCausalLM, Gemma3TextConfig

    tokenizer = AutoTokenizer.from_pretrained(base)
    torch.manual_seed(0)
    config = Gemma3TextConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=512,
        sliding_window=16,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": 500000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0},
        },
        initializer_range=0.3,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    Gemma3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def smollm3(base: Path, folder: Path) -> Path:
    """Write a random SmolLM3, the model of values/survival.yaml: tied head, no rotary positions in every fourth layer."""
    from transformers import SmolLM3Config

    return _random(SmolLM3Config, base, folder, num_key_value_heads=2, tie_word_embeddings=True)


def phi3(base: Path, folder: Path) -> Path:
    """Write a random Phi-3, the model of values/lyrics.yaml: one matrix for queries, keys and values, one for gate and up."""
    from transformers import Phi3Config

    return _random(Phi3Config, base, folder, original_max_position_embeddings=512, sliding_window=511)


def _random(config_class: Any, base: Path, folder: Path, **more: Any) -> Path:
    """Write four random layers with the tokenizer of `base`, whose heads have the least dimension that vLLM knows on CPU, 32."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    torch.manual_seed(0)
    config = config_class(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=512,
        initializer_range=0.15,
        **{f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")},
        **more,
    )
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def gguf(base: Path, folder: Path) -> Path:
    """Write a GGUF file of `base`'s size and tokenizer with random weights, and expand it as `trainlab fetch` does."""
    from gguf import GGUFWriter

    config, tokenizer = files.read_json(base / "config.json"), files.read_json(base / "tokenizer.json")
    hidden, inner, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    heads, kv_heads, tokens = config["num_attention_heads"], config["num_key_value_heads"], config["vocab_size"]
    folder.mkdir()
    writer = GGUFWriter(folder / "tiny.gguf", "llama")
    writer.add_block_count(layers)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(ROPE)
    writer.add_vocab_size(tokens)
    by_id = sorted(tokenizer["model"]["vocab"].items(), key=lambda one: one[1])
    special = {one["id"] for one in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([token for token, _ in by_id])
    writer.add_token_types([3 if ident in special else 1 for _, ident in by_id])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["pad_token_id"])
    writer.add_chat_template((base / "chat_template.jinja").read_text(encoding="utf-8"))
    numbers = np.random.default_rng(0)
    width = hidden // heads * kv_heads
    shapes = {"token_embd": (tokens, hidden)}
    for i in range(layers):
        shapes |= {f"blk.{i}.attn_{one}": (rows, hidden) for one, rows in (("q", hidden), ("k", width), ("v", width))}
        shapes |= {f"blk.{i}.attn_output": (hidden, hidden), f"blk.{i}.ffn_gate": (inner, hidden)}
        shapes |= {f"blk.{i}.ffn_up": (inner, hidden), f"blk.{i}.ffn_down": (hidden, inner)}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", numbers.normal(0, 0.3, shape).astype(np.float32))
    for name in ["output_norm", *(f"blk.{i}.{part}_norm" for i in range(layers) for part in ("attn", "ffn"))]:
        writer.add_tensor(f"{name}.weight", np.ones(hidden, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    chat.expand_gguf(folder, "tiny.gguf")
    return folder
