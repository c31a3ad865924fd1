"""Writes a kubeconfig for each attendee's ServiceAccount, with a token that expires by itself."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import yaml
from ansible.errors import AnsibleActionFail

from ..plugin_utils import tokens
from ..plugin_utils.documented import ClusterAction
from ..plugin_utils.kube import Json

SITE = "site.yaml"
SHORTEST_HOURS = 1.0
"""Below ten minutes the API server refuses; in less than an hour no training finishes."""
AT_ONCE = 8
"""Requests in flight: each waits for a distant API server, and the client library's pool keeps five connections per processor."""


class ActionModule(ClusterAction):
    """Creates what is missing or about to expire."""

    OPERATION = "a token for an attendee"

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
        written, until = [], []
        for one, token in self._tokens(args, folder):
            if not token:
                written.append(one["name"])
                continue
            until.append(tokens.ends(token))
            text = tokens.kubeconfig_text(cluster, one["namespace"], one["name"], token)
            if not self.check and tokens.write(_file(folder, one), text):
                written.append(one["name"])
        site, changed = folder / SITE, bool(written)
        if not self.check and args["site"]:
            changed = tokens.write(site, f"---\n{yaml.safe_dump({'site': args['site']}, sort_keys=False)}") or changed
        elif not self.check and site.exists():
            site.unlink()
            changed = True
        first = min(until).strftime("%Y-%m-%d %H:%M UTC") if until else ""
        return {"changed": changed, "dest": str(folder), "written": written, "until": first}

    def _tokens(self, args: Json, folder: Path) -> Iterator[tuple[Json, str]]:
        """Yield each attendee, in their order, with the token that serves: empty where check mode asks for none."""
        account, seconds = args["service_account"], int(args["hours"] * 3600)

        def one(attendee: Json) -> str:
            path = f"/api/v1/namespaces/{attendee['namespace']}/serviceaccounts/{account}"
            found = self.api.get(path)
            token = tokens.token_in(_file(folder, attendee))
            if found is not None and tokens.still_serves(token, found["metadata"]["uid"], datetime.now(UTC)):
                return token
            return "" if self.check else self._token(path, seconds)

        with ThreadPoolExecutor(AT_ONCE) as several:
            yield from zip(args["attendees"], several.map(one, args["attendees"]), strict=True)

    def _token(self, path: str, seconds: int) -> str:
        wanted = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        return str(self.api.send("POST", f"{path}/token", wanted)["status"]["token"])


def _file(folder: Path, attendee: Json) -> Path:
    return folder / f"{attendee['name']}.kubeconfig"
