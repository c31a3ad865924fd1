"""Action plugin objects_remove: see plugins/modules/objects_remove.py."""

from __future__ import annotations

from ..plugin_utils.documented import ClusterAction
from ..plugin_utils.kube import FORBIDDEN, ApiError, Json
from ..plugin_utils.platform_api import remove, title
from ..plugin_utils.waiting import StatusLines

POLL_SECONDS = 1.0


class ActionModule(ClusterAction):
    """Deletes those that are there."""

    OPERATION = "removing objects"

    def run_on_cluster(self, args: Json) -> Json:
        """Return changed and removed, a line for each; AnsibleActionFail names what blocks one that is still there."""
        existing = []
        for document in args["documents"]:
            metadata = document["metadata"]
            place = document["apiVersion"], document["kind"], metadata["name"], metadata.get("namespace", "")
            try:
                resource = self.api.look(*place)
            except ApiError as error:
                if error.status != FORBIDDEN or not args["optional"]:
                    raise
                continue  # a user who may not read it has not made it
            if resource is not None:
                existing.append(resource | {"apiVersion": place[0], "kind": place[1]})
        if not self.check and args["wait"]:
            remove(self.api, existing, args["timeout"], POLL_SECONDS, StatusLines())
        elif not self.check:
            for resource in existing:
                metadata = resource["metadata"]
                path = self.api.path(
                    resource["apiVersion"], resource["kind"], metadata.get("namespace", ""), metadata["name"]
                )
                self.api.delete(str(path), metadata["uid"])
        return {"changed": bool(existing), "removed": [title(resource) for resource in existing]}
