"""Some cases render to the stored golden file, and all cases render alike with Helm 3 and Helm 4.

The cases are those whose renderings together contain almost every line of any: both training APIs, GPUs and none, vLLM
and our server, adapters, images, a stage with a parent, and the step before a training. For readable diffs, JSON and YAML inside a ConfigMap are shown
as their content, the hashes in names are left out, the phase is called PHASE, and what is written already is an alias of that place, in whichever case
it was. `make golden` regenerates the file; read the diff before committing it.
"""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.rendering import APIS, Case, case, cases, rendered

GOLDEN = Path(__file__).with_name("golden.yaml")
KEPT = (
    *("survival-full-trainjob", "survival-local-pytorchjob", "lyrics-full-pytorchjob"),
    *("resnet-local-pytorchjob", "staged-dpo-local-trainjob", "staged-pretrain-full-prepare"),
)
SCALES = [each for number, each in enumerate(cases()) if APIS.index(each.api) == number // len(APIS) % len(APIS)]
"""Each phase at each scale once, the training APIs in turn: the Helms differ only in how they write a phase's numbers."""


def test_renderings_are_the_golden_ones() -> None:
    now = {name: plain(case(name)) for name in KEPT}
    if os.environ.get("GOLDEN"):
        GOLDEN.write_text(dump(now), encoding="utf-8")
    kept = yaml.load(GOLDEN.read_text(encoding="utf-8"), yaml.CSafeLoader)
    assert now == kept, "run `make golden` and read the difference"


@pytest.mark.parametrize("one", SCALES, ids=lambda one: one.name)
def test_both_helms_render_alike(one: Case) -> None:
    assert rendered(one, "helm4") == rendered(one)


def plain(one: Case) -> list[Any]:
    """Return the objects of a rendering in a fixed order, without the hash of the run and the name of the phase."""
    objects = json.loads(json.dumps(rendered(one)))
    runs = {item["metadata"]["labels"].get("trainlab.dev/run") for item in objects} - {None}
    (run,) = runs
    text = json.dumps([held(item) for item in objects])
    text = re.sub(rf"\b{one.phase}-prepare-[0-9a-f]{{6}}\b", f"{one.phase}-prepare-SPEC", text)
    name = rf"\b{re.escape(run)}((?:-promote)?)(-[0-9a-f]{{6}})?\b"
    text = re.sub(name, lambda found: f"{one.phase}-HASH{found[1]}{'-SPEC' if found[2] else ''}", text)
    result: list[Any] = json.loads(re.sub(rf"\b{one.phase}\b", "PHASE", text))
    return result


def held(item: Any) -> Any:
    """Return an object with the content of its files if it is a ConfigMap, those of a ConfigMap in a file, too."""
    if item["kind"] == "ConfigMap":
        item["data"] = {name: content(name, text) for name, text in item.get("data", {}).items()}
    return item


def content(name: str, text: str) -> Any:
    """Return what a file of a ConfigMap holds."""
    if name.endswith(".json"):
        return json.loads(text)
    return held(yaml.load(text, yaml.CSafeLoader)) if name.endswith(".yaml") else text


def dump(cases: dict[str, list[Any]]) -> str:
    """Return the cases as YAML in which equal parts of at least two lines are written once."""
    return yaml.dump(once(cases, {}), Dumper=Aliased, sort_keys=True, width=120)


def once(part: Any, written: dict[str, Any]) -> Any:
    """Return the part with equal ones in it as the same object, which YAML writes as an alias."""
    if isinstance(part, dict):
        part = {key: once(part[key], written) for key in sorted(part)}
    elif isinstance(part, list):
        part = [once(each, written) for each in part]
    text = json.dumps(part)
    return written.setdefault(text, part) if text.count(": ") + text.count(", ") > 1 else part


class Aliased(yaml.SafeDumper):
    """Names an anchor by what it stands for: a new one does not rename the others."""

    def generate_anchor(self, node: yaml.Node) -> str:
        """Return the beginning of the content's digest."""
        return hashlib.sha256(yaml.serialize(node).encode()).hexdigest()[:6]

    def ignore_aliases(self, data: Any) -> bool:
        """Write scalars and what is empty as they are."""
        return not isinstance(data, dict | list) or not data
