"""The section `data:`: images, running text, or questions and answers; with `data.hub:`, rows of a hub data set."""

from typing import Literal

from pydantic import Field

from trainlab.config.references import CIFAR10, DIGITS, TOPICS, form
from trainlab.config.strict import Strict

HUB = "hf:OWNER/NAME@40-HEX-REVISION"
OWN = "builtin:NAME (one of the data sets in the image)"
DEFAULT_PROMPT = "You are a practical skills expert. Answer correctly, plainly and briefly. Safety comes first."
VERSES, QUESTIONS = ("instruction", "verse"), ("question", "answer")


class Columns(Strict):
    """Which column of the data set holds what; name one pair."""

    instruction: str | None = Field(None, min_length=1, description="Column with the request, paired with `verse`.")
    verse: str | None = Field(None, min_length=1, description="Column with the verse to train on.")
    question: str | None = Field(None, min_length=1, description="Column with the question, paired with `answer`.")
    answer: str | None = Field(None, min_length=1, description="Column with the answer to train on.")
    form: str | None = Field(
        None, min_length=1, description="Column with the verse form (haiku ...); without it, only the loss is scored."
    )


class Hub(Strict):
    """Rows of a hub data set (data.source hf:); omitted for any other source."""

    columns: Columns = Columns()
    accept_license: bool = Field(
        False,
        description="true confirms that you have cleared the rights to train on the set's texts; otherwise nothing is "
        "fetched.",
    )
    config: str | None = Field(None, min_length=1, description="Configuration of the data set, if it has several.")
    split: str = Field(
        "train", min_length=1, description="Split to read; both training and held-out rows come from it."
    )
    fetch_rows: int = Field(
        20000,
        ge=0,
        description="Read this many rows from the start of the split and fetch no more from the hub; 0 reads all.",
    )
    heldout_fraction: float = Field(
        0.1, gt=0, lt=0.5, description="Share of the verses (or questions) that is scored and never trained on."
    )


class Data(Strict):
    """What every recipe reads its rows from."""

    source: str  # each kind below says which references it takes
    train_rows: int | None = Field(
        None, ge=1, description="Train on this many rows (blocks of running text), drawn evenly; null uses all."
    )
    heldout_rows: int | None = Field(None, ge=2, description="Score this many held-out rows or blocks; null uses all.")


class ImageData(Data):
    """Images."""

    source: str = Field(
        pattern=form(DIGITS, CIFAR10, "pvc"),
        description=f"{DIGITS} (scikit-learn's), {CIFAR10} (fetched into the data volume, by default the model "
        "volume), or pvc:PATH (a folder there that holds cifar-10-batches-py).",
    )


class TextData(Data):
    """Running text."""

    source: str = Field(
        pattern=form(TOPICS, "hf", "pvc"),
        description=f"{TOPICS} (the manual that ships with Python), {HUB} (fetched into the data volume, by default "
        "the model volume), or pvc:PATH (a file or folder of *.jsonl, *.json, *.csv, *.txt, *.parquet there).",
    )


class ChatData(Data):
    """Questions and answers."""

    system_prompt: str = Field(DEFAULT_PROMPT, description="System prompt, the same for training, scoring and serving.")


class AnswerData(ChatData):
    """Questions, each with an answer."""

    source: str = Field(
        pattern=form("builtin", "hf", "pvc"),
        description=f"{OWN}, pvc:PATH (a folder with train/*.jsonl and heldout/*.jsonl in the data volume, by default "
        f"the model volume), or {HUB} (rows of a hub data set, see data.hub).",
    )
    hub: Hub | None = Field(None, description="Rows of a hub data set.")
    taught: Literal["dev", "test"] | None = Field(
        None,
        description="Teach the facts in the source's folder taught in all of their training wordings (these come first "
        "in train_rows), and ask them after training in others: those of test, or of dev while tuning settings.",
    )
    label_line: bool = Field(
        False,
        description="Each answer starts with a line such as `Topic: first aid. Emergency: yes.` (the topic is the name of "
        'the row\'s file; a row says "emergency": true); how often it is right is scored on questions never taught.',
    )
    taught_wordings: int | None = Field(
        None, ge=1, description="Teach each fact in this many of its training wordings, the first ones; null uses all."
    )
    refused_rows: int | None = Field(
        0,
        ge=0,
        description="With data.taught, train besides train_rows on this many questions whose answer is a refusal (the source's refusals.json): "
        "near misses of the taught facts first, then the emergencies of its folder refused, then its other questions and "
        "those of train that are not taught; null uses all, 0 teaches no refusal.",
    )
    style: Literal["plain", "steps"] = Field(
        "plain",
        description="With data.taught, answer the facts as plain text, or in numbered steps with a warning and an alternative where the "
        "source has them.",
    )

    @property
    def refuses(self) -> bool:
        """Whether refusals are taught."""
        return self.taught is not None and self.refused_rows != 0


class PairData(ChatData):
    """Questions, each with a chosen and a rejected answer, or those from which such pairs are made (stage.pairs)."""

    source: str = Field(
        pattern=form("builtin", "pvc"),
        description=f"{OWN}, or pvc:PATH (a folder with train/*.jsonl and heldout/*.jsonl in the data volume, by "
        "default the model volume).",
    )
