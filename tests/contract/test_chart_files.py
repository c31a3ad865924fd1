"""The chart's generated files and defaults match the model in training/src/trainlab/config/."""

from pathlib import Path

import yaml
from trainlab.config import Site, schema

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "trainjob"


def test_schema_keys_and_table_are_up_to_date(tmp_path: Path) -> None:
    for fresh in schema.write(tmp_path):
        kept = (CHART / fresh.name).read_text(encoding="utf-8")
        assert kept == fresh.read_text(encoding="utf-8"), f"charts/trainjob/{fresh.name} is old: run `make gen`"


def test_chart_values_are_the_defaults_of_the_site() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert list(values) == ["site"], "values.yaml holds a default beside site: a phase must never have one"
    assert values["site"] == Site().model_dump(mode="json", by_alias=True)
