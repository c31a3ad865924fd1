"""Names that YAML would read as numbers or booleans stay names in every object."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.rendering import APIS, CHART, HELMS, SITE, VALUES, documents, helm, template, with_service

FILES = ("-f", str(VALUES / "survival.yaml"), "-f", str(SITE))
ODD: dict[str, Any] = {
    "queue": "123",
    "images": {"pullSecret": "1.5"},
    "storage": {
        "models": {"storageClass": "1.5"},
        "runs": {"storageClass": "off", "existing": "7"},
        "data": {"existing": "8.0"},
    },
    "env": dict.fromkeys(("on", "y", "null", "NO"), "1"),
    "caConfigMap": "10",
    "priorityClass": "11",
    "runtimeClass": "12",
    "podAnnotations": {"a": "13"},
    "podLabels": {"a": "19", "on": "off"},
    "envSecrets": ["20", "21.5"],
    "nodeSelector": {"b": "14"},
    "hfTokenSecret": "15",
    "hardwareProfile": {"name": "16", "namespace": "17"},
    "monitoring": {"enabled": True, "labels": {"c": "18"}},
}
INGRESS = {"enabled": True, "host": "1.5", "ingressClass": "2", "tlsSecret": "3", "annotations": {"d": "4"}}
SITES = {
    "ingress": {"expose": INGRESS, "platform": "auto", "serviceAccount": ""},
    "route": {"expose": {"enabled": True, "host": "1.5"}, "platform": "openshift", "serviceAccount": "5"},
}
TEXTS = {
    *("name", "namespace", "host", "runtime", "type", "kind"),
    *("claimName", "secretName", "storageClassName", "serviceAccountName", "priorityClassName", "runtimeClassName"),
    *("ingressClassName", "topologyKey", "storageUri", "value"),
}
MAPS = {"labels", "matchLabels", "annotations", "nodeSelector"}
LISTS = {"resourceNames", "hosts", "args", "command", "accessModes"}


def wrong(held: Any, at: str = "") -> Iterator[str]:
    """Yield the places of what is a name in Kubernetes and no text here."""
    if isinstance(held, list):
        for number, each in enumerate(held):
            yield from wrong(each, f"{at}[{number}]")
    if not isinstance(held, dict):
        return
    for key, value in held.items():
        place = f"{at}.{key}"
        texts = list(value.values()) if key in MAPS else value if key in LISTS else []
        if not isinstance(key, str) or (key in TEXTS and isinstance(value, int | float | type(None))):
            yield place
        yield from (place for each in texts if not isinstance(each, str))
        yield from wrong(value, place)


@pytest.mark.parametrize("name", HELMS)
@pytest.mark.parametrize("release", ["on", "null", "y"])
@pytest.mark.parametrize(("how", "api"), zip(SITES, APIS, strict=True))
def test_names_stay_text(release: str, how: str, api: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / "site.yaml"
    site = ODD | SITES[how] | {"trainingApi": api}
    file.write_text(yaml.safe_dump({"site": site, "phase": {"serve": {"hours": 2}}}), encoding="utf-8")
    done = helm("template", release, str(CHART), "--namespace", "2026", *FILES, "-f", str(file), name=name)
    found = with_service(documents(done))
    places = [f"{each['kind']}{place}" for each in found for place in wrong(each)]
    assert not places
    assert {"CronJob", "InferenceService", "PodMonitor"} < {each["kind"] for each in found}


def test_a_name_that_only_newer_yaml_reads_as_a_number() -> None:
    done = template((str(VALUES / "survival.yaml"),), "site.images.pullSecret=a1e3")
    assert "imagePullSecrets: [{name: a1e3}]" in done.stdout, (
        "no quotes where none are needed: they would rename the job"
    )
    command = ("template", "demo", str(CHART), *FILES, "--set-string", "site.images.pullSecret=1e3")
    assert 'imagePullSecrets: [{name: "1e3"}]' in helm(*command).stdout


def test_a_queue_is_a_value_of_a_label() -> None:
    """LocalQueues of Kueue are named in one, which holds 63 characters; names of objects hold 253."""
    full = (str(VALUES / "survival.yaml"),)
    assert template(full, f"site.queue={'q' * 63}").returncode == 0
    done = template(full, f"site.queue={'.'.join(['q' * 31] * 3)}")
    assert done.returncode != 0 and "site/queue" in done.stderr and "maxLength" in done.stderr
