"""Ends the access of numbered attendees beyond a count, once that was asked for by name."""

from __future__ import annotations

import re
from pathlib import Path

from ansible.errors import AnsibleActionFail

from ..plugin_utils import labels
from ..plugin_utils.documented import ClusterAction
from ..plugin_utils.kube import Json

NUMBERED = re.compile(r"user(\d+)")
"""Attendees of attendees_count, roles/attendees/vars/main.yml."""


class ActionModule(ClusterAction):
    """Deletes the ServiceAccounts whose tokens end, and their kubeconfigs; the namespaces stay with what was made in them."""

    OPERATION = "ending attendees' access"

    def run_on_cluster(self, args: Json) -> Json:
        """Delete; returns changed and ended, a sentence for each attendee. Raises AnsibleActionFail where nobody confirmed it."""
        count, folder = args["count"], Path(args["dest"]).absolute()
        beyond = self._beyond(count, args["prefix"], args["service_account"])
        if beyond and not args["confirmed"] and not self.check:
            raise AnsibleActionFail(
                f"attendees_count is {count}, which would end the access of {', '.join(beyond)}; their namespaces would stay; "
                f"add -e attendees_end=true to end it, or set attendees_count to {list(beyond)[-1].removeprefix('user')}"
            )
        for name, path in beyond.items():
            if not self.check:
                self.api.delete(path)
                (folder / f"{name}.kubeconfig").unlink(missing_ok=True)
        would = "would end" if self.check else "has ended"
        lines = [
            f"{name} has no place any more (attendees_count is {count}): the token {would}; namespace {args['prefix']}{name} "
            f"stays with what is in it, until attendees_state=absent with attendees_names={name}"
            for name in beyond
        ]
        return {"changed": bool(lines), "ended": lines}

    def _beyond(self, count: int, prefix: str, service_account: str) -> dict[str, str]:
        """Return the paths of the ServiceAccounts beyond the count by attendee, in the order of their numbers.

        Whoever is named is not counted: a list may be of newcomers only.
        """
        paths = {}
        for space in self.api.items("/api/v1/namespaces", f"{labels.OWNER}=attendees,{labels.ATTENDEE}"):
            namespace, name = space["metadata"]["name"], space["metadata"]["labels"][labels.ATTENDEE]
            number = NUMBERED.fullmatch(name)
            if not count or not number or int(number[1]) <= count or namespace != f"{prefix}{name}":
                continue
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}"
            if self.api.get(path) is not None:
                paths[int(number[1])] = (name, path)
        return dict(paths[number] for number in sorted(paths))
