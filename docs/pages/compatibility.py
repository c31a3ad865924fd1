"""docs/reference/compatibility.md, from what roles, checks and tests use.

It imports the tests' catalog and the embedded cluster's modules: PYTHONPATH must include cluster and tests.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder
from embedded_cluster.builds import modules

from pages.markdown_table import table

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/reference/compatibility.md"
PARTS = ("kubernetes", "etcd", "coredns", "training-operator", "trainer", "jobset", "kserve", "kueue", "helm")
SCENARIO = "rhoai-"
KINDS = ("cuda", "cpu")


def prepare() -> None:
    """Make the collection importable."""
    if "ansible_collections.trainlab" not in sys.modules:
        _AnsibleCollectionFinder(paths=[str(ROOT / ".collections")])._install()


def variables(role: str) -> dict[str, Any]:
    """Return the constants of a role."""
    result: dict[str, Any] = yaml.safe_load((ROOT / "roles" / role / "vars" / "main.yml").read_text(encoding="utf-8"))
    return result


def supported() -> str:
    """Return one row for each release of OpenShift AI."""
    from ansible_collections.trainlab.rhoai.plugins.plugin_utils.olm_plan import (
        Wanted,
        choice,
        in_order,
        releases,
        span,
    )

    operators = variables("platform")["__platform_table"]
    rows = []
    for release, entry in releases().items():
        wanted = Wanted(operators, releases(), ["gpu", "rhoai"], release, {}, {}, {}, "Automatic")
        managed = {key for key, each in entry["components"].items() if each["managementState"] == "Managed"}
        jobs = [name for key, name in (("trainingoperator", "PyTorchJob"), ("trainer", "TrainJob")) if key in managed]
        scenario = ROOT / "molecule" / f"{SCENARIO}{release}" / "molecule.yml"
        rows.append(
            [
                release,
                span(release),
                f"`{choice(wanted, 'rhoai')[0]}`" + (f", `{entry['eus']}`" if "eus" in entry else ""),
                entry["version"],
                entry["seen"],
                f"`{choice(wanted, 'kueue')[0]}`",
                ", ".join(in_order(wanted)),
                ", ".join(jobs),
                f"`{SCENARIO}{release}`" if scenario.exists() else "none",
            ]
        )
    head = [
        "OpenShift AI",
        "OpenShift",
        "channel",
        "version in the tests",
        "seen in",
        "channel of Kueue",
        "operators",
        "job kinds",
    ]
    return table([*head, "molecule scenario"], rows)


def prepared() -> str:
    """Say which releases could not be tested."""
    from ansible_collections.trainlab.rhoai.plugins.plugin_utils.olm_plan import releases

    names = [release for release, entry in releases().items() if entry.get("prepared")]
    return "\n".join(
        f"{name} is prepared, not tested: its channels and versions are expected, not observed." for name in names
    )


def engines() -> str:
    """Return one row for each release: its vLLM, and the Templates that name its images."""
    from ansible_collections.trainlab.rhoai.plugins.plugin_utils.olm_plan import releases

    rows = [
        [
            release,
            str(vllm.get("version", "not known")),
            *(f"`{vllm[kind]}`" if kind in vllm else "none" for kind in KINDS),
        ]
        for release, vllm in ((release, entry["vllm"]) for release, entry in releases().items())
    ]
    return table(["OpenShift AI", "vLLM", "Template for GPUs", "Template for CPU"], rows)


def admitted() -> str:
    """Say which releases' TrainJobs Kueue admits."""
    from ansible_collections.trainlab.rhoai.plugins.plugin_utils.olm_plan import releases

    bounds: dict[str, list[str]] = {}
    for release, entry in releases().items():
        if "newest_kueue_for_trainjobs" in entry:
            bounds.setdefault(entry["newest_kueue_for_trainjobs"], []).append(release)
    sentences = [
        f"TrainJobs of {', '.join(names)} are admitted by Kueue up to `stable-v{newest}` only, PyTorchJobs by all."
        for newest, names in bounds.items()
    ]
    return "\n".join(sentences)


def upgrades() -> str:
    """Return one row for each finding that is in the way of an upgrade."""
    from ansible_collections.trainlab.rhoai.plugins.plugin_utils.olm_plan import releases

    rows = [
        [release, f"`{row['lint']}`", "blocks" if row["blocks"] else "warns", row["why"]]
        for release, entry in releases().items()
        for row in entry.get("upgrade", [])
    ]
    return table(["to", "name in `rhai-cli lint`", "there it", "because"], rows)


