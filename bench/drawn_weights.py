"""Random weights of a published architecture, a tokenizer and text, where no hub is reachable; used by one_gpu.py."""

import json
import sysconfig
from dataclasses import replace
from pathlib import Path
from typing import Any

from one_gpu_cases import TEXT

REPO = Path(__file__).resolve().parents[1]
CHUNK = 1_000_000  # characters of source code that are enough for a smoke


def code(models: Path) -> Path:
    """Return the file of text below the folder of base models."""
    return models / TEXT.removeprefix("pvc:") / "stdlib.jsonl"


def write_code(models: Path, smoke: bool) -> None:
    """Write the standard library's modules, one document each, below the folder of base models."""
    target = code(models)
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    root, lines, size = Path(sysconfig.get_path("stdlib")), [], 0
    for path in sorted(root.rglob("*.py")):
        if {"site-packages", "dist-packages", "test", "tests"} & set(path.relative_to(root).parts):
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        if not text.strip() or (smoke and size > CHUNK):
            continue
        size += len(text)
        lines.append(json.dumps({"text": text}))
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


def draw(kind: str, source: str, work: Path, smoke: bool) -> None:
    """Write random weights of the architecture of `source` where `trainlab fetch` would put the real ones, with a tokenizer.

    `kind` is its class in transformers (config.json, model_type); sizes are the planner's. A smoke draws a tiny one.
    """
    import torch
    from trainlab import files
    from trainlab.models import architectures
    from trainlab.models.fetch import model_dir
    from transformers import AutoConfig, AutoModelForCausalLM

    target, arch = model_dir(source, work / "models"), architectures.find(source)
    if (target / "source.json").exists():
        return
    if arch is None:
        raise LookupError(f"{source}: not in the planner's table of architectures")
    tokens = tokenizer(work)
    arch = replace(arch, context=4096)
    if smoke:
        arch = replace(arch, hidden=64, intermediate=128, heads=4, kv_heads=1, head_dim=0)
    shape = {
        **arch.config,
        "bos_token_id": None,
        "eos_token_id": tokens.eos_token_id,
        "pad_token_id": tokens.pad_token_id,
    }
    torch.manual_seed(42)
    with torch.device("cpu" if smoke else "cuda"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **shape), dtype=torch.bfloat16)
    with files.atomic_folder(target) as folder:
        model.save_pretrained(folder)
        tokens.save_pretrained(folder)
        note = {"source": source, "license": "random weights", "parameters": model.num_parameters()}
        files.write_json(folder / "source.json", {**note, "sha256": files.folder_sha256(folder, "*.json")})
    del model
    torch.cuda.empty_cache()


def tokenizer(work: Path) -> Any:
    """Return a byte-level BPE of at most 31,000 tokens, trained on the data sets and the code, with a chat template."""
    from tokenizers import ByteLevelBPETokenizer
    from trainlab.recipes.pretrain import END, PAD, START, TEMPLATE
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    folder = work / "tokenizer"
    if not folder.exists():
        bpe = ByteLevelBPETokenizer()
        paths = [*sorted((REPO / "data").rglob("*.jsonl")), code(work / "models")]
        bpe.train([str(path) for path in paths], vocab_size=31_000, special_tokens=[END, START, PAD])
        made = PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, eos_token=END, pad_token=PAD)
        made.chat_template = TEMPLATE
        made.save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)
