"""Action plugin objects_remove: see plugins/modules/objects_remove.py."""

from __future__ import annotations

from ..plugin_utils.documented import ClusterAction
from ..plugin_utils.kube import FORBIDDEN, ApiError, Json
from ..plugin_utils.platform_api import title


class ActionModule(ClusterAction):
    """Deletes those that are there."""

    OPERATION = "removing objects"

    def run_on_cluster(self, args: Json) -> Json:
        """Return changed and removed, a line for each; AnsibleActionFail names what blocks one that is still there."""
        existing = []
        for document in args["documents"]:
            try:
                resource = self.api.current(document)
            except ApiError as error:
                if error.status != FORBIDDEN or not args["optional"]:
                    raise
                continue  # a user who may not read it has not made it
            if resource is not None:
                existing.append(resource)
        if args["wait"]:
            self.remove(existing, args["timeout"])
        elif not self.check:
            for resource in existing:
                metadata = resource["metadata"]
                path = self.api.path(
                    resource["apiVersion"], resource["kind"], metadata.get("namespace", ""), metadata["name"]
                )
                self.api.delete(str(path), metadata["uid"])
        return {"changed": bool(existing), "removed": [title(resource) for resource in existing]}
