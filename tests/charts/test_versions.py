"""Another version of the chart is the same run: it changes labels of objects, and no template of a pod or selector."""

import copy
import shutil
from pathlib import Path

import pytest
import yaml

from charts.rendering import APIS, CHART, HELMS, SITE, VALUES, Document, documents, helm, pods, served, with_service

FILES = ("-f", str(VALUES / "survival.yaml"), "-f", str(VALUES / "local" / "survival.yaml"), "-f", str(SITE))
LABELS = ("helm.sh/chart", "app.kubernetes.io/version")


@pytest.fixture
def later(tmp_path: Path) -> Path:
    """The chart in a later version, with build metadata, of a later application."""
    chart = tmp_path / "trainjob"
    shutil.copytree(CHART, chart)
    meta = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    meta |= {"version": "9.8.7+build.6", "appVersion": "9.8.7"}
    (chart / "Chart.yaml").write_text(yaml.safe_dump(meta), encoding="utf-8")
    return chart


def rendered(chart: Path, api: str, name: str) -> list[Document]:
    """Return the objects of a phase, with the InferenceService."""
    done = helm("template", "demo", str(chart), *FILES, "--set", f"site.trainingApi={api}", name=name)
    return copy.deepcopy(with_service(documents(done)))


@pytest.mark.parametrize("name", HELMS)
@pytest.mark.parametrize("api", APIS)
def test_it_changes_labels_of_objects_alone(api: str, name: str, later: Path) -> None:
    """Without the two labels both are equal: names, and so the run's hash, selectors and templates, which cannot change."""
    before, after = rendered(CHART, api, name), rendered(later, api, name)
    waiting = served(before)
    for objects, chart, version in ((before, "trainjob-0.1.0", "0.1.0"), (after, "trainjob-9.8.7_build.6", "9.8.7")):
        for each in objects:
            found = [each["metadata"]["labels"].pop(label, None) for label in LABELS]
            assert found in ([chart, version], *([[None, None]] if each in waiting else [])), each["kind"]
    assert after == before


@pytest.mark.parametrize("api", APIS)
def test_no_pod_of_a_job_has_them(api: str) -> None:
    """A pod that is an object of its own has: nothing renews it but the release."""
    found = pods(rendered(CHART, api, "helm"))
    assert len(found) >= 3
    for where, labels, _ in found:
        assert (set(LABELS) <= set(labels)) is (where == "Pod"), where
