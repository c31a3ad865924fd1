"""Some cases render to the stored golden files, and all cases render alike with Helm 3 and Helm 4.

The cases are those whose renderings together contain almost every line of any: both training APIs, GPUs and none, vLLM
and our server, adapters, images, a stage with a parent, and the step before a training. For readable diffs, JSON and YAML inside a ConfigMap are shown
as their content, and the hashes in names are left out. `make golden` regenerates the files; read the diff before
committing it.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.rendering import APIS, Case, case, cases, rendered

GOLDEN = Path(__file__).parent / "golden"
KEPT = (
    *("survival-full-trainjob", "survival-local-pytorchjob", "lyrics-full-pytorchjob"),
    *("resnet-local-pytorchjob", "staged-dpo-local-trainjob", "staged-pretrain-full-prepare"),
)
SCALES = [each for number, each in enumerate(cases()) if APIS.index(each.api) == number // len(APIS) % len(APIS)]
"""Each phase at each scale once, the training APIs in turn: the Helms differ only in how they write a phase's numbers."""


@pytest.mark.parametrize("name", KEPT)
def test_rendering_is_the_golden_one(name: str) -> None:
    path = GOLDEN / f"{name}.yaml"
    text = dump(case(name))
    if os.environ.get("GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{path} is missing: run `make golden`"
    assert text == path.read_text(encoding="utf-8"), f"{path.name} differs: run `make golden` and read the difference"


@pytest.mark.parametrize("one", SCALES, ids=lambda one: one.name)
def test_both_helms_render_alike(one: Case) -> None:
    assert rendered(one, "helm4") == rendered(one)


def dump(one: Case) -> str:
    """Return the rendering as YAML in a fixed order, without the hash of the run."""
    objects = json.loads(json.dumps(rendered(one)))
    runs = {item["metadata"]["labels"].get("trainlab.dev/run") for item in objects} - {None}
    (run,) = runs
    for item in objects:
        if item["kind"] == "ConfigMap":
            item["data"] = {name: held(name, text) for name, text in item.get("data", {}).items()}
    prepare = re.compile(rf"\b{one.phase}-prepare-[0-9a-f]{{6}}\b")
    text = yaml.dump_all(objects, Dumper=Plain, sort_keys=True, width=120)
    name = rf"\b{re.escape(run)}((?:-promote)?)(-[0-9a-f]{{6}})?\b"
    text = prepare.sub(f"{one.phase}-prepare-SPEC", text)
    return re.sub(name, lambda found: f"{run.rpartition('-')[0]}-HASH{found[1]}{'-SPEC' if found[2] else ''}", text)


def held(name: str, text: str) -> Any:
    """Return the content of a file in a ConfigMap."""
    if name.endswith(".json"):
        return json.loads(text)
    return yaml.load(text, yaml.CSafeLoader) if name.endswith(".yaml") else text


class Plain(yaml.CSafeDumper):
    """Writes no anchors: equal parts are written out in full."""

    def ignore_aliases(self, data: Any) -> bool:
        """Ignore aliases everywhere."""
        return True


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == set(KEPT)
