"""Combinations in an inventory that work on no cluster: pure functions used by platform_plan."""

from __future__ import annotations

from typing import Any

from .kube import Json
from .olm_plan import RHOAI, Wanted, in_order

GPU = "gpu"
MANAGED, REMOVED = "Managed", "Removed"
STATES = {"kueue": (MANAGED, "Unmanaged", REMOVED)}
"""Values of managementState where they are more than Managed and Removed; source: the CustomResourceDefinitions."""
STORAGE: dict[str, tuple[list[str], list[str]]] = {
    "efs": (["fileSystemId"], ["roleArn"]),
    "odf": ([], ["deviceClass", "deviceSize"]),
    "nfs": (["server", "share"], []),
}
"""Kinds of shared storage: the keys that each requires, and its optional ones."""
TRAINS = {"pytorchjob": ("PyTorchJob", "trainingoperator"), "trainjob": ("TrainJob", "trainer")}
"""Training API by its name in `site.trainingApi`: kind and component."""


def contradictions(wanted: Wanted) -> list[str]:
    """Return a sentence with variable and remedy for each; the names in `wanted` are known ones (wrong_names)."""
    return _storage(wanted.storage) or _operators(wanted)


def _operators(wanted: Wanted) -> list[str]:
    names = in_order(wanted)
    if RHOAI in names:
        return _gpu(wanted, GPU in names) + _components(wanted) + _training(wanted)
    if wanted.components:
        return [*_gpu(wanted, GPU in names), _unused("platform_components", RHOAI)]
    return _gpu(wanted, GPU in names)


def _storage(asked: Json) -> list[str]:
    """The kind is known, its required keys are set, and no key is unknown."""
    if not asked:
        return []
    kind = asked.get("kind")
    if kind not in STORAGE:
        return [
            f"platform_storage.kind is {kind!r}; set it to one of {', '.join(STORAGE)}, or platform_storage to {{}}"
        ]
    needs, may = STORAGE[kind]
    errors = [f"platform_storage.{key} is empty, but {kind} needs it; set it" for key in needs if not asked.get(key)]
    known = ["kind", *needs, *may]
    return errors + [
        f"platform_storage.{key}: unknown for {kind}; known: {', '.join(known)}" for key in asked if key not in known
    ]


def _unused(variable: str, operator: str) -> str:
    return (
        f"{variable} is set, but its operator {operator} is not requested; add {operator} to "
        f"platform_operators, or remove {variable}"
    )


def _gpu(wanted: Wanted, managed: bool) -> list[str]:
    shares, policy = wanted.gpu_shares, wanted.gpu_policy
    if shares < 1:
        return [f"platform_gpu_shares is {shares}; set it to 1 (a GPU for each pod) or more"]
    if not managed:
        settings = {"platform_gpu_shares": shares > 1, "platform_gpu_policy": bool(policy)}
        return [_unused(variable, GPU) for variable, is_set in settings.items() if is_set]
    plugin = policy.get("devicePlugin") or {}
    if shares > 1 and plugin.get("config"):
        return [
            f"platform_gpu_shares is {shares} and platform_gpu_policy.devicePlugin.config is set: both choose the device "
            "plugin's configuration; remove one of them"
        ]
    if shares > 1 and plugin.get("enabled") is False:
        return [
            f"platform_gpu_shares is {shares}, but platform_gpu_policy.devicePlugin.enabled is false, and the device "
            "plugin does the sharing; set it to true, or platform_gpu_shares to 1"
        ]
    return []


def _components(wanted: Wanted) -> list[str]:
    """Names and states: the API server would silently drop an unknown component."""
    errors = []
    for name, entry in wanted.components.items():
        variable = f"platform_components.{name}"
        if _obsolete(wanted, name) and isinstance(entry, dict) and entry.get("managementState") == REMOVED:
            continue
        if name not in _known(wanted, wanted.release):
            others = [release for release in wanted.releases if name in _known(wanted, release)]
            errors.append(
                f"{variable}: release {wanted.release} of OpenShift AI has no component {name!r}"
                + (f" ({', '.join(others)} have it: set trainlab_platform_release to one of these)" if others else "")
                + f"; remove it, or name one of {', '.join(sorted(_known(wanted, wanted.release)))}"
            )
            continue
        if not isinstance(entry, dict):
            errors.append(f"{variable} is {entry!r}; write it as {{managementState: {MANAGED}}}")
            continue
        state, states = entry.get("managementState", MANAGED), STATES.get(name, (MANAGED, REMOVED))
        if state not in states:
            errors.append(f"{variable}.managementState is {state!r}; set it to one of {', '.join(states)}")
        elif name == "kueue" and state == MANAGED and "kueue" in in_order(wanted):
            errors.append(
                f"{variable}.managementState is Managed, the Kueue inside OpenShift AI, but release {wanted.release} is set up "
                "with the Red Hat build of Kueue, and the two exclude each other; set it to Unmanaged"
            )
        elif name == "kueue" and state == REMOVED and wanted.queue:
            errors.append(
                f"{variable}.managementState is Removed, but platform_queue is {wanted.queue}, which nothing would run; set it to "
                "Unmanaged, or platform_queue to ''"
            )
    return errors


def _training(wanted: Wanted) -> list[str]:
    """At least one training API is left, and it is the one in use."""
    known = _known(wanted, wanted.release)
    on = [
        api for api, (_kind, component) in TRAINS.items() if component in known and _state(wanted, component) == MANAGED
    ]
    if not on:
        names = " and ".join(f"platform_components.{part}" for _kind, part in TRAINS.values() if part in known)
        return [f"{names}: none is Managed, so nothing can be trained; leave one of them Managed"]
    if wanted.training_api not in TRAINS or wanted.training_api in on:
        return []
    kind, component = TRAINS[wanted.training_api]
    begin = f"trainlab_site.trainingApi is {wanted.training_api}, but"
    if component not in known:
        others = [release for release in wanted.releases if component in _known(wanted, release)]
        return [
            f"{begin} release {wanted.release} of OpenShift AI (trainlab_platform_release) has no {kind}; set it to {on[0]} or auto, or "
            f"trainlab_platform_release to one of {', '.join(others)}"
        ]
    return [
        f"{begin} platform_components.{component}.managementState is {_state(wanted, component)}; set that to Managed, or "
        f"trainlab_site.trainingApi to {on[0]} or auto"
    ]


def _known(wanted: Wanted, release: str) -> set[str]:
    """The components that a release can have."""
    entry = wanted.releases[release]
    removed = {name for name, each in entry["components"].items() if each["managementState"] == REMOVED}
    return (set(entry["components"]) | set(entry["optional"])) - removed


def _obsolete(wanted: Wanted, name: str) -> bool:
    """Tell whether the release has the component in its API only to say that it is gone."""
    entry = wanted.releases[wanted.release]["components"].get(name, {})
    return bool(entry.get("managementState") == REMOVED)


def _state(wanted: Wanted, name: str) -> Any:
    """The state of a component after the inventory's part was merged over the release's; a missing one counts as Removed."""
    asked: Json = {}
    for layer in (wanted.releases[wanted.release]["components"], wanted.components):
        entry = layer.get(name)
        asked |= entry if isinstance(entry, dict) else {}
    return asked.get("managementState", REMOVED)
