"""Waits until each node that a DaemonSet targets has the images of its pods."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail

from ..plugin_utils.documented import ClusterAction
from ..plugin_utils.kube import Json
from ..plugin_utils.pods import pulled
from ..plugin_utils.waiting import ApiRetries, StatusLines, polls, watch_pods


class ActionModule(ClusterAction):
    """A running pod has pulled its images: the gate before a job that must not wait for them."""

    OPERATION = "pulling images by DaemonSet {namespace}/{name}"

    def run_on_cluster(self, args: Json) -> Json:
        """Wait; returns nodes, the number of those that have the images."""
        space, name = args["namespace"], args["name"]
        path = f"/apis/apps/v1/namespaces/{space}/daemonsets/{name}"
        pods = f"/api/v1/namespaces/{space}/pods"
        if self.check:
            return {"changed": False, "nodes": 0}
        lines = StatusLines()
        retries = ApiRetries(lines)
        for _poll in polls(
            args["timeout"],
            f"the pull by DaemonSet {space}/{name}",
            f"see `{self.api.kubectl} -n {space} get pods -l app.kubernetes.io/name={name} -o wide`; raise image_prepull_timeout, or run the "
            "playbook again: the nodes keep pulling",
        ):
            found = retries.ask(lambda: self.api.get(path))
            if found is None:
                continue
            wanted, ready = pulled(found)
            if ready is not None:
                lines.changed("images", f"on {ready} of {wanted} nodes")
                if ready == wanted:
                    return {"changed": False, "nodes": wanted}
            there = retries.ask(lambda: self.api.items(pods, f"app.kubernetes.io/name={name}"))
            trouble = watch_pods(self.api, space, there or [], lines, args["unschedulable_timeout"])
            if trouble:
                raise AnsibleActionFail(f"images are not on the nodes: {trouble}")
            lines.alive(f"still pulling: {ready or 0} of {wanted} nodes")
        return {}
