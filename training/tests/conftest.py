"""Fixtures of the package's tests: a random model small enough for milliseconds, with tokenizer and chat template."""

import inspect
import os
import sys
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny tensors: more threads only wait for each other


@pytest.hookimpl(tryfirst=True)
def pytest_make_collect_report() -> None:
    """Let torch's compiler be imported after ansible, whose object in the place of sys.intern it does not take for a function."""
    if not inspect.isroutine(patched := sys.intern):
        sys.intern = lambda *given, **named: patched(*given, **named)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """The same for what a test imports while it runs: files of Ansible may have been collected since."""
    pytest_make_collect_report()


TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tiny_model(folder: Path, seed: int = 0) -> Path:
    """Write a random two-layer Llama (vocabulary about 300, context 512, float32, tied head) to `folder`."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["the water is safe to drink when it boils for a minute"] * 4, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", bos_token="<|im_start|>", pad_token="<|endoftext|>"
    )
    fast.chat_template = TEMPLATE
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.3,  # far from uniform, so that greedy choices are clear
        bos_token_id=fast.bos_token_id,
        eos_token_id=fast.eos_token_id,
        pad_token_id=fast.pad_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny random model."""
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def phase_dict() -> dict[str, Any]:
    """A small valid phase, as JSON has it; copy before changing."""
    return {
        "name": "tiny",
        "recipe": "sft",
        "title": "Tiny phase",
        "model": {"source": "pvc:tiny", "dtype": "float32"},
        "data": {"source": "builtin:survival", "system_prompt": "Be brief."},
        "unfreeze": {"layers": 1},
        "evaluate": {"max_new_tokens": 12, "batch_size": 4, "bootstrap_samples": 200},
        "serve": {"max_tokens": 32, "max_concurrency": 4},
        "questions": ["How do I boil water?"],
    }
