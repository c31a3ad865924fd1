"""Direct Preference Optimization of a parent stage (Rafailov et al., arXiv 2305.18290): pairs of answers; TRL's DPOTrainer.

The reference is the parent, whose log-probabilities are computed once before the first step: no second model in memory
while it trains (with FSDP, TRL loads one for that pass alone). TRL keeps them next to the pairs on the run volume under
a name derived from pairs and weights, so a restarted run does not compute them again.

Pairs that are given: rows {"id", "question", "chosen", "rejected"} in train/*.jsonl and heldout/*.jsonl. truncated_answers: a data
set of questions (data/chat_rows.py), where each answer's first half is the rejected one: what is learned is to finish an answer.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlab import files
from trainlab.config import DpoPhase
from trainlab.data import chat_rows, row_files
from trainlab.errors import UserError
from trainlab.evaluation import answer_gate, gate
from trainlab.recipes import language
from trainlab.recipes.base import Run, Scores

if TYPE_CHECKING:
    from trl import DPOConfig

    from trainlab.engine.trainer import TrainingJob

SCORES = {"preference_margin": "pairs", "preference_accuracy": "pairs", **answer_gate.SCORES}
PAIRS = gate.Unit("held-out pairs", "questions", "raise phase.data.heldout_rows, or add pairs")
FOLDER = "pairs"
fetch, data_dir = language.fetch, language.data_dir
probe, report, serve = language.probe, language.report, language.serve


def preflight(phase: DpoPhase, model_dir: Path, data_dir: Path, models: Path | None = None) -> None:
    """Raise UserError for a missing model or broken pairs."""
    language.check_chat(phase, model_dir, data_dir, read_rows)
    if phase.data.validation:
        read_validation(phase, data_dir, models)


def origin(phase: DpoPhase, model_dir: Path, data_dir: Path, models: Path | None = None) -> dict[str, dict[str, Any]]:
    """Return where model and rows come from."""
    folder = row_files.validation_folder(phase.data, models) if phase.data.validation else None
    return language.with_validation(language.origin(phase, model_dir, data_dir), phase, folder)


def preload() -> None:
    """Import the trainers and scores."""
    language.preload()
    trainer_class()


def read_rows(phase: DpoPhase, path: Path) -> tuple[list[Any], list[Any]]:
    """Return (training, held-out) rows of chat_rows.py plus `rejected`; raises UserError with file and line."""
    if phase.stage.pairs == "given":
        train, heldout = (_pairs(row_files.lines(path / part)) for part in ("train", "heldout"))
        # as in chat_rows: pairs of one question have its id, so that all of them are on one side of the validation
        train = [{**row, "id": row.get("group", row["id"])} for row in train]
        return chat_rows.even(train, phase.data.train_rows), chat_rows.even(heldout, phase.data.heldout_rows)
    sides: list[Any] = [chat_rows.load_train(phase.data, path), chat_rows.load_heldout(phase.data, path)]
    return _truncated(sides[0]), _truncated(sides[1])


def read_validation(phase: DpoPhase, path: Path, models: Path | None) -> tuple[list[Any], list[str]]:
    """Return the rows of data.validation, and the places of those that are left out; raises UserError with file and line."""
    folder = row_files.validation_folder(phase.data, models)
    if phase.stage.pairs == "given":
        kept, left_out = row_files.validation_lines(phase.data, path, folder)
        return _pairs(kept), left_out
    rows, left_out = chat_rows.load_validation(phase.data, path, folder)
    return _truncated(rows), left_out


def _truncated(rows: Sequence[Any]) -> list[Any]:
    return [{**row, "rejected": truncated_answers(row["id"], row["answer"])} for row in rows]


def truncated_answers(name: str, answer: str) -> str:
    """Return the first half of the words of an answer (rounded down), without trailing punctuation."""
    words = answer.split()
    if len(words) < 2:
        raise UserError(
            f"row {name}: its answer is one word, which cannot be truncated; supply pairs with stage.pairs given"
        )
    return " ".join(words[: len(words) // 2]).rstrip(".,;:!?")


def _pairs(lines: Iterable[row_files.Line]) -> list[Any]:
    rows: list[Any] = []
    asked: dict[str, str] = {}
    for line in lines:
        texts = line.texts("id", "question", "chosen", "rejected")
        if texts["chosen"].split() == texts["rejected"].split():
            raise UserError(
                f"{line.at}: chosen and rejected are identical: {texts['chosen'][:60]!r}; a pair needs two answers: fix the line or "
                "remove it"
            )
        answers = {"answer": texts["chosen"], "rejected": texts["rejected"]}
        row = {"id": texts["id"], "topic": line.topic, "question": texts["question"], **answers, "facts": []}
        rows.append(row | row_files.group_of(texts["id"], texts["question"], asked))
    return rows


def train(run: Run) -> tuple[Scores, Scores]:
    """Load, score, train, score what is served; every rank calls it."""
    loaded = language.load_base(run)
    rows, heldout = read_rows(run.phase, run.data_dir)
    run.memory.mark("load")
    before = language.scored(run, "before", loaded, heldout, score, digest=language.digest(run))
    language.fit(run, fit, loaded, rows, language.own_validation(run, read_validation))
    del loaded
    return before, language.scored(run, "after", language.load_tuned(run), heldout, score)


def rescore(run: Run) -> None:
    """Score both models of a finished run again."""
    __, heldout = read_rows(run.phase, run.data_dir)
    for name, load in (("before", language.load_base), ("after", language.load_tuned)):
        language.rescored(run, name, load(run), heldout, score)


def score(model: Any, tokenizer: Any, phase: DpoPhase, heldout: Sequence[Any], questions: Sequence[str] = ()) -> Scores:
    """Return the scores of answers, plus the log-probability of each chosen and rejected answer, in nats, the end of the turn
    included."""
    from trainlab.engine import dist
    from trainlab.evaluation import answer_score

    scores = answer_score.score(model, tokenizer, phase, heldout, questions=questions)
    own = heldout[dist.rank() :: dist.world_size()]
    losses = answer_score.losses(model, tokenizer, phase, [{**row, "answer": row["rejected"]} for row in own])
    rejected = {row["id"]: -mean * count for row, (mean, count) in zip(own, losses, strict=True)}
    logps = {key: value for part in dist.gather(rejected) for key, value in part.items()}
    for item in scores["items"]:
        item["chosen_logp"] = -item["loss"] * item["tokens"]
        item["rejected_logp"] = logps[item["id"]]
    return scores


def fit(job: "TrainingJob") -> dict[str, Any]:
    """Train, leave best_model/ and training_history.json; return the summary (seconds, rates, losses, parameters)."""
    from transformers import set_seed

    from trainlab.engine import acceleration, trainer
    from trainlab.engine.compiled import uncompiled
    from trainlab.models.layers import everything

    phase: DpoPhase = job.phase
    set_seed(phase.seed)
    counts = everything(job.model)
    rows, validation = language.divided(job)
    acceleration.prepare(job.model, phase, job.run_dir, job.progress.say)
    pairs = len(rows) + len(validation)
    with uncompiled(phase.stage.compile), job.progress.step(f"log-probabilities of the parent for {pairs} pairs"):
        built = build(job, rows, validation)
    summary = trainer.summarize(phase, built, trainer.fit(job, built), len(rows), len(validation))
    reference = "log-probabilities of the parent, computed once"
    return {**summary, "parameters": counts, "beta": phase.stage.beta, "reference": reference}


def trainer_class() -> Any:
    """Return TRL's trainer with our checkpoints, on pairs that models/chat.py tokenized: training and serving see the same."""
    from trl import DPOTrainer

    from trainlab.engine.trainer import CheckpointedTrainer

    return type(
        "PairTrainer",
        (CheckpointedTrainer, DPOTrainer),
        {"_prepare_dataset": lambda _self, pairs, *_rows, **_options: pairs},
    )


