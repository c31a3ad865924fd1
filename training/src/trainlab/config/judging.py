"""The sections `evaluate:` and `gate:`: how base and tuned model are compared, and when the tuned one may be served."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from trainlab.config.types import PATH, Strict

TASK = rf"^(pvc:{PATH}\.ya?ml|[A-Za-z0-9][A-Za-z0-9_.+-]*)$"


class Evaluate(Strict):
    """How base and tuned model are compared on the held-out rows."""

    batch_size: int = Field(8, ge=1, le=1024, description="Rows scored, or prompts answered, at once.")
    bootstrap_samples: int = Field(2000, ge=100, le=100000)
    """Random samples behind each interval (sign flips of facts, documents or questions); of twelve or fewer, all are
    taken."""
    confidence: float = Field(0.95, gt=0.5, le=0.999)
    """Two-sided level of the intervals; 0.95 takes six facts, documents or questions."""


class LanguageEvaluate(Evaluate):
    """The same for language models, which also answer questions and can run benchmark tasks."""

    max_new_tokens: int = Field(128, ge=1, le=8192, description="Longest generated answer.")
    tasks: tuple[Annotated[str, StringConstraints(pattern=TASK)], ...] = ()
    """lm-evaluation-harness tasks, reported but without effect on promotion: names that it knows, e.g. arc_easy
    (`trainlab fetch` gets their data from the hub), or pvc:PATH.yaml, a task of your own in the model volume with its
    data files next to it."""
    task_limit: int | None = Field(None, ge=1)
    """Use only this many items of each task, the first ones; null uses all."""
    few_shot: int | None = Field(None, ge=0, le=100)
    """Solved examples in each prompt of a task; null uses the task's default."""


class AnswerEvaluate(LanguageEvaluate):
    """The same for models that answer the held-out questions."""

    generate_rows: int | None = Field(None, ge=1)
    """Generate answers for this many held-out rows (fact recall), and as many of each kind besides, but for all that
    ask taught facts; null uses all."""


class TaughtEvaluate(AnswerEvaluate):
    """The same for models that are taught facts."""

    probes: tuple[Literal["retention", "ceiling", "reversed", "composed"], ...] = ()
    """With data.taught, ask as well: what the base knew of other topics (retention), taught facts with the answer in
    the question (ceiling), from the answer back to the subject (reversed), and two at once (composed)."""


class Gate(Strict):
    """When a tuned model may be served."""

    metric: str  # each kind below lists its metrics
    min_gain: float = Field(0.0, ge=0)
    """The lower bound of the gain's interval must exceed this (nats, or a share)."""


class ImageGate(Gate):
    """The gate for image classifiers."""

    metric: Literal["accuracy"] = Field("accuracy", description="The score that decides.")


class TextGate(Gate):
    """The gate for models of running text."""

    metric: Literal["perplexity"] = Field("perplexity", description="The score that decides.")


class PairGate(Gate):
    """The gate for preference tuning."""

    metric: Literal["preference_margin"] = Field("preference_margin", description="The score that decides.")


class AnswerGate(Gate):
    """The gate for models that answer questions."""

    metric: Literal["answer_loss", "taught_recall", "fact_recall", "form_adherence"] = "answer_loss"
    """The score that decides; with taught_recall (see data.taught) the answer loss must not get worse either."""
    require_taught: bool = True
    """With data.taught the recall of taught facts must rise, whatever decides besides, in stages as well; false
    promotes a model that learned the manner of the answers only."""
    max_fact_recall_drop: float = Field(0.05, ge=0, le=1)
    """Fact recall may be below the base's by at most this share."""
    min_refused: float | None = Field(None, ge=0, le=1)
    """With data.refused_rows, at least this share of the questions that were never taught must be refused; null asks
    for none, as the share that can be had depends on the model's size."""
    max_taught_refused: float | None = Field(None, ge=0, le=1)
    """With data.refused_rows, at most this share of the questions about taught facts may be refused; null asks for
    none, as the recall of taught facts counts each of them as well."""
    max_form_adherence_drop: float = Field(0.05, ge=0, le=1)
    """Form adherence of verses may be below the base's by at most this share."""


class OwnedGate(Gate):
    """The gate of each owner's adapter."""

    metric: Literal["owned_recall"] = Field("owned_recall", description="The score of all owners together.")
    min_recall: float = Field(0.5, ge=0, le=1)
    """At least this share of the wordings that were not trained on must be answered with the fact."""
    max_elsewhere: float = Field(0.25, ge=0, le=1)
    """At most this share of the questions about something else may be answered with the fact."""
