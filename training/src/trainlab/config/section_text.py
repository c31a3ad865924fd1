"""The section `text:`: running text, for continued pre-training and pre-training."""

from pydantic import Field

from trainlab.config.references import TOPICS, form
from trainlab.config.strict import Strict


class Text(Strict):
    """How running text is read and split."""

    column: str | None = Field(
        None, description="Column with the text; null uses the one named text, else the only one that holds text."
    )
    hub_config: str | None = Field(None, description="Configuration of a hub data set, e.g. wikitext-2-raw-v1.")
    document_start: str | None = Field(
        None,
        description="Regular expression: a row (or a line of a TXT file) that it matches starts a new document; null "
        "makes each row (and each TXT file) one document. ^$ splits a TXT file at its empty lines.",
    )
    heldout_fraction: float = Field(
        0.1, gt=0, lt=0.5, description="Share of the text (whole documents) that is scored and never trained on."
    )


class TunedText(Text):
    """The same for an existing model, part of which may stay frozen."""

    train_all: bool = Field(True, description="Train all weights; false trains what `unfreeze` names.")


class Prepare(Strict):
    """`trainlab prepare` before training: blocks of model.max_length tokens in the folder that data.source names."""

    source: str = Field(
        pattern=form(TOPICS, "pvc"),
        description=f"{TOPICS} (the manual that ships with Python), or pvc:PATH (a file or folder of *.jsonl, *.json, "
        "*.csv, *.txt, *.parquet in the data volume, by default the model volume).",
    )
    min_chars: int = Field(50, ge=1, description="Documents with fewer characters are dropped.")
    near: float = Field(
        0.8,
        ge=0,
        le=1,
        description="Documents whose word 5-grams are this similar to an earlier one (Jaccard) are dropped, from 0.3; 0 "
        "drops only equal ones.",
    )
    skip_bad: int = Field(0, ge=0, description="Unusable rows that are skipped and counted; one more is an error.")


class PretrainText(Text):
    """The same for pre-training, which can read prepared blocks."""

    prepare: Prepare | None = Field(
        None, description="Clean, deduplicate and pack this text first; null takes data.source as it is."
    )
