"""The section `data.hub:`: rows of a hub data set."""

from pydantic import Field

from trainlab.config.strict import Strict

KIND = "hf:"
RECIPE = "sft"  # what reads rows of a hub; running text (section_text.py) is read as it is
VERSES, QUESTIONS = ("instruction", "verse"), ("question", "answer")
NOTE = (
    "song lyrics are under copyright whatever a set's card says, and other texts may be; whether you may train on them is "
    "for you to clear: set it true when you have"
)


class Columns(Strict):
    """Which column of the set holds what; one pair of them."""

    instruction: str | None = Field(None, min_length=1, description="Column of what is asked for, beside `verse`.")
    verse: str | None = Field(None, min_length=1, description="Column of the verse that is trained on.")
    question: str | None = Field(None, min_length=1, description="Column of the question, beside `answer`.")
    answer: str | None = Field(None, min_length=1, description="Column of the answer that is trained on.")
    form: str | None = Field(
        None, min_length=1, description="Column of a verse's form (haiku ...); without it only the loss is scored."
    )


class Hub(Strict):
    """Rows of a hub data set (data.source hf:, recipe sft); null for every other source."""

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
