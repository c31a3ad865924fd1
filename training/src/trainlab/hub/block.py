"""The block `data.hub:` of a values file and the rules over it; imported by config.py, so it must not import torch."""

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from trainlab.config import Phase

KIND = "hf:"
RECIPE = "sft"  # what reads rows of a hub; running text (text/block.py) is read as it is
VERSES, QUESTIONS = ("instruction", "verse"), ("question", "answer")
NOTE = (
    "song lyrics are under copyright whatever a set's card says, and other texts may be; whether you may train on them is "
    "for you to clear: set it true when you have"
)


class Columns(BaseModel):
    """Which column of the set holds what; one pair of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    instruction: str | None = Field(None, min_length=1, description="Column of what is asked for, beside `verse`.")
    verse: str | None = Field(None, min_length=1, description="Column of the verse that is trained on.")
    question: str | None = Field(None, min_length=1, description="Column of the question, beside `answer`.")
    answer: str | None = Field(None, min_length=1, description="Column of the answer that is trained on.")
    form: str | None = Field(
        None, min_length=1, description="Column of a verse's form (haiku ...); without it only the loss is scored."
    )


class Hub(BaseModel):
    """Rows of a hub data set (data.source hf:, recipe sft); null for every other source."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    columns: Columns = Columns()
    accept_licence: bool = Field(
        False,
        description="true says that you have cleared that you may train on the set's texts; without it nothing is fetched.",
    )
    config: str | None = Field(None, min_length=1, description="Configuration of the set, where it has several.")
    split: str = Field("train", min_length=1, description="Split that is read; train and held-out rows come from it.")
    fetch_rows: int = Field(
        20000, ge=0, description="Read so many rows from the split's beginning and no more from the hub; 0 reads all."
    )
    heldout_fraction: float = Field(
        0.1, gt=0, lt=0.5, description="Share of the verses (or questions) that is scored and never trained on."
    )


def problem(phase: "Phase") -> str | None:
    """Return what does not fit together in a phase as `key: reason; remedy` below phase, None when all is well."""
    source, hub = phase.data.source, phase.data.hub
    if phase.recipe != RECIPE or not source.startswith(KIND):
        if hub not in (None, Hub()):
            return f"data.hub: data.source {source} with recipe {phase.recipe} does not read this block; remove it"
        return None
    if phase.stage.name:
        return (
            f"data.source: {source} in stage {phase.stage.name}; rows of a hub are measured with the model's tokenizer, "
            "which a stage gets from its parent: set a pvc: folder"
        )
    if hub is None or not hub.accept_licence:
        return f"data.hub.accept_licence: false with data.source {source}; {NOTE}"
    named = [name for name in Columns.model_fields if getattr(hub.columns, name) is not None]
    verses, questions = ([name for name in pair if name in named] for pair in (VERSES, QUESTIONS))
    if questions and (verses or "form" in named):
        return f"data.hub.columns: {', '.join(named)} do not go together; name instruction, verse and form, or question and answer"
    for pair, have in ((VERSES, verses), (QUESTIONS, questions)):
        if len(have) == 1:
            return (
                f"data.hub.columns: {have[0]} alone; name {' and '.join(pair)}, or neither for columns of these names"
            )
    return None
