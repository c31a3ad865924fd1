"""The chart's defaults.json: the defaults of a phase, which its templates need and Helm cannot read from a schema."""

import json
from typing import Any

from pydantic import BaseModel
from trainlab.config import Phase
from trainlab.sentences import block_of


def defaults_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the defaults of a block of keys as nested mappings; what is required or null by default is left out."""
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        block = block_of(field)
        if block:
            found[field.alias or name] = defaults_of(block)
        elif not field.is_required() and field.default is not None:
            found[field.alias or name] = field.default
    return found


def phase_defaults() -> str:
    """Return the text of charts/trainjob/defaults.json."""
    return json.dumps({"phase": defaults_of(Phase)}, indent=2) + "\n"
