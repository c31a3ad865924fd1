"""The section `data:`: images, running text, or questions and answers; with `data.hub:`, rows of a hub data set."""

from typing import Literal

from pydantic import Field

from trainlab.config.references import CIFAR10, DIGITS, TOPICS, form
from trainlab.config.strict import Strict

HUB = "hf:OWNER/NAME@40-HEX-REVISION"
OWN = "builtin:NAME (a folder of the image's data sets)"
DEFAULT_PROMPT = "You are a practical skills expert. Answer correctly, plainly and briefly. Safety comes first."
VERSES, QUESTIONS = ("instruction", "verse"), ("question", "answer")


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
    """Rows of a hub data set (data.source hf:); left out for every other source."""

    columns: Columns = Columns()
    accept_license: bool = Field(
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


class Data(Strict):
    """What every recipe reads its rows from."""

    source: str  # which references it takes, each kind below says
    train_rows: int | None = Field(
        None, ge=1, description="Train on this many rows (of running text: blocks), drawn evenly; null takes all."
    )
    heldout_rows: int | None = Field(None, ge=2, description="Score this many held-out rows or blocks; null takes all.")


class ImageData(Data):
    """Images."""

    source: str = Field(
        pattern=form(DIGITS, CIFAR10, "pvc"),
        description=f"{DIGITS} (scikit-learn's), {CIFAR10} (fetched into the volume of data sets, by default the model "
        "volume), or pvc:PATH (a folder there that holds cifar-10-batches-py).",
    )


class TextData(Data):
    """Running text."""

    source: str = Field(
        pattern=form(TOPICS, "hf", "pvc"),
        description=f"{TOPICS} (the manual that Python carries), {HUB} (fetched into the volume of data sets, by default "
        "the model volume), or pvc:PATH (a file or folder of *.jsonl, *.json, *.csv, *.txt there).",
    )


class ChatData(Data):
    """Questions and answers."""

    system_prompt: str = Field(DEFAULT_PROMPT, description="The same system prompt for training, scoring and serving.")


class AnswerData(ChatData):
    """Questions with an answer each."""

    source: str = Field(
        pattern=form("builtin", "hf", "pvc"),
        description=f"{OWN}, pvc:PATH (a folder with train/*.jsonl and heldout/*.jsonl in the volume of data sets, by "
        f"default the model volume), or {HUB} (rows of a hub, see data.hub).",
    )
    hub: Hub | None = Field(None, description="Rows of a hub data set.")
    taught: Literal["dev", "test"] | None = Field(
        None,
        description="Teach the facts of the source's folder taught in all wordings that are there to train on (they come first "
        "in train_rows), and ask them after training in others: those of test, or of dev while settings are chosen.",
    )


class PairData(ChatData):
    """Questions with a chosen and a rejected answer each, or those from which such pairs are made (stage.pairs)."""

    source: str = Field(
        pattern=form("builtin", "pvc"),
        description=f"{OWN}, or pvc:PATH (a folder with train/*.jsonl and heldout/*.jsonl in the volume of data sets, by "
        "default the model volume).",
    )
