"""values.schema.json, keys.json and values.yaml follow config/."""

import json
from pathlib import Path

import jsonschema
import yaml
from checkout import ROOT
from trainlab.config import schema


def test_keys_are_nested_and_end_in_true() -> None:
    keys = schema.allowed_keys()
    assert set(keys) == {"phase", "preset", "site"}
    assert keys["phase"]["sft"]["train"]["epochs"] is True and keys["site"]["storage"]["models"]["accessMode"] is True
    assert keys["site"]["nodeSelector"] is True and keys["phase"]["cpt"]["questions"] is True
    assert "vision" in keys["phase"]["resnet"] and "vision" not in keys["phase"]["sft"]


def test_schema_knows_bounds_and_leaves_unknown_keys_to_the_one_sentence() -> None:
    content = schema.json_schema()
    jsonschema.Draft7Validator.check_schema(content)
    assert "additionalProperties" not in json.dumps(content).replace('"additionalProperties": {', "").replace(
        '"additionalProperties": true', ""
    )
    values = yaml.safe_load((ROOT / "values/survival.yaml").read_text())
    check = jsonschema.Draft7Validator(content)
    assert check.is_valid(values)
    values["phase"]["train"]["epoch"] = 1
    assert check.is_valid(values)
    values["phase"]["train"]["batch_size"] = 0
    assert [list(e.path) for e in check.iter_errors(values)] == [["phase", "train", "batch_size"]]


def test_write_changes_nothing_the_second_time(tmp_path: Path) -> None:
    assert {p.name for p in schema.write(tmp_path)} == {
        *("values.schema.json", "keys.json", "defaults.json", "presets.json", "rules.json", "values.yaml")
    }
    assert schema.write(tmp_path) == []
    text = (tmp_path / "values.yaml").read_text()
    assert "# [all; integer >= 1, <= 1024; 8] " in text and "# [auto, kubernetes, openshift] Kubernetes leaves" in text
