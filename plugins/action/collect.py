"""Records what a cluster reports while operators are installed and a phase is trained, without changing anything there.

What is written is cleaned of secrets; plugin_utils/observing.py says what is read. The bundle is complete after each pass, so
Ctrl-C leaves one.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from ..plugin_utils.documented import ClusterAction
from ..plugin_utils.kube import ApiError, Json
from ..plugin_utils.observing import Observer, containers, images, troubled
from ..plugin_utils.recording import CHANGES, Recording, clean, clean_text, write_bundle

STAMP = "%Y-%m-%dT%H:%M:%SZ"


class ActionModule(ClusterAction):
    """Looks, records what has changed, and looks again until the time is over."""

    OPERATION = "collecting"

    def run_on_cluster(self, args: Json) -> Json:
        """Collect; returns `bundle`, `changes` and `unread`."""
        self._record = Recording()
        self._events: dict[str, str] = {}
        self._logs: dict[str, str] = {}
        self._args = args
        self._observer = Observer(self.api, args["namespace"], args["image_namespace"] or args["namespace"])
        self._kubernetes = self.api.get("/version") or {}
        began = datetime.now(UTC)
        self._name = f"trainlab-collect-{self._cluster()}-{began.strftime('%Y%m%dT%H%M%SZ')}"
        archive = Path(args["dest"]).expanduser().absolute() / f"{self._name}.tar.gz"
        while True:
            last = self.lines.seconds + args["poll"] > args["seconds"] or self.check
            if (self._pass(last) or last) and not self.check:
                self._write(archive)
            if last:
                break
            self.lines.alive(f"{len(self._record.lines)} changes so far")
            time.sleep(args["poll"])
        return {
            "changed": not self.check,
            "bundle": "" if self.check else str(archive),
            "changes": len(self._record.lines),
            "unread": self._unread(),
        }

    def _cluster(self) -> str:
        """Return the beginning of the cluster's id, so that bundles of two clusters have two names."""
        try:
            namespace = self.api.get("/api/v1/namespaces/kube-system") or {"metadata": {}}
        except ApiError:  # without the right to see it
            return "unknown"
        return str(namespace["metadata"].get("uid", "unknown"))[:8]

    def _pass(self, last: bool) -> bool:
        """Look once and record; tell whether anything was new."""
        seen, complete = self._observer.look()
        seconds, stamp = self.lines.seconds, datetime.now(UTC).strftime(STAMP)
        new = [item for item in seen if self._record.see(seconds, stamp, item)]
        gone = self._record.gone(seconds, stamp, complete, {item.place for item in seen})
        events = self._new_events(seconds)
        changed = {(item.place.namespace, item.place.name) for item in new if item.place.kind == "Pod"}
        for pod in self._observer.objects.get("Pod", []):
            ours = pod["metadata"].get("namespace") == self._args["namespace"]
            place = (pod["metadata"].get("namespace"), pod["metadata"]["name"])
            if (last and ours) or (troubled(pod) and (last or place in changed)):
                self._keep_logs(pod)
        return bool(new or gone or events)

    def _new_events(self, seconds: float) -> bool:
        """Keep events that are new, or were counted again."""
        before = len(self._events)
        for event in self._observer.events():
            count = event.get("count") or (event.get("series") or {}).get("count") or 1
            involved = event.get("involvedObject") or {}
            record = {
                "at": round(seconds, 1),
                "time": event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp"),
                "namespace": event["metadata"].get("namespace"),
                "object": f"{involved.get('kind')}/{involved.get('name')}",
                "count": count,
                **{key: event.get(key) for key in ("type", "reason", "message")},
            }
            self._events.setdefault(f"{event['metadata']['uid']} {count}", json.dumps(clean(record)))
        return len(self._events) > before

    def _keep_logs(self, pod: Json) -> None:
        """Read the last lines of each container, and those of its last failure."""
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        for container in containers(pod):
            file = f"logs/{namespace}/{name}.{container['name']}"
            for previous in (False, True) if container.get("restartCount") else (False,):
                text = self._observer.log(namespace, name, container["name"], self._args["log_lines"], previous)
                if text:
                    self._logs[f"{file}{'.previous' if previous else ''}.log"] = clean_text(text)

    def _unread(self) -> list[str]:
        return [f"{kind}: {clean_text(why)}" for kind, why in sorted(self._observer.unread.items())]

    def _write(self, archive: Path) -> None:
        files = {
            f"statuses/{self._observer.file(key)}.yaml": _yaml(history)
            for key, history in self._record.files(self._name).items()
        }
        files |= self._logs
        files[CHANGES] = "".join(f"{line}\n" for line in self._record.lines)
        files["events.jsonl"] = "".join(f"{line}\n" for line in self._events.values())
        files["versions.yaml"] = _yaml(clean(self._versions()))
        files["unread.yaml"] = _yaml(self._unread())
        write_bundle(archive, files)

    def _versions(self) -> Json:
        subscriptions = {}
        for name, entry in self._observer.table.items():
            subscription = self._observer.subscription(entry)
            spec, status = subscription.get("spec") or {}, subscription.get("status") or {}
            if subscription:
                asked = {key: spec.get(key) for key in ("channel", "source", "startingCSV", "installPlanApproval")}
                subscriptions[name] = asked | {"installedCSV": status.get("installedCSV")}
        return {
            "kubernetes": self._kubernetes,
            "openshift": [
                cluster_version.get("status", {}).get("desired")
                for cluster_version in self._observer.objects.get("ClusterVersion", [])
            ],
            "operators": subscriptions,
            "images": images(self._observer.objects.get("Pod", [])),
        }


def _yaml(data: Any) -> str:
    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=140))
