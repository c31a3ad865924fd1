"""What is in the way of the next release of OpenShift AI: the rows `upgrade` of meta/releases.yml, looked for in the cluster."""

from __future__ import annotations

import json
from typing import Any

from ..jobs import PYTORCHJOB, outcome
from ..kube import Json
from ..olm_plan import pair, releases
from .cluster_state import ClusterState, Finding
from .openshift import DSC, openshift_ai_version, singletons

DSCI = "dscinitialization.opendatahub.io"
SHOWN = 3


def upgrade(facts: ClusterState) -> list[Finding]:
    """Return a finding for each row of a release up to `upgrade_to`, or of the next one, that the cluster meets.

    Only for a release that is named is one that blocks an error: nobody has to upgrade.
    """
    product, wanted = openshift_ai_version(facts), facts.options.upgrade_to
    if not product:
        return [Finding.skipped("no OpenShift AI that OLM installed")]
    newer = [release for release in releases() if pair(release) > pair(product)]
    if wanted and wanted not in newer:
        known = ", ".join(newer) or "none"
        return [
            Finding(
                "error", f"verify_upgrade_to is {wanted}, and OpenShift AI is {product}", "", f"name one of: {known}"
            )
        ]
    if not newer:
        return [Finding.skipped(f"no release after OpenShift AI {product} is known")]
    target = wanted or newer[0]
    rows = {
        row["lint"]: row
        for release in newer
        if pair(release) <= pair(target)
        for row in releases()[release].get("upgrade", [])
    }
    findings = [_finding(facts, row, target, named=bool(wanted)) for row in rows.values()]
    result = [finding for finding in findings if finding]
    return result or [Finding.ok(f"nothing is known to be in the way of OpenShift AI {target}")]


def _finding(facts: ClusterState, row: Json, target: str, named: bool) -> Finding | None:
    """Return what the cluster has of one row; None when it has nothing of it."""
    if "of" in row and not _managed(facts, row["of"]):
        return None
    what, fix = _state(facts, row) if "state" in row else (_objects(facts, row), row["fix"])
    if not what:
        return None
    blocks = row["blocks"]
    return Finding(
        "error" if blocks and named else "warning",
        f"{'blocks' if blocks else 'is to be known before'} an upgrade to OpenShift AI {target}: {what}",
        f"{row['why']} (rhai-cli lint: {row['lint']})",
        fix,
    )


def _managed(facts: ClusterState, component: str) -> bool:
    return any(
        _at(item, ["spec", "components", component, "managementState"]) == "Managed"
        for item in singletons(facts, DSC) or []
    )


def _state(facts: ClusterState, row: Json) -> tuple[str, str]:
    """Return what is set, and the command that sets what should be."""
    group, kind = (DSCI, "DSCInitialization") if row.get("dsci") else (DSC, "DataScienceCluster")
    path = ["spec", *row["state"].split("."), "managementState"]
    for item in singletons(facts, group) or []:
        if (state := _at(item, path)) in row["in"]:
            patch: Any = row.get("to", "Removed")
            for key in reversed(path):
                patch = {key: patch}
            name = item["metadata"]["name"]
            command = f"{facts.api.oc} patch {kind.lower()} {name} --type merge -p '{json.dumps(patch)}'"
            return f"{'.'.join(path[1:])} of {kind} {name} is {state}", command
    return "", ""


def _objects(facts: ClusterState, row: Json) -> str:
    """Return which objects are meant, empty for none."""
    group_version, plural = row["objects"].split()
    items = facts.api.items(f"/apis/{group_version}/{plural}") if facts.api.serves(group_version, plural) else []
    names = [f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in items if _meant(row, item)]
    if not names:
        return ""
    which = "that have not ended" if row.get("active") else f"with {row['field'][-1]}"
    which += f" {' or '.join(row['in'])}" if "in" in row else " as text" if "type" in row else ""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{len(names)} {plural} {which} ({', '.join(names[:SHOWN])}{more})"


def _meant(row: Json, item: Json) -> bool:
    if row.get("active"):
        return outcome(PYTORCHJOB, item)[0] not in ("succeeded", "failed")
    value = _at(item, row["field"])
    if "in" in row:
        return value in row["in"]
    return isinstance(value, str) if row.get("type") == "str" else bool(value)


def _at(value: Any, path: list[str]) -> Any:
    """Return what is at a path, None where it ends before."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
