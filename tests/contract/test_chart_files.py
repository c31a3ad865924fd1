"""The chart's generated files and defaults are what the model in training/src/trainlab/config.py says."""

import json
import os
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel
from trainlab import schema
from trainlab.config import Phase, Site
from trainlab.sentences import block_of

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "trainjob"


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


def test_schema_keys_and_table_are_up_to_date(tmp_path: Path) -> None:
    for fresh in schema.write(tmp_path):
        kept = (CHART / fresh.name).read_text(encoding="utf-8")
        assert kept == fresh.read_text(encoding="utf-8"), f"charts/trainjob/{fresh.name} is old: run `make gen`"


def test_defaults_of_the_phase_are_up_to_date() -> None:
    text = json.dumps({"phase": defaults_of(Phase)}, indent=2) + "\n"
    path = CHART / "defaults.json"
    if os.environ.get("GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, "charts/trainjob/defaults.json is old: run `make golden`"


def test_chart_values_are_the_defaults_of_the_site() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert list(values) == ["site"], "values.yaml holds a default beside site: a phase must never have one"
    assert values["site"] == Site().model_dump(mode="json", by_alias=True)
