"""Creates or removes a namespace: as an administrator, or as a Project of a user who may not create namespaces."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail

from ..plugin_utils import projects
from ..plugin_utils.documented import ClusterAction
from ..plugin_utils.kube import ApiError, Json
from ..plugin_utils.platform_api import title
from ..plugin_utils.removing import remove
from ..plugin_utils.waiting import StatusLines, polls

FORBIDDEN, CONFLICT = 403, 409
POLL_SECONDS = 1.0
READY_SECONDS = 30.0


class ActionModule(ClusterAction):
    """State present creates it and reports what the user may create in it; absent removes it if it is ours."""

    OPERATION = "namespace {name}"

    def run_on_cluster(self, args: Json) -> Json:
        """Return changed, ours, how (found, absent, namespace, project), may_not (of `makes`) and notes."""
        self._name: str = args["name"]
        found = self._look()
        if args["state"] == "absent":
            return self._absent(found, args["timeout"])
        notes: list[str] = []
        if found is not None:
            ours = projects.ours(found)
            changed, how = self._labels(found, args["labels"], notes), "found"
        elif projects.may(self.api, "create", "namespaces"):
            self.api.put(self._document(args["labels"] | projects.MARK), None, self.check)
            changed, how, ours = True, "namespace", True
        else:
            self._request(notes)
            changed, how, ours = True, "project", True
        may_not = [one for one in args["makes"] if not self._may_make(one)]
        return {"changed": changed, "ours": ours, "how": how, "may_not": may_not, "notes": notes}

    def _look(self) -> Json | None:
        """The namespace; None also on Forbidden, which is OpenShift's answer for one that does not exist."""
        try:
            return self.api.get(f"/api/v1/namespaces/{self._name}")
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            return None

    def _document(self, labels: Json) -> Json:
        return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._name, "labels": labels}}

    def _labels(self, found: Json, labels: Json, notes: list[str]) -> bool:
        """Set the labels that a namespace of ours lacks; without the right, leave them to an administrator and say so."""
        there = found["metadata"].get("labels") or {}
        missing = [f"{key}={value}" for key, value in labels.items() if there.get(key) != value]
        if not missing:
            return False
        command = f"oc label namespace {self._name} {' '.join(missing)}"
        if not projects.ours(found):
            notes.append(
                f"namespace {self._name} was made by somebody else and is not labeled; ask them to run: {command}"
            )
            return False
        # a namespace from a ProjectRequest is recognized by its description: its user may not label it
        mark = {} if projects.requested(found) else projects.MARK
        try:
            return self.api.put(self._document(labels | mark), found, self.check) != "unchanged"
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            notes.append(f"namespace {self._name}: this user may not label it; ask an administrator to run: {command}")
            return False

    def _request(self, notes: list[str]) -> None:
        """Request a Project from OpenShift, with the user as its administrator."""
        ask = f"ask an administrator for it (`oc new-project {self._name}`, and role admin in it), or set trainlab_namespace"
        if not self.api.serves(projects.API, "projectrequests"):
            raise AnsibleActionFail(
                f"trainlab_namespace is {self._name}, which does not exist or is not yours, and this user may not create "
                f"namespaces; {ask}; nothing was applied"
            )
        if self.check:
            return
        try:
            self.api.send("POST", projects.REQUESTS, projects.request(self._name))
        except ApiError as error:
            why = {
                FORBIDDEN: "this user may create neither namespaces nor projects",
                CONFLICT: "a project of that name belongs to somebody else",
            }.get(error.status)
            if why is None:
                raise
            raise AnsibleActionFail(
                f"trainlab_namespace is {self._name}: {why} ({error}); {ask}; nothing was applied"
            ) from error
        notes.append(f"namespace {self._name} is a Project of this user, who may not create namespaces")
        hint = f"see `{self.api.oc} get project {self._name}` and `{self.api.oc} -n {self._name} get rolebindings`"
        for _poll in polls(READY_SECONDS, f"the right to work in project {self._name}", hint):
            if self._look() is not None and projects.may(self.api, "create", "configmaps", namespace=self._name):
                break

    def _may_make(self, resource: str) -> bool:
        name, _dot, group = resource.partition(".")
        verb = "create"
        if name == "roles":  # a Role with rights its creator lacks is refused, except to those who may escalate
            verb = "escalate"
        return projects.may(self.api, verb, name, group, self._name)

    def _absent(self, found: Json | None, timeout: float) -> Json:
        nothing: Json = {
            "changed": False,
            "ours": False,
            "how": "found" if found else "absent",
            "may_not": [],
            "notes": [],
        }
        if found is None or not projects.ours(found):
            return nothing
        typed = found | {"apiVersion": "v1", "kind": "Namespace"}
        if projects.requested(found):  # its user may delete the Project, but not the Namespace below it
            typed = typed | {"apiVersion": projects.API, "kind": "Project"}
        if not self.check:
            remove(self.api, [typed], timeout, POLL_SECONDS, StatusLines())
        return nothing | {"changed": True, "ours": True, "how": "absent", "notes": [f"{title(typed)} is gone"]}
