"""plugins/action/objects_apply.py: what it deletes where no namespace bounds it, on a server that keeps what is applied."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.trainlab.rhoai.plugins.action import objects_apply
from ansible_collections.trainlab.rhoai.plugins.plugin_utils.platform_api import PlatformApi

from plugins.keeping import KUEUE, RBAC, Json, Kept

OWNED = {"trainlab.dev/owner": "attendees"}
PRUNE = [
    {"apiVersion": RBAC, "kind": "ClusterRoleBinding"},
    {"apiVersion": RBAC, "kind": "RoleBinding"},
    {"apiVersion": KUEUE, "kind": "LocalQueue"},
    {"apiVersion": "v1", "kind": "PersistentVolumeClaim"},
    {"apiVersion": "v1", "kind": "PersistentVolume"},
]


def document(api: str, kind: str, name: str, space: str = "", **labels: str) -> Json:
    metadata: Json = {"name": name, "labels": {key.replace("_", "/"): value for key, value in labels.items()}}
    return {"apiVersion": api, "kind": kind, "metadata": metadata | ({"namespace": space} if space else {})}


def owned(api: str, kind: str, name: str, space: str = "", who: str = "") -> Json:
    """An object of the attendees; what lies outside their namespaces says whose it is."""
    one = document(api, kind, name, space)
    one["metadata"]["labels"] = OWNED | ({"trainlab.dev/attendee": who} if who else {})
    return one


def space(name: str, who: str) -> Json:
    """The document of an attendee's namespace, as the role has it."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"trainlab.dev/attendee": who}},
    }


def optional(name: str, who: str) -> list[Json]:
    """All that a variable of the role may take away again."""
    return [
        owned(RBAC, "ClusterRoleBinding", f"trainlab-attendee-preflight-{name}", who=who),
        owned(RBAC, "RoleBinding", f"trainlab-pull-{name}", "images", who),
        owned(KUEUE, "LocalQueue", "trainlab", name),
        owned("v1", "PersistentVolumeClaim", "models", name),
        owned("v1", "PersistentVolume", f"trainlab-models-{name}", who=who),
    ]


def apply(cluster: Any, documents: list[Json], check: bool = False, prune: list[Json] = PRUNE) -> Json:
    """Run the plugin as Ansible does."""
    action = objects_apply.ActionModule.__new__(objects_apply.ActionModule)
    action._task = SimpleNamespace(check_mode=check)
    action.api = PlatformApi(str(cluster.kubeconfig))
    args = {"owner": "attendees", "namespace": "", "foreign": "refuse", "documents": documents, "prune": prune}
    args["optional"] = False
    result: Json = action.run_on_cluster(args)
    return result


def kinds(kept: Kept) -> set[str]:
    return {name for each in PRUNE for name in kept.names(each["kind"])}


def test_what_no_document_names_goes_for_the_attendees_of_the_set_alone(cluster: Any) -> None:
    """Others' objects, those without the owner label, and an attendee of the same name in another namespace keep theirs."""
    kept = Kept(cluster)
    others = [*optional("trainlab-grace", "grace"), *optional("x-trainlab-ada", "ada")]
    strange = document(KUEUE, "LocalQueue", "mine", "trainlab-ada")
    spaces = [owned("v1", "Namespace", name, who="ada") for name in ("trainlab-ada", "x-trainlab-ada")]
    kept.keep(*spaces, owned("v1", "Namespace", "trainlab-grace", who="grace"), *others, strange)
    safe = kinds(kept)
    kept.keep(*optional("trainlab-ada", "ada"))
    wanted = [space("trainlab-ada", "ada")]

    planned = apply(cluster, wanted, check=True)
    assert len([line for line in planned["objects"] if line.startswith("would delete: ")]) == len(PRUNE)
    assert kinds(kept) > safe
    done = apply(cluster, wanted)
    assert [line for line in done["objects"] if line.startswith("deleted: ")] == [
        "deleted: ClusterRoleBinding trainlab-attendee-preflight-trainlab-ada",
        "deleted: RoleBinding images/trainlab-pull-trainlab-ada",
        "deleted: LocalQueue trainlab-ada/trainlab",
        "deleted: PersistentVolumeClaim trainlab-ada/models",
        "deleted: PersistentVolume trainlab-models-trainlab-ada",
    ]
    assert kinds(kept) == safe
    assert len(kept.names("Namespace")) == 3
    again = apply(cluster, wanted)
    assert not again["changed"]


def test_a_place_without_prefix_takes_no_namespace_of_that_name_along(cluster: Any) -> None:
    kept = Kept(cluster)
    kept.keep(owned("v1", "Namespace", "trainlab-ada", who="ada"))
    apply(cluster, [space("ada", "ada")])
    assert kept.names("Namespace") == {"/ada", "/trainlab-ada"}


def test_each_kind_is_listed_once_however_many_attendees_there_are(cluster: Any) -> None:
    Kept(cluster)
    people = [space(f"trainlab-user{number}", f"user{number}") for number in range(40)]
    apply(cluster, people)
    cluster.asked.clear()
    assert not apply(cluster, people)["changed"]
    assert len([path for _, path in cluster.asked if "labelSelector" in path]) == len(PRUNE) + 1
    discovery = (
        len({each["apiVersion"] for each in PRUNE}) + 1
    )  # which version of Kueue's API is served, and what is in it
    assert len(cluster.asked) == len(PRUNE) + 1 + discovery


def test_what_bounds_the_deletion_is_asked_for(cluster: Any) -> None:
    with pytest.raises(AnsibleActionFail, match="prune is set without namespace"):
        apply(cluster, [document("v1", "Namespace", "demo")])


def test_fields_of_two_documents() -> None:
    """What an object gets when it is created, and what of that is not the inventory's own."""
    example = {"spec": {"driver": {"enabled": True, "version": "1"}, "mig": {"strategy": "single"}}}
    own = {"spec": {"driver": {"version": "2"}, "extra": []}}
    assert objects_apply.merged(example, own) == {
        "spec": {"driver": {"enabled": True, "version": "2"}, "mig": {"strategy": "single"}, "extra": []}
    }
    assert objects_apply.without(example, own) == {"spec": {"driver": {"enabled": True}, "mig": {"strategy": "single"}}}
