"""The section `text:`: running text, for continued pre-training and pre-training."""

from pydantic import Field

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
