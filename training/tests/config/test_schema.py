"""values.schema.json, keys.json and values.yaml follow config/."""

import json
from pathlib import Path
from typing import Any, get_args

import jsonschema
import yaml
from checkout import ROOT
from pydantic import BaseModel
from trainlab.config import Values, schema


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


def test_null_is_the_default_of_every_key_that_takes_it() -> None:
    """In a values file null removes a key, as in Helm: what it should mean would be lost."""
    seen, waiting = set[type[BaseModel]](), list[Any]([Values])
    while waiting:
        kind = waiting.pop()
        if kind in seen:
            continue
        seen.add(kind)
        for name, field in kind.model_fields.items():
            parts = [field.annotation, *_parts(field.annotation)]
            waiting += [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
            assert type(None) not in parts or field.default is None, f"{kind.__name__}.{name}"
    assert len(seen) > 20


def _parts(annotation: Any) -> list[Any]:
    """Return what a type is made of, at any depth."""
    return [part for each in get_args(annotation) for part in (each, *_parts(each))]