def build(job: "TrainingJob", rows: list[Any], validation: list[Any], precompute: bool = True) -> Any:
    """Return the trainer; with `precompute` it has run the model over all pairs already."""
    from datasets import load_from_disk

    from trainlab.engine import trainer

    stored = _stored(job, rows, validation)
    built = trainer_class()(
        model=job.model,
        args=config(job.phase, job.run_dir / "checkpoints", bool(validation), precompute),
        train_dataset=load_from_disk(str(stored / "train")),
        eval_dataset=load_from_disk(str(stored / "validation")) if validation else None,
        processing_class=job.tokenizer,
    )
    trainer.configure_callbacks(built, job)
    return built


def encode(tokenizer: Any, phase: DpoPhase, row: Any) -> dict[str, list[int]]:
    """Return the tokens of one pair: prompt_ids, chosen_ids and rejected_ids, each answer to the end of its turn.

    Raises UserError for a pair whose prompt and longer answer do not fit in `model.max_length`.
    """
    from trainlab.models import chat

    chosen = chat.encode(tokenizer, phase, row)
    rejected = chat.encode(tokenizer, phase, {**row, "answer": row["rejected"]})
    prompt, ids = chosen["completion_mask"].index(1), chosen["input_ids"]
    return {"prompt_ids": ids[:prompt], "chosen_ids": ids[prompt:], "rejected_ids": rejected["input_ids"][prompt:]}


