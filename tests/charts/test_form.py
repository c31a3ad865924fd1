"""The form that OpenShift's console makes of the chart, and what it sends.

The console is not run here: `fields` and `prune` do what its source does (openshift/console, frontend/packages: helm-plugin,
HelmInstallUpgradePage.tsx; console-shared, dynamic-form/utils.ts, widgets.tsx).
"""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from trainlab.config import PHASES, preset
from trainlab.config.schema import CONSOLE_KEYS, allowed_keys

from charts.rendering import CHART, HELMS, IMAGE, VALUES, Document, helm

TEXT = (CHART / "values.schema.json").read_text(encoding="utf-8")
SCHEMA = json.loads(TEXT)
SCALARS = ("string", "boolean", "integer", "number")
UNSUPPORTED = {"allOf", "anyOf", "oneOf", "$ref", "if", "then", "else", "not", "dependencies", "additionalProperties"}
"""Keywords for which the console makes no field, in some release or in all."""


def type_of(node: Document) -> Any:
    """Return the type of a node: of two, the one that is not null."""
    given = node.get("type")
    return next(one for one in given if one != "null") if isinstance(given, list) and len(given) == 2 else given


def fields(node: Document, at: str = "") -> Iterator[tuple[str, Document]]:
    """Yield key and schema of each field of the form: scalars below `properties`, and nothing by pattern."""
    assert not UNSUPPORTED & set(node), f"{at}: {sorted(UNSUPPORTED & set(node))}"
    if type_of(node) in SCALARS:
        yield at, node
    for name, below in node.get("properties", {}).items():
        yield from fields(below, f"{at}.{name}".lstrip("."))


def prune(node: Any) -> Any:
    """Return what is left of the form's data: no empty text, list or mapping, no null."""
    if not isinstance(node, dict):
        return node
    left = {key: prune(value) for key, value in node.items()}
    return {key: value for key, value in left.items() if value is not None and value not in ("", [], {})}


def sent(**answers: str) -> Document:
    """Return the values that the form sends: the chart's defaults with the answers, dots in keys as `__`."""
    data = copy.deepcopy(yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8")))
    for key, answer in answers.items():
        *blocks, name = key.split("__")
        node = data
        for block in blocks:
            node = node.setdefault(block, {})
        node[name] = answer
    result: Document = prune(data)
    return result


def test_it_asks_five_questions_at_most() -> None:
    root = {key: value for key, value in SCHEMA.items() if key not in ("definitions", "patternProperties")}
    asked = dict(fields(root))
    assert asked.keys() == CONSOLE_KEYS.keys() and 0 < len(asked) <= 5
    for key, node in asked.items():
        assert node["title"] == CONSOLE_KEYS[key] and node["description"], key
        assert None not in node.get("enum", []), f"{key}: a null is a choice named null"
    assert asked["preset.phase"]["enum"] == ["", *preset.names()]


def test_the_console_can_read_it() -> None:
    """It decodes base64 byte by byte, and newer drafts than 7 made its form hang (OCPBUGS-14874)."""
    assert TEXT.isascii()
    assert SCHEMA["$schema"] == "http://json-schema.org/draft-07/schema#"
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert "$id" not in TEXT and all(reference.startswith("#/") for reference in references(SCHEMA))


def references(node: Any) -> Iterator[str]:
    """Yield each `$ref`; chart-verifier's profile for the console refuses remote ones."""
    if isinstance(node, list | dict):
        for one in node.values() if isinstance(node, dict) else node:
            yield from references(one)
    if isinstance(node, dict) and isinstance(node.get("$ref"), str):
        yield node["$ref"]


def leaves(keys: Document, at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the path of each key that holds no block."""
    for key, below in keys.items():
        if isinstance(below, dict):
            yield from leaves(below, (*at, key))
        else:
            yield (*at, key)


@pytest.mark.parametrize("block", ["site", "preset", *(f"phase of {recipe}" for recipe in PHASES)])
def test_keys_that_it_does_not_ask_for_are_validated_all_the_same(block: str) -> None:
    name, _, recipe = block.partition(" of ")
    keys = allowed_keys()[name][recipe] if recipe else allowed_keys()[name]
    validator, paths = jsonschema.Draft7Validator(SCHEMA), list(leaves(keys, (name,)))
    for path in paths:
        values: Any = object()  # of no type that JSON has
        for part in reversed(path):
            values = {part: values}
        assert [tuple(error.path) for error in validator.iter_errors(values)][:1] == [path]
    assert len(paths) > 1


@pytest.mark.parametrize("name", HELMS)
@pytest.mark.parametrize("scale", ["full", "local"])
def test_what_it_sends_is_the_run_of_the_files(scale: str, name: str, tmp_path: Path) -> None:
    form, site = tmp_path / "form.yaml", tmp_path / "site.yaml"
    answers = {
        "preset__phase": "survival",
        "preset__scale": scale,
        "site__images__trainer": IMAGE,
        "site__queue": "team",
    }
    form.write_text(json.dumps(sent(**answers)), encoding="utf-8")
    site.write_text(json.dumps({"site": {"images": {"trainer": IMAGE}, "queue": "team"}}), encoding="utf-8")
    files = ["-f", str(VALUES / "survival.yaml")]
    files += ["-f", str(VALUES / "local" / "survival.yaml")] if scale == "local" else []
    chosen = helm("template", "demo", str(CHART), "-f", str(form), name=name)
    by_files = helm("template", "demo", str(CHART), *files, "-f", str(site), name=name)
    assert chosen.stdout == by_files.stdout and chosen.returncode == 0, chosen.stderr


def test_an_unanswered_form_says_what_is_missing(tmp_path: Path) -> None:
    form = tmp_path / "form.yaml"
    form.write_text(json.dumps(sent()), encoding="utf-8")
    done = helm("template", "demo", str(CHART), "-f", str(form))
    assert done.returncode != 0 and "set preset.phase to one of" in done.stderr
    other = tmp_path / "other.yaml"
    other.write_text(json.dumps(sent(preset__phase="resnet")), encoding="utf-8")
    assert "site.images.trainer: missing" in helm("template", "demo", str(CHART), "-f", str(other)).stderr


def test_no_default_of_the_site_is_sent() -> None:
    """What the form drops or sends unasked could not be told from what somebody has given."""
    assert "site" not in sent()
