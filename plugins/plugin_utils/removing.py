"""Deletes a list of objects at once and waits until each is gone; used by platform_remove and attendees_remove."""

from __future__ import annotations

import time

from ansible.errors import AnsibleActionFail

from .kube import Json
from .platform_api import PlatformApi, title
from .waiting import StatusLines


def remove(api: PlatformApi, things: list[Json], timeout: float, poll: float, lines: StatusLines) -> None:
    """Delete `things` (with apiVersion and kind); AnsibleActionFail names what blocks one that is still there.

    `timeout` and `poll` are seconds. An object of the same name but another uid is not the one to remove.
    """
    pending = {}
    for one in things:
        metadata = one["metadata"]
        path = str(api.path(one["apiVersion"], one["kind"], metadata.get("namespace", ""), metadata["name"]))
        if api.delete(path, metadata["uid"]):
            pending[path] = one
    end = time.monotonic() + timeout
    while pending:
        for path, one in list(pending.items()):
            now = api.get(path)
            if now is None or now["metadata"]["uid"] != one["metadata"]["uid"]:
                del pending[path]
                lines.say(f"{title(one)}: gone")
            elif time.monotonic() > end:
                raise AnsibleActionFail(
                    f"{title(one)} is still there {timeout:.0f} s after it was deleted, held by {held(now)}; check that "
                    "its operator is running, then run the teardown again: it continues from here"
                )
            else:
                lines.changed(title(one), "waits for its finalizers")
        if pending:
            time.sleep(poll)


def held(thing: Json) -> str:
    """Return what keeps a deleted object: its finalizers and, for a namespace, what the controller reports."""
    finalizers = thing["metadata"].get("finalizers") or (thing.get("spec") or {}).get("finalizers") or ["nothing known"]
    found = (thing.get("status") or {}).get("conditions") or []
    bad = [f"{one.get('type')}: {one.get('message')}" for one in found if one.get("status") == "True"]
    return "; ".join([", ".join(finalizers), *bad])
