"""Action plugin objects_info: see plugins/modules/objects_info.py."""

from __future__ import annotations

from ..plugin_utils.documented import ClusterAction
from ..plugin_utils.kube import Json


class ActionModule(ClusterAction):
    """Lists objects of one kind, or gets one."""

    OPERATION = "reading {kind}"

    def run_on_cluster(self, args: Json) -> Json:
        """Return resources, each with apiVersion and kind; none where the kind is not served."""
        api_version, kind = args["api_version"], args["kind"]
        path = self.api.path(api_version, kind, args["namespace"], args["name"])
        if path is None:
            resources = []
        elif args["name"]:
            resources = [resource for resource in [self.api.get(path)] if resource is not None]
        else:
            resources = self.api.items(path, args["selector"])
        typed = {"apiVersion": api_version, "kind": kind}
        listed = [resource | typed for resource in resources]
        return {"changed": False, "api_found": path is not None, "resources": listed}
