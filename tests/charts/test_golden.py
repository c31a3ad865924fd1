"""Every values file at every scale with both training APIs renders to the kept golden file, with Helm 3 and Helm 4.

`make golden` writes the files anew; read the difference before committing it.
"""

import os
from pathlib import Path

import pytest
import yaml
from rendering import HELMS, Case, cases, rendered
from trainlab import files

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", HELMS)
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_rendering_is_the_golden_one(case: Case, name: str) -> None:
    path = GOLDEN / f"{case.name}.yaml"
    if os.environ.get("GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        files.write_text(path, dump(case, "helm"))  # atomically: the test of Helm 4 may run beside this one
    assert path.exists(), f"{path} is missing: run `make golden`"
    kept = path.read_text(encoding="utf-8")
    assert dump(case, name) == kept, f"{path.name} differs: run `make golden` and read the difference"


def dump(case: Case, name: str) -> str:
    """Return the rendering as YAML in a fixed order."""
    return str(yaml.safe_dump_all(rendered(case, name), sort_keys=True, width=120))


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == {case.name for case in cases()}
