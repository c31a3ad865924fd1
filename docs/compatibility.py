"""Writes docs/compatibility.md from what roles, checks and tests use; `make gen` calls it.

It imports the tests' catalog and the embedded cluster's modules: PYTHONPATH names cluster and tests.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import yaml
from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder
from api_server import catalog
from embedded_cluster import modules

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "compatibility.md"
PARTS = ("kubernetes", "etcd", "coredns", "training-operator", "trainer", "jobset", "kserve", "kueue", "helm")
SCENARIO = "rhoai-"


def prepare() -> None:
    """Make the collection importable."""
    if "ansible_collections.trainlab" not in sys.modules:
        _AnsibleCollectionFinder(paths=[str(ROOT / ".collections")])._install()


def variables(role: str) -> dict[str, Any]:
    """Return the constants of a role; an entry that is only a reference to another one is replaced by that."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "roles" / role / "vars" / "main.yml").read_text(encoding="utf-8"))

    def resolved(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: resolved(each) for key, each in value.items()}
        reference = re.fullmatch(r"\{\{ (\w+) \}\}", value) if isinstance(value, str) else None
        return found[reference[1]] if reference else value

    return {key: resolved(value) for key, value in found.items()}


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def releases() -> str:
    """Return one row for each release of OpenShift AI."""
    from ansible_collections.trainlab.rhoai.plugins.plugin_utils.checks.openshift import RELEASES
    from ansible_collections.trainlab.rhoai.plugins.plugin_utils.olm_plan import Wanted, choice, in_order

    platform, image = variables("platform"), variables("image")
    known = platform["__platform_releases"]
    registry = image["__image_registry"]
    rows = []
    for release, entry in known.items():
        wanted = Wanted(platform["__platform_table"], known, ["gpu", "rhoai"], release, {}, {}, {}, "Automatic")
        low, high = RELEASES[release]
        span = f"{low[0]}.{low[1]} to {high[0]}.{high[1]}" if high else f"{low[0]}.{low[1]} and later"
        channel = choice(wanted, "rhoai")[0]
        managed = {key for key, each in entry["components"].items() if each["managementState"] == "Managed"}
        jobs = [name for key, name in (("trainingoperator", "PyTorchJob"), ("trainer", "TrainJob")) if key in managed]
        base = (
            image["__image_bases"][release].replace("{{ __image_registry }}", "REGISTRY").replace(registry, "REGISTRY")
        )
        scenario = ROOT / "molecule" / f"{SCENARIO}{release}" / "molecule.yml"
        rows.append(
            [
                release,
                span,
                f"`{channel}`",
                catalog.PACKAGES["rhods-operator"].channels[channel].removeprefix("rhods-operator."),
                f"`{choice(wanted, 'kueue')[0]}`",
                ", ".join(in_order(wanted)),
                ", ".join(jobs),
                f"`{base}`",
                f"`{SCENARIO}{release}`" if scenario.exists() else "none",
            ]
        )
    head = [
        "OpenShift AI",
        "OpenShift",
        "channel",
        "version in the tests",
        "channel of Kueue",
        "operators",
        "job kinds",
    ]
    return table([*head, "base of the trainer image", "molecule scenario"], rows)


def operators() -> str:
    """Return one row for each operator that the role platform knows."""
    rows = [
        [
            f"`{name}`",
            one["title"],
            f"`{one['package']}`",
            f"`{one['channel']}`" if one["channel"] else "the package's default",
            one["source"],
            f"`{one['namespace']}`",
            "own namespace" if one["group"] == "own" else "all namespaces",
            ", ".join(one.get("needs", [])) or "nothing",
        ]
        for name, one in variables("platform")["__platform_table"].items()
    ]
    head = ["name", "operator", "package", "channel without a release", "catalog", "namespace", "installs for", "needs"]
    return table(head, rows)


def embedded() -> str:
    """Return one row for each program of the embedded cluster that a user meets."""
    return table(["part", "Go module", "version"], [[part, *_module(modules.module(part))] for part in PARTS])


def _module(found: tuple[str, str]) -> tuple[str, str]:
    return f"`{found[0]}`", found[1]


def text() -> str:
    """Return the page."""
    prepare()
    return f"""# Compatibility

Written by `make gen` from `roles/platform/vars/main.yml`, `roles/image/vars/main.yml`, the check `versions` of
`playbooks/verify.yml`, the catalog of the tests (`tests/api_server/catalog.py`) and `cluster/*/go.mod`. A test fails when it is
not up to date.

## Releases of OpenShift AI

{releases()}

"OpenShift" is what the documentation of each release supports; `playbooks/verify.yml` warns outside of it. "version in
the tests" is the head of the channel as the tests' catalog has it (August 2026). "operators" are those that
`platform_operators: [gpu, rhoai]` brings, in order. REGISTRY is the cluster's own image registry. 3.6 is prepared, not
tested: its channels and versions are expected, not seen.

A molecule scenario installs the release from a bare API server to a ready DataScienceCluster, again with no change, with
a failing operator, and removes it, against a real kube-apiserver with test-only operators. **No release has been
installed on a real OpenShift by us.** `molecule test -s {SCENARIO}3.4` runs one of them.

TrainJobs of 3.3, 3.4 and 3.5 (Trainer 2.1) are admitted by Kueue up to `stable-v1.3` only; PyTorchJobs by all.

## Operators

{operators()}

`platform_channels`, `platform_sources` and `platform_versions` pin them by name. A channel that the cluster does not
offer is an error that lists those it does.

## The embedded cluster

{embedded()}

These are also the versions whose CustomResourceDefinitions the charts and roles are tested against.
"""


def main() -> int:
    """Write the page when it differs."""
    new = text()
    old = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if new != old:
        PAGE.write_text(new, encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {'written' if new != old else 'up to date'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