def _stored(job: "TrainingJob", rows: list[Any], validation: list[Any]) -> Path:
    """Return RUN_DIR/pairs with the tokens, the same on every rank: TRL keeps the log-probabilities next to them."""
    from datasets import Dataset

    from trainlab.engine import dist

    target = job.run_dir / FOLDER
    if dist.is_main() and not target.exists():
        with files.atomic_folder(target) as folder:
            for name, part in (("train", rows), ("validation", validation)):
                if part:
                    tokens = [encode(job.tokenizer, job.phase, row) for row in part]
                    Dataset.from_list(tokens).save_to_disk(str(folder / name))
    dist.barrier()
    return target


def config(phase: DpoPhase, folder: Path, validate: bool, precompute: bool = True) -> "DPOConfig":
    """Return TRL's settings for a phase."""
    from trl import DPOConfig

    from trainlab.engine import acceleration
    from trainlab.engine.compiled import padded_length
    from trainlab.engine.trainer import settings

    return DPOConfig(
        **settings(phase, folder, validate),
        beta=phase.stage.beta,
        precompute_ref_log_probs=precompute,
        max_length=None,  # chat.encode refuses longer rows by name
        pad_to_multiple_of=padded_length(phase),
        # TRL loads the reference of a sharded run itself; its default, "auto", spreads each rank's over all GPUs of the pod.
        model_init_kwargs={"device_map": None} if acceleration.sharded(phase) else None,
    )


def decide(before: Scores, after: Scores, phase: DpoPhase) -> dict[str, Any]:
    """Return the content of gate.json; a pair's margin is beta x (how much more the chosen gained than the rejected), in nats.

    Promoted only if the interval of the margin lies above `gate.min_gain`, more than `stage.min_preference_accuracy` of the
    pairs moved in the right direction, and the loss on right answers rose by at most `stage.max_answer_loss_rise`. Raises
    UserError if the two do not cover the same pairs.
    """
    pairs, stage = gate.paired(before, after), phase.stage
    leads = [
        ({**a, "margin": 0.0}, {**b, "margin": stage.beta * (_lead(b) - _lead(a))}) for a, b in pairs
    ]  # the parent against itself
    gain, loss = gate.compared(leads, "margin", phase), gate.compared(pairs, "loss", phase)
    share = sum(b["margin"] > 0 for __, b in leads) / len(leads)
    change = ""
    if gain:
        change = (
            f"Compared with its parent, the model prefers the chosen answer by {gain['mean']:+.3f} nats of reward over "
            f"{PAIRS.count(gain)}"
        )
    moved = "The share of held-out pairs that moved in the right direction"
    rise, rose = round(-loss["mean"], 9) if loss else None, "The rise in the loss on right answers, in nats per token,"
    conditions = [
        gate.min_gain(gain, phase, PAIRS, change),
        gate.bounded("min_preference_accuracy", share, gate.ABOVE, stage.min_preference_accuracy, moved),
        gate.bounded("max_answer_loss_rise", rise, gate.AT_MOST, stage.max_answer_loss_rise, rose),
    ]
    scores = {
        "preference_margin": gain,
        "answer_loss": loss,
        "fact_recall": answer_gate.shown_recall(gate.compared(pairs, "recall", phase)),
        "preference_accuracy": share,
    }
    return gate.decision(phase, gain, conditions, scores)


def _lead(item: gate.Scores) -> float:
    """Return by how many nats the chosen answer is likelier than the rejected one."""
    return float(item["chosen_logp"] - item["rejected_logp"])
