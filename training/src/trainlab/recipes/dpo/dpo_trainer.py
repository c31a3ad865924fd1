"""Direct Preference Optimization (Rafailov et al., arXiv 2305.18290): TRL's DPOTrainer; called by dpo_recipe.py.

The reference is the parent, whose log-probabilities are computed once before the first step: no second model in memory
while it trains (with FSDP, TRL loads one for that pass alone). TRL keeps them next to the pairs on the run volume under
a name derived from pairs and weights, so a restarted run does not compute them again.
"""

from pathlib import Path
from typing import Any

from datasets import Dataset, load_from_disk
from transformers import set_seed
from trl import DPOConfig, DPOTrainer

from trainlab import files
from trainlab.config import DpoPhase
from trainlab.data.chat_rows import split_by_question
from trainlab.engine import acceleration, dist, training
from trainlab.engine.trainer import CheckpointedTrainer, Schedule, StepReporter, configure_callbacks, settings
from trainlab.engine.training_job import TrainingJob
from trainlab.models import chat
from trainlab.models.layers import everything

PAIRS = "pairs"


class PairTrainer(CheckpointedTrainer, DPOTrainer):
    """TRL's trainer with our checkpoints, on pairs that are already tokenized."""

    def _prepare_dataset(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the pairs as they are: models/chat.py tokenized the prompt, so training and serving see the same."""
        return dataset


def train(job: TrainingJob[DpoPhase, list[Any]]) -> dict[str, Any]:
    """Train, leave best_model/ and training_history.json; return the summary (seconds, rates, losses, parameters)."""
    phase, folder = job.phase, job.run_dir / "checkpoints"
    set_seed(phase.seed)
    counts = everything(job.model)
    rows, validation = split_by_question(job.rows, phase.train.validation_fraction, phase.seed)
    acceleration.prepare(job.model, phase, job.run_dir, job.progress.say)
    with job.progress.step(f"log-probabilities of the parent for {len(rows) + len(validation)} pairs"):
        trainer = build(job, rows, validation, folder)
    summary = training.summarize(phase, trainer, training.fit(job, trainer), counts, len(rows), len(validation))
    return {**summary, "beta": phase.stage.beta, "reference": "log-probabilities of the parent, computed once"}


def build(
    job: TrainingJob[DpoPhase, list[Any]], rows: list[Any], validation: list[Any], folder: Path, precompute: bool = True
) -> PairTrainer:
    """Return the trainer; with `precompute` it has run the model over all pairs already."""
    phase = job.phase
    stored = _stored(job, rows, validation)
    trainer = PairTrainer(
        model=job.model,
        args=config(phase, folder, bool(validation), precompute),
        train_dataset=load_from_disk(str(stored / "train")),
        eval_dataset=load_from_disk(str(stored / "validation")) if validation else None,
        processing_class=job.tokenizer,
        callbacks=[Schedule(phase.train.checkpoints, bool(validation)), StepReporter(job.progress)],
    )
    configure_callbacks(trainer, phase, job.run_dir)
    return trainer


def encode(tokenizer: Any, phase: DpoPhase, row: Any) -> dict[str, list[int]]:
    """Return the tokens of one pair: prompt_ids, chosen_ids and rejected_ids, each answer to the end of its turn.

    Raises UserError for a pair whose prompt and longer answer do not fit in `model.max_length`.
    """
    chosen = chat.encode(tokenizer, phase, row)
    rejected = chat.encode(tokenizer, phase, {**row, "answer": row["rejected"]})
    prompt = chosen["completion_mask"].index(1)
    ids = chosen["input_ids"]
    return {"prompt_ids": ids[:prompt], "chosen_ids": ids[prompt:], "rejected_ids": rejected["input_ids"][prompt:]}


def _stored(job: TrainingJob[DpoPhase, list[Any]], rows: list[Any], validation: list[Any]) -> Path:
    """Return RUN_DIR/pairs with the tokens, the same on every rank: TRL keeps the log-probabilities next to them."""
    target = job.run_dir / PAIRS
    if dist.is_main() and not target.exists():
        with files.atomic_folder(target) as folder:
            for name, part in (("train", rows), ("validation", validation)):
                if part:
                    tokens = [encode(job.tokenizer, job.phase, row) for row in part]
                    Dataset.from_list(tokens).save_to_disk(str(folder / name))
    dist.barrier()
    return target


def config(phase: DpoPhase, folder: Path, validate: bool, precompute: bool = True) -> DPOConfig:
    """Return TRL's settings for a phase."""
    return DPOConfig(
        **settings(phase, folder, validate),
        beta=phase.stage.beta,
        precompute_ref_log_probs=precompute,
        max_length=None,  # chat.encode refuses longer rows by name
        # TRL loads the reference of a sharded run itself; its default, "auto", spreads each rank's over all GPUs of the pod.
        model_init_kwargs={"device_map": None} if acceleration.sharded(phase) else None,
    )
