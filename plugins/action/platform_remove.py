"""Undoes what roles/platform did, in reverse order, from any half-installed state; it removes only what carries our owner label.

Before anything is removed it looks at what would go with it that people made (Losses), and refuses if there is any.
Resources first, while their operators can still clean up; then what the operators created themselves, the Subscriptions,
the versions, their CustomResourceDefinitions, and last the namespaces. Running it again continues where it stopped.
"""

from __future__ import annotations

from ansible.errors import AnsibleActionFail

from ..plugin_utils import kueue, labels
from ..plugin_utils.documented import ClusterAction
from ..plugin_utils.kube import Json
from ..plugin_utils.losses import KINDS, PART_OF, Losses
from ..plugin_utils.olm_plan import OLM, by_olm
from ..plugin_utils.platform_api import OWNER, editors, ours, title
from ..plugin_utils.playbooks import words

SHOWN = 3
CRD_API, CRD_KIND = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
GROUPS = "operators.coreos.com/v1"
LABEL_NAME_LENGTH = 63


class ActionModule(ClusterAction):
    """Goes through the table in reverse order."""

    OPERATION = "removing the platform"

    def run_on_cluster(self, args: Json) -> Json:
        """Remove; returns `removed`, one line for each object, and `kept`, sentences about what was not ours."""
        self._timeout, self._poll = args["timeout"], args["poll"]
        self._removed: list[str] = []
        self._kept: list[str] = []
        self._everything(args["table"], args["resources"], args["remove_data"])
        return {"changed": bool(self._removed), "removed": self._removed, "kept": self._kept}

    def _everything(self, table: dict[str, Json], resources: dict[str, Json], remove_data: bool) -> None:
        subscriptions = {
            item["spec"]["name"]: item for item in self.api.listed(OLM, "Subscription")
        }  # none without OLM
        entries = []
        for entry in reversed(list(table.values())):
            subscription = subscriptions.get(entry["package"])
            space = self.api.look("v1", "Namespace", entry["namespace"])
            if subscription is not None and not ours(subscription):
                self._kept.append(f"{entry['title']}: its Subscription is not ours and stays")
                continue
            mine = [item for item in (subscription, space, self._group(entry)) if item is not None and ours(item)]
            if mine:  # an OperatorGroup or a namespace alone is what an interrupted run leaves
                entries.append((entry, subscription, _record(mine)))
        self._groups = {crd["spec"]["group"] for each in entries for crd in self._crds(*each)}
        self._administrators = {entry["kind"] for entry in resources.values() if entry.get("administrators")}
        self._ask(entries, remove_data)
        self._refuse_queue_in_use()
        # while the components are there, which remove their finalizers
        parts = [instance for each in entries for crd in self._made(*each[:2]) for instance in self._instances(crd)]
        self._delete([part for part in parts if not set(PART_OF) & set(part["metadata"].get("labels") or {})])
        # Kueue, which has to be there until the objects of its kinds are gone
        later = {(leftover["kind"], leftover["name"]) for each in entries for leftover in each[0].get("leftovers", [])}
        for name in reversed(list(resources)):
            entry = resources[name]
            own = self.api.listed(entry["apiVersion"], entry["kind"], selector=f"{labels.OWNER}={OWNER}")
            own = [instance for instance in own if (instance["kind"], instance["metadata"]["name"]) not in later]
            self._delete([instance for instance in own if not self._edited(instance, entries)])
        spaces: list[Json] = []
        for entry, subscription, record in entries:
            self._ask([(entry, subscription, record)], remove_data)  # somebody may have made something in the meantime
            self._operator(entry, subscription, record)
            spaces += self._spaces(entry)
        # those of the operators first: a repeated run finds them by ours
        self._delete([space for space in spaces if not ours(space)])
        self._delete([space for space in spaces if ours(space)])

    def _ask(self, entries: list[tuple[Json, Json | None, str]], remove_data: bool) -> None:
        """AnsibleActionFail if people would lose something that they did not agree to lose; check mode only reports it."""
        losses = Losses(self._groups, self._administrators)
        for entry, subscription, record in entries:
            self._look_at(losses, entry, subscription, record)
        sentence = losses.sentence(self.api.oc)
        if sentence and self.check:
            self._kept.append(f"would be refused without platform_remove_data=true: {sentence}")
        elif sentence and not remove_data:
            raise AnsibleActionFail(
                f"{'nothing' if not self._removed else 'nothing more'} was removed, because people would lose what they made: "
                f"{sentence}; save or move what they still need, delete it, and run the teardown again. "
                "platform_remove_data=true deletes all of that with the platform, for good"
            )

    def _edited(self, item: Json, entries: list[tuple[Json, Json | None, str]]) -> bool:
        """Tell, and report, that an administrator's object has their edits and would stay when its operator and its namespace go."""
        names = editors(item) if item["kind"] in self._administrators else []
        goes = {entry["namespace"] for entry, _subscription, _record in entries}
        group = item["apiVersion"].rpartition("/")[0]
        if not names or group in self._groups or item["metadata"].get("namespace") in goes:
            return False
        self._kept.append(f"{title(item)} stays: it has been changed by {', '.join(names)}")
        return True

    def _refuse_queue_in_use(self) -> None:
        """AnsibleActionFail while a job or another queue uses ours: Kueue keeps what it is deleted with until that ends."""
        users = in_use(
            *(self.api.listed(kueue.NEWEST, kind) for kind in ("ResourceFlavor", "ClusterQueue", "Workload"))
        )
        if users and self.check:
            self._kept.append(f"would be refused: our ClusterQueue is in use by {users}")
        elif users:
            raise AnsibleActionFail(
                f"nothing was removed, because our ClusterQueue is in use by {users}; remove attendees with `ansible-playbook "
                f"{words('attendees')} -e attendees_state=absent`, let jobs end or delete them (`"
                f"{self.api.kubectl} get workloads -A`), and run the teardown again"
            )

    def _look_at(self, losses: Losses, entry: Json, subscription: Json | None, record: str) -> None:
        """Add what people have of an operator's kinds, in its namespaces, and on its storage."""
        spaces = {space["metadata"]["name"] for space in self._spaces(entry)}
        losses.add(
            entry,
            spaces,
            [instance for crd in self._crds(entry, subscription, record) for instance in self._instances(crd)],
        )
        for name in spaces if entry.get("namespace_label") else ():
            for kind in KINDS:
                losses.add(entry, set(), self.api.listed(kind["apiVersion"], kind["kind"], name))
        if entry.get("provisioner"):
            classes = {
                storage_class["metadata"]["name"]
                for storage_class in self.api.listed("storage.k8s.io/v1", "StorageClass")
                if storage_class["provisioner"].startswith(entry["provisioner"])
            }
            claims = self.api.listed("v1", "PersistentVolumeClaim") if classes else []
            stored = [claim for claim in claims if claim["spec"].get("storageClassName") in classes]
            losses.add(entry, set(), [claim for claim in stored if claim["metadata"]["namespace"] not in spaces])

    def _group(self, entry: Json) -> Json | None:
        """Our OperatorGroup, which goes last of what is in an operator's namespace."""
        return next((each for each in self.api.listed(GROUPS, "OperatorGroup", entry["namespace"]) if ours(each)), None)

    def _crds(self, entry: Json, subscription: Json | None, record: str) -> list[Json]:
        """The operator's CustomResourceDefinitions: those with OLM's label, groups that nobody served before it, and those that it made."""
        namespace = subscription["metadata"]["namespace"] if subscription else entry["namespace"]
        crds = self.api.listed(CRD_API, CRD_KIND, selector=_component(entry["package"], namespace))
        groups = set(entry.get("api_groups", [])) - set(record.split(","))
        others = [crd for crd in self.api.listed(CRD_API, CRD_KIND) if crd["spec"]["group"] in groups] if groups else []
        return list({crd["metadata"]["name"]: crd for crd in crds + others + self._made(entry, subscription)}.values())

    def _made(self, entry: Json, subscription: Json | None) -> list[Json]:
        """CustomResourceDefinitions that the operator made for its components; it labels those that were there before, too."""
        space = self.api.look("v1", "Namespace", entry["namespace"]) if subscription is None else None
        # somebody else's namespace is older than what we installed
        mark = subscription or self._group(entry) or space or {}
        since = str((mark.get("metadata") or {}).get("creationTimestamp", ""))
        made = [crd for key in entry.get("crd_labels", []) for crd in self.api.listed(CRD_API, CRD_KIND, selector=key)]
        return [crd for crd in made if since and crd["metadata"]["creationTimestamp"] >= since and not by_olm(crd)]

    def _operator(self, entry: Json, subscription: Json | None, record: str) -> None:
        namespace = subscription["metadata"]["namespace"] if subscription else entry["namespace"]
        component = _component(entry["package"], namespace)
        crds = self._crds(entry, subscription, record)
        made = {
            (leftover["kind"], leftover["name"]) for leftover in entry.get("leftovers", [])
        }  # an operator may make them again
        items = [
            instance
            for crd in crds
            for instance in self._instances(crd)
            if (instance["kind"], instance["metadata"]["name"]) not in made
        ]
        parts = {crd["metadata"]["name"] for crd in self._made(entry, subscription)}
        operands = {
            crd["spec"]["names"]["kind"]
            for crd in crds
            if crd["spec"]["group"] in entry.get("api_groups", []) or crd["metadata"]["name"] in parts
        } | set(entry.get("before_leftovers", []))
        # all of them while somebody is there who removes their finalizers: those of an operand before the operand itself
        self._delete([item for item in items if item["kind"] in operands])
        self._leftovers(entry)
        self._delete([item for item in items if item["kind"] not in operands])
        installed = ((subscription or {}).get("status") or {}).get("installedCSV")
        versions = [
            csv
            for csv in self.api.listed(OLM, "ClusterServiceVersion", namespace)
            if component in (csv["metadata"].get("labels") or {}) or csv["metadata"]["name"] == installed
        ]
        self._delete([subscription] if subscription else [])  # before its versions, or OLM would bring them back
        self._delete(versions)
        self._leftovers(entry)
        self._delete(crds)
        groups = [group for group in self.api.listed(GROUPS, "OperatorGroup", namespace) if ours(group)]
        space = self.api.look("v1", "Namespace", namespace)
        others = [title(item) for item in self.api.listed(OLM, "Subscription", namespace) if not ours(item)]
        if groups and others and not (space is not None and ours(space)):
            self._kept.append(f"{title(groups[0])} stays: {', '.join(others)} needs it")
        else:
            self._delete(groups)

    def _leftovers(self, entry: Json) -> None:
        for leftover in entry.get("leftovers", []):
            made = self.api.look(leftover["apiVersion"], leftover["kind"], leftover["name"])
            if made is not None:
                self._delete([made])

    def _spaces(self, entry: Json) -> list[Json]:
        """The operator's namespace if it is ours, and those that the operator created."""
        made = [self.api.look("v1", "Namespace", name) for name in entry.get("makes_namespaces", [])]
        own = self.api.look("v1", "Namespace", entry["namespace"])
        label = entry.get("namespace_label", "")
        spaces = [space for space in made if space] + ([own] if own and ours(own) else [])
        return spaces + (self.api.listed("v1", "Namespace", selector=label) if label else [])

    def _instances(self, crd: Json) -> list[Json]:
        spec = crd["spec"]
        version = next(each["name"] for each in spec["versions"] if each["served"])
        return self.api.listed(f"{spec['group']}/{version}", spec["names"]["kind"])

    def _delete(self, items: list[Json]) -> None:
        """Delete all of them at once and wait until each is gone."""
        self._removed += [title(item) for item in items]
        self.remove(items, self._timeout, self._poll)


