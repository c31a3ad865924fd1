"""The chart's generated files and defaults match the model in training/src/trainlab/config/, and its presets the values files."""

import json
import re
from pathlib import Path

import yaml
from trainlab.config import Preset, Site, schema

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "trainjob"


def test_schema_keys_and_table_are_up_to_date(tmp_path: Path) -> None:
    (tmp_path / "trainjob").mkdir()
    (tmp_path / "room").mkdir()
    for fresh in schema.write(tmp_path / "trainjob"):
        name = fresh.resolve().relative_to(tmp_path.resolve())
        kept = (ROOT / "charts" / name).read_text(encoding="utf-8")
        assert kept == fresh.read_text(encoding="utf-8"), f"charts/{name} is old: run `make gen`"


def test_what_the_charts_share_is_the_same() -> None:
    """Helm reads no file outside of a chart's folder."""
    (own, copy) = (
        (ROOT / "charts" / chart / "templates" / "_shared.tpl").read_bytes() for chart in ("trainjob", "room")
    )
    assert own == copy, "charts/room/templates/_shared.tpl is old: run `make gen`"


def test_chart_values_are_the_defaults() -> None:
    """Those of the site are comments, without which they are the site's."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    values = yaml.safe_load(text)
    assert values == {"preset": Preset().model_dump(mode="json")}, "a given value could not be told from a default"
    site = re.search(r"^# site:\n(?:# .*\n)+", text, re.MULTILINE)
    assert site
    told = yaml.safe_load(re.sub(r"^# ", "", site[0], flags=re.MULTILINE))
    assert told["site"] == Site().model_dump(mode="json", by_alias=True)


def test_presets_are_the_values_files() -> None:
    """Read with another parser than the one that writes presets.json."""
    presets = json.loads((CHART / "presets.json").read_text(encoding="utf-8"))
    files = {
        path.stem: {
            scale: yaml.safe_load(file.read_text(encoding="utf-8"))["phase"]
            for scale, file in (("full", path), ("local", path.parent / "local" / path.name))
            if file.is_file()
        }
        for path in (ROOT / "values").glob("*.yaml")
    }
    assert files and presets == files
