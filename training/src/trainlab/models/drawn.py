"""Where the randomly initialized model of a staged phase is, and the architecture of all its stages."""

import hashlib
import json
from pathlib import Path

from trainlab.config import Phase, PretrainPhase
from trainlab.models.architectures import TABLE, Architecture


def architecture(phase: Phase) -> Architecture:
    """Return the architecture that `model.source` names; config/ accepts only sizes in the table."""
    return TABLE[phase.model.source.partition(":")[2]]


def place(phase: PretrainPhase, models: Path) -> Path:
    """Return the folder of the random model; its name changes with everything that weights or tokenizer depend on."""
    depends = {
        "model": phase.model.model_dump(mode="json"),
        "data": phase.data.source,
        "text": phase.text.model_dump(mode="json"),
        "tokenizer": phase.stage.tokenizer,
        "validation": phase.train.validation_fraction,  # decides what is training text
        "seed": phase.seed,
    }
    digest = hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()[:8]
    return models / f"init-{phase.model.source.partition(':')[2].lower()}-{digest}"