def operators() -> str:
    """Return one row for each operator that the role platform knows."""
    rows = [
        [
            f"`{name}`",
            variable["title"],
            f"`{variable['package']}`",
            f"`{variable['channel']}`" if variable["channel"] else "the package's default",
            variable["source"],
            f"`{variable['namespace']}`",
            "own namespace" if variable["group"] == "own" else "all namespaces",
            ", ".join(variable.get("needs", [])) or "nothing",
        ]
        for name, variable in variables("platform")["__platform_table"].items()
    ]
    head = ["name", "operator", "package", "channel without a release", "catalog", "namespace", "installs for", "needs"]
    return table(head, rows)


def embedded() -> str:
    """Return one row for each user-facing program of the embedded cluster, with its versions in both legs."""
    rows = []
    for part in PARTS:
        path, version = modules.module(part)
        older = f"{modules.OLDER}/{part}"
        rows.append(
            [part, f"`{path}`", version, modules.module(older)[1] if modules.folder(older).is_dir() else "the same"]
        )
    return table(["part", "Go module", "today", "older"], rows)


def text() -> str:
    """Return the page."""
    prepare()
    return f"""# Compatibility

Generated by `make gen` from `meta/releases.yml`, `roles/platform/vars/main.yml`, `cluster/*/go.mod` and `cluster/older/*/go.mod`. A test fails when it
is out of date.

## Releases of OpenShift AI

{supported()}

"OpenShift" is what the documentation of each release supports; `playbooks/verify.yml` warns about other versions.
The first channel is what `trainlab_platform_release` chooses; `platform_channels: {{rhoai: eus-3.5}}` chooses the one of extended
update support. "version in the tests" is the newest head of the channel that was seen, in that month, which the tests' catalog offers;
`python tests/tiers.py stale` names what nobody has looked up for 90 days. "operators" are those that `platform_operators: [gpu, rhoai]` installs, in order.
{prepared()}

A molecule scenario installs the release from a bare API server to a ready DataScienceCluster, again with no change, with
a failing operator, and removes it, against a real kube-apiserver with test-only operators. **We have not installed any
release on a real OpenShift.** `molecule test -s {SCENARIO}3.5` runs one of them, `molecule test` the default
one (that of 3.5) only, `make molecule` all.

{admitted()}

## Upgrades

{upgrades()}

`playbooks/verify.yml` looks for these before an upgrade. A test takes one release of the chart on a real kube-apiserver from 2.25 to
3.6, with the CustomResourceDefinitions of each release, and meets each of them on its way (`tests/api/test_upgrades.py`); no operator
runs there. It takes 2 min 4 s and 112 CPU-seconds on two idle cores (AMD EPYC, 2026-11-29). `rhai-cli lint`
has more checks, of parts that this project does not use. **We have not run that tool, nor upgraded a real OpenShift AI.**

## vLLM

{engines()}

The role image reads the image of a phase with GPUs from such a Template in `redhat-ods-applications`, with its digest (`image_vllm_template`),
and writes it to `site.images.vllm`. vLLM before 0.19.1 reads models with transformers 4, later ones with 5. What a run
leaves is answered as it was scored by vLLM 0.18.1 with transformers 4.57 and by 0.19.1 (`make test-engines`), and by 0.32
(`make test`), all three on CPU; no vLLM on a GPU was tried.

## Operators

{operators()}

`platform_channels`, `platform_sources` and `platform_versions` pin them by name. A channel that the cluster does not
offer is an error that lists the available ones.

## The embedded cluster

{embedded()}

"today" is what `make demo` runs. "older" is what `TRAINLAB_LEG=older make demo` runs, and `make test-older` tests: the oldest that a
supported release of OpenShift AI brings, as near as they can be built. OpenShift AI 2.25 and 3.3 bring KServe 0.15; 3.3 to 3.5 bring
Trainer 2.1. The charts and roles are tested against the CustomResourceDefinitions of both.

Its nine tests passed on the older leg on 2026-11-29 (commit 837f67e4, two goes): five preemptions by Kueue 0.15 cost no restart and
end in the same bytes, for a PyTorchJob and for a TrainJob; a queue lets in jobs and servers one after the other; `make demo` trains,
promotes, serves and changes nothing when it is repeated; an attendee trains a TrainJob. In the first go the repeated `make demo` had
changed one task, while another cluster of the same machine rebuilt the image with trackers.
"""


def scenarios() -> list[Path]:
    """Create a molecule scenario for each tested release, a link to the default one; return the new links."""
    prepare()
    from ansible_collections.trainlab.rhoai.plugins.plugin_utils.olm_plan import releases

    made = []
    for release, entry in releases().items():
        link = ROOT / "molecule" / f"{SCENARIO}{release}" / "molecule.yml"
        if not entry.get("prepared") and not link.is_symlink():
            link.parent.mkdir(exist_ok=True)
            link.symlink_to("../default/molecule.yml")
            made.append(link)
    return made