def _record(mine: list[Json]) -> str:
    """The API groups that were served before the operator, as its Subscription or its namespace says."""
    return str((mine[0]["metadata"].get("annotations") or {}).get(labels.SERVED_BEFORE, ""))


def _component(package: str, namespace: str) -> str:
    """The label that OLM puts on everything that belongs to an operator."""
    return f"operators.coreos.com/{package}.{namespace}"[: len("operators.coreos.com/") + LABEL_NAME_LENGTH].rstrip(
        ".-_"
    )


def in_use(flavors: list[Json], queues: list[Json], workloads: list[Json]) -> str:
    """Name what still uses a ClusterQueue or ResourceFlavor of ours: other ClusterQueues, and jobs that have its quota."""
    mine = {flavor["metadata"]["name"] for flavor in flavors if ours(flavor)}
    names = {queue["metadata"]["name"] for queue in queues if ours(queue)}
    users = [title(queue) for queue in queues if not ours(queue) and mine & _flavors(queue)]
    for workload in workloads:
        status = workload.get("status") or {}
        ended = any(each["type"] == "Finished" and each["status"] == "True" for each in status.get("conditions") or [])
        if (status.get("admission") or {}).get("clusterQueue") in names and not ended:
            users.append(title(workload))
    return ", ".join(users[:SHOWN]) + (f" and {len(users) - SHOWN} more" if len(users) > SHOWN else "")


def _flavors(queue: Json) -> set[str]:
    groups = queue["spec"].get("resourceGroups") or []
    return {flavor["name"] for group in groups for flavor in group["flavors"]}
