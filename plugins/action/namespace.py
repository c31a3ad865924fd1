"""Creates or removes a namespace: as an administrator, or as a Project of a user who may not create namespaces.

Source: openshift/api project/v1 (ProjectRequest, the annotations of a Project).
"""

from __future__ import annotations

from ansible.errors import AnsibleActionFail

from ..plugin_utils.documented import ClusterAction
from ..plugin_utils.kube import FORBIDDEN, ApiError, Json
from ..plugin_utils.losses import HELM, left_in
from ..plugin_utils.platform_api import title
from ..plugin_utils.waiting import polls

CONFLICT = 409
READY_SECONDS = 30.0
PROJECT_API = "project.openshift.io/v1"
REQUESTS = f"/apis/{PROJECT_API}/projectrequests"
MARK = {"app.kubernetes.io/managed-by": "trainlab"}
"""Label of the namespaces that we created."""
DESCRIPTION = "Made by playbooks/workspace.yml of trainlab"
"""The only mark of its origin that a ProjectRequest can give a Project: its labels and annotations are dropped."""


class ActionModule(ClusterAction):
    """State present creates it and reports what the user may create in it; absent removes it if it is ours."""

    OPERATION = "namespace {name}"

    def run_on_cluster(self, args: Json) -> Json:
        """Return changed, ours, how (found, absent, namespace, project), may_not (of `makes`), notes, left and others."""
        self._name: str = args["name"]
        namespace = self._look()
        if args["state"] == "absent":
            return self._absent(namespace, args["timeout"], args["release"])
        notes: list[str] = []
        if namespace is not None:
            ours = owned(namespace)
            changed, how = self._labels(namespace, args["labels"], notes), "found"
        elif self.api.may("create", "namespaces"):
            self.api.put(self._document(args["labels"] | MARK), None, self.check)
            changed, how, ours = True, "namespace", True
        else:
            self._request(notes)
            changed, how, ours = True, "project", True
        may_not = [arg for arg in args["makes"] if not self._may_make(arg)]
        return {
            "changed": changed,
            "ours": ours,
            "how": how,
            "may_not": may_not,
            "notes": notes,
            "left": "",
            "others": False,
        }

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

    def _labels(self, namespace: Json, labels: Json, notes: list[str]) -> bool:
        """Set the labels that a namespace of ours lacks; without the right, leave them to an administrator and say so."""
        current = namespace["metadata"].get("labels") or {}
        missing = [f"{key}={value}" for key, value in labels.items() if current.get(key) != value]
        if not missing:
            return False
        command = f"oc label namespace {self._name} {' '.join(missing)}"
        if not owned(namespace):
            notes.append(
                f"namespace {self._name} was made by somebody else and is not labeled; ask them to run: {command}"
            )
            return False
        # a namespace from a ProjectRequest is recognized by its description: its user may not label it
        mark = {} if requested(namespace) else MARK
        try:
            return self.api.put(self._document(labels | mark), namespace, self.check) != "unchanged"
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            notes.append(f"namespace {self._name}: this user may not label it; ask an administrator to run: {command}")
            return False

    def _request(self, notes: list[str]) -> None:
        """Request a Project from OpenShift, with the user as its administrator."""
        ask = f"ask an administrator for it (`oc new-project {self._name}`, and role admin in it), or set trainlab_namespace"
        if not self.api.serves(PROJECT_API, "projectrequests"):
            raise AnsibleActionFail(
                f"trainlab_namespace is {self._name}, which does not exist or is not yours, and this user may not create "
                f"namespaces; {ask}; nothing was applied"
            )
        if self.check:
            return
        try:
            self.api.send("POST", REQUESTS, request(self._name))
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
            if self._look() is not None and self.api.may("create", "configmaps", namespace=self._name):
                break

    def _may_make(self, resource: str) -> bool:
        name, _dot, group = resource.partition(".")
        verb = "create"
        if name == "roles":  # a Role with rights its creator lacks is refused, except to those who may escalate
            verb = "escalate"
        return self.api.may(verb, name, group, self._name)

    def _absent(self, namespace: Json | None, timeout: float, release: str) -> Json:
        losses = left_in(self.api, self._name) if namespace is not None else None
        left = losses.sentence(self.api.oc, self._name) if losses else ""
        nothing: Json = {
            "changed": False,
            "ours": False,
            "how": "found" if namespace else "absent",
            "may_not": [],
            "notes": [],
            "left": left,
            "others": any(
                _needs(item, release, namespace is not None and owned(namespace))
                for item in (losses.resources() if losses else [])
            ),
        }
        if namespace is None or not owned(namespace) or left:
            return nothing | {"ours": namespace is not None and owned(namespace)}
        typed = namespace | {"apiVersion": "v1", "kind": "Namespace"}
        if requested(namespace):  # its user may delete the Project, but not the Namespace below it
            typed = typed | {"apiVersion": PROJECT_API, "kind": "Project"}
        self.remove([typed], timeout)
        return nothing | {"changed": True, "ours": True, "how": "absent", "notes": [f"{title(typed)} is gone"]}


def _needs(item: Json, release: str, ours: bool) -> bool:
    """Tell whether an object needs the rights, limits, policies and queue of its namespace: one that is not of this release.

    In a namespace of somebody else's that are jobs and what belongs to other releases of the chart.
    """
    marks = item["metadata"].get("labels") or {}
    of_helm = marks.get("name") if item.get("type") == HELM else ""
    if release and release in (marks.get("app.kubernetes.io/instance"), of_helm):
        return False
    return ours or item["kind"] in ("PyTorchJob", "TrainJob") or marks.get("app.kubernetes.io/part-of") == "trainlab"


def request(name: str) -> Json:
    """Return the ProjectRequest for a name."""
    return {
        "apiVersion": PROJECT_API,
        "kind": "ProjectRequest",
        "metadata": {"name": name},
        "displayName": name,
        "description": DESCRIPTION,
    }


def requested(namespace: Json) -> bool:
    """Tell whether our ProjectRequest created this namespace."""
    annotations = namespace["metadata"].get("annotations") or {}
    return bool(annotations.get("openshift.io/description") == DESCRIPTION)


def owned(namespace: Json) -> bool:
    """Tell whether we created this namespace."""
    labels = namespace["metadata"].get("labels") or {}
    return requested(namespace) or all(labels.get(key) == value for key, value in MARK.items())
