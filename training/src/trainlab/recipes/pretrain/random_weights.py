"""The first model of a staged phase: random weights from architecture and tokenizer, created once in the model volume.

`trainlab fetch` calls it; torch is imported only where weights are drawn. The number of parameters is counted, not named.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainlab import files
from trainlab.config import PretrainPhase
from trainlab.data.prepare.blocks import is_prepared
from trainlab.errors import UserError
from trainlab.models import fetch
from trainlab.models.architectures import of_phase, random_init_dir

END, START, PAD = "<|im_end|>", "<|im_start|>", "<|pad|>"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def draw(phase: PretrainPhase, models: Path, data: Path, wheels: Path | None) -> Path:
    """Make sure that the first model is in `models`; return its folder. Raises UserError with the remedy."""
    target = random_init_dir(phase, models)
    if (target / "source.json").exists():
        return target
    from filelock import FileLock

    models.mkdir(parents=True, exist_ok=True)
    with FileLock(models / f".{target.name}.lock"):
        if not (target / "source.json").exists():
            with files.atomic_folder(target) as folder:
                count = _draw(phase, folder, _tokenizer(phase, models, data, wheels))
                note = {
                    "source": phase.model.source,
                    "parameters": count,
                    "seed": phase.seed,
                    "text": _text(phase, data),
                }
                files.write_json(folder / "source.json", {**note, "sha256": files.folder_sha256(folder)})
            print(f"trainlab: drew {count:,} parameters into {target}", file=sys.stderr, flush=True)
    return target


def check_text(phase: PretrainPhase, folder: Path, data: Path) -> None:
    """Raise UserError where the tokenizer was trained on another text: text that is now held out may have shaped it."""
    known, now = files.read_json(folder / "source.json").get("text"), _text(phase, data)
    if known != now:
        raise UserError(
            f"phase.data.source is {phase.data.source}: {data} is not the text that the tokenizer in {folder} was trained "
            "on; remove that folder and run `trainlab fetch` again"
        )


def _text(phase: PretrainPhase, data: Path) -> str | None:
    """Return the digest of the text that the tokenizer is trained on, None for a tokenizer from elsewhere."""
    from trainlab.data import corpus

    if phase.stage.tokenizer != "trained" or is_prepared(data):
        return None
    return str(corpus.origin(phase, data)["sha256"])


def _draw(phase: PretrainPhase, folder: Path, tokenizer: Any) -> int:
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    from trainlab.models import export

    arch = of_phase(phase)
    if len(tokenizer) > arch.vocab:
        raise UserError(
            f"phase.stage.tokenizer is {phase.stage.tokenizer}: it has {len(tokenizer)} tokens, {arch.name} {arch.vocab}; "
            "use a larger model or another tokenizer"
        )
    config = LlamaConfig(
        **arch.config,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(phase.seed)
    dtype = torch.bfloat16 if phase.model.dtype == "bfloat16" else torch.float32
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    export.add_v4_keys(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def _tokenizer(phase: PretrainPhase, models: Path, data: Path, wheels: Path | None) -> Any:
    """Return the tokenizer with EOS, a separate pad token and a chat template, which a later stage needs."""
    from transformers import AutoTokenizer

    source = phase.stage.tokenizer
    if source != "trained":
        tokenizer = AutoTokenizer.from_pretrained(fetch.fetch(source, models, wheels))
    elif is_prepared(data):
        if not (data / "tokenizer.json").exists():
            raise UserError(
                f"phase.stage.tokenizer is trained: {data} holds tokens of another tokenizer and no tokenizer.json; name "
                "the tokenizer that made them"
            )
        tokenizer = AutoTokenizer.from_pretrained(data)
    else:
        tokenizer = _trained(phase, data)
    if not tokenizer.chat_template:
        tokenizer.chat_template = TEMPLATE
        tokenizer.add_special_tokens({"additional_special_tokens": [START, END]})
    if tokenizer.eos_token_id is None:
        tokenizer.eos_token = END
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id == tokenizer.eos_token_id:
        tokenizer.add_special_tokens({"pad_token": PAD})
    return tokenizer


def _trained(phase: PretrainPhase, data: Path) -> Any:
    """Return a byte-level BPE trained on the training text (never on held-out text), with the model's vocabulary size."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    from trainlab.data import corpus

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=of_phase(phase).vocab,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )

    def texts() -> Iterator[str]:
        yield from (document.text for document in corpus.load(phase, data).train)

    tokenizer.train_from_iterator(texts(), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, chat_template=TEMPLATE)
