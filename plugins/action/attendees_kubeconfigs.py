"""Writes a kubeconfig for each attendee's ServiceAccount, with a token that expires by itself."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import yaml
from ansible.errors import AnsibleActionFail
from ansible_collections.trainlab.rhoai.plugins.plugin_utils import tokens
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.cluster_action import ClusterAction
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.documented import CLUSTER
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.kube import Json

SITE = "site.yaml"
SHORTEST_HOURS = 1.0
"""Below ten minutes the API server refuses; in less than an hour no training finishes."""


class ActionModule(ClusterAction):
    """Creates what is missing or about to expire."""

    OPERATION = "a token for an attendee"
    TARGET = CLUSTER

    def refuse(self, args: Json) -> None:
        """Refuse a lifetime in which no training finishes."""
        if args["hours"] < SHORTEST_HOURS:
            raise AnsibleActionFail(f"attendees_hours is {args['hours']:g}; set it to {SHORTEST_HOURS:g} or more")

    def run_on_cluster(self, args: Json) -> Json:
        """Write; returns changed, dest, written (names) and until, when the first of them expires."""
        folder = Path(args["dest"]).absolute()
        cluster = self.api.connection.cluster_entry(args["server"])
        try:
            return self._all(args, folder, cluster)
        except OSError as error:
            raise AnsibleActionFail(
                f"attendees_dest is {folder}: {error.strerror} ({error.filename}); name a folder that you may write to"
            ) from error

    def _all(self, args: Json, folder: Path, cluster: Json) -> Json:
        account = args["service_account"]
        written, until = [], []
        for one in args["attendees"]:
            name, namespace = one["name"], one["namespace"]
            file = folder / f"{name}.kubeconfig"
            path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}"
            found = self.api.get(path)
            token = tokens.token_in(file)
            if found is None or not tokens.still_serves(token, found["metadata"]["uid"], datetime.now(UTC)):
                if self.check:
                    written.append(name)
                    continue
                token = self._token(path, int(args["hours"] * 3600))
            until.append(tokens.ends(token))
            if not self.check and tokens.write(file, tokens.kubeconfig_text(cluster, namespace, name, token)):
                written.append(name)
        site, changed = folder / SITE, bool(written)
        if not self.check and args["site"]:
            changed = tokens.write(site, f"---\n{yaml.safe_dump({'site': args['site']}, sort_keys=False)}") or changed
        elif not self.check and site.exists():
            site.unlink()
            changed = True
        first = min(until).strftime("%Y-%m-%d %H:%M UTC") if until else ""
        return {"changed": changed, "dest": str(folder), "written": written, "until": first}

    def _token(self, path: str, seconds: int) -> str:
        wanted = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        return str(self.api.send("POST", f"{path}/token", wanted)["status"]["token"])
