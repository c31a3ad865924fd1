"""Action plugin objects_info: see plugins/modules/objects_info.py."""

from __future__ import annotations

from ..plugin_utils.documented import ClusterAction
from ..plugin_utils.kube import Json


class ActionModule(ClusterAction):
    """Lists objects of one kind, or gets one."""

    OPERATION = "reading {kind}"

    def run_on_cluster(self, args: Json) -> Json:
        """Return resources, each with apiVersion and kind, none where the kind is not served; and lacking, of `rights`."""
        kind = args["api_version"], args["kind"]
        asked = [right.split() for right in args["rights"]]
        lacking = [
            f"{verb} {what}" for verb, what in asked if not self.api.may(verb, what, namespace=args["namespace"])
        ]
        if self.api.resource(*kind) is None:
            return {"changed": False, "api_found": False, "resources": [], "lacking": lacking}
        item = self.api.look(*kind, args["name"], args["namespace"]) if args["name"] else None
        several = [] if args["name"] else self.api.listed(*kind, args["namespace"], args["selector"])
        return {"changed": False, "api_found": True, "resources": [item] if item else several, "lacking": lacking}
