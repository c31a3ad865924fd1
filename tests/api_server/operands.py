"""What the installed operators do with their resources, in tests: the status they report, late and in steps.

Each acts only while its ClusterServiceVersion is Succeeded, so a resource whose operator is gone hangs as in reality.
"""

from __future__ import annotations

from collections.abc import Callable

from api_server import crds
from api_server.client import Client, Json, condition
from api_server.webhook import SlowWebhook

OLM = "operators.coreos.com/v1alpha1"
FINALIZER = "tests.trainlab.rhoai/finalizer"
DSC, DSCI = "datasciencecluster.opendatahub.io", "dscinitialization.opendatahub.io"
APPLICATIONS = "redhat-ods-applications"
ALWAYS_REPORTED = ("dashboard", "workbenches", "kserve", "ray", "trainingoperator", "trainer", "kueue", "modelregistry")


class Operands:
    """Lets every installed operator act once per call of `step`."""

    def __init__(self, client: Client, faults: dict[str, str]) -> None:
        """Faults by package: `not-ready` (never becomes ready); for rhods-operator also `webhook` (see webhook.py)."""
        self._client, self.faults = client, faults
        self._webhook = SlowWebhook(client)
        self._acts: dict[str, Callable[[Json], None]] = {
            "nfd.": self._nfd,
            "gpu-operator-certified.": self._gpu,
            "cert-manager-operator.": self._cert_manager,
            "jobset-operator.": self._jobset,
            "rhods-operator.": self._rhoai,
            "aws-efs-csi-driver-operator.": self._efs,
            "odf-operator.": self._odf,
        }

    def step(self) -> None:
        """Act for every ClusterServiceVersion that has succeeded."""
        self._webhook.step(self.faults.get("rhods-operator") == "webhook")
        for csv in self._client.items(OLM, "ClusterServiceVersion"):
            if (csv.get("status") or {}).get("phase") == "Succeeded":
                for prefix, act in self._acts.items():
                    if csv["metadata"]["name"].startswith(prefix):
                        act(csv)

    def _say(self, thing: Json, status: Json) -> None:
        """Set a status once."""
        if any((thing.get("status") or {}).get(key) != value for key, value in status.items()):
            self._client.status(thing, status)

    def _nfd(self, _csv: Json) -> None:
        for one in self._client.items("nfd.openshift.io/v1", "NodeFeatureDiscovery"):
            before = bool(one.get("status"))
            self._say(one, {"conditions": [condition("Available", before), condition("Degraded", False)]})

    def _gpu(self, _csv: Json) -> None:
        for one in self._client.items("nvidia.com/v1", "ClusterPolicy"):
            good = bool(one.get("status")) and self.faults.get("gpu-operator-certified") != "not-ready"
            self._say(one, {"state": "ready" if good else "notReady", "namespace": "nvidia-gpu-operator"})

    def _cert_manager(self, _csv: Json) -> None:
        names = ("Certificate", "Issuer")
        for kind in names:
            self._client.apply(crds.reduced("cert-manager.io", kind, ["v1"], True))
        self._client.apply(
            {"apiVersion": "operator.openshift.io/v1alpha1", "kind": "CertManager", "metadata": {"name": "cluster"}}
        )
        self._client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cert-manager"}})
        pod = {"containers": [{"name": "webhook", "image": "cert-manager"}]}
        labels = {"app": "webhook"}
        deployment = self._client.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "cert-manager-webhook", "namespace": "cert-manager"},
                "spec": {
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": pod},
                },
            }
        )
        self._say(deployment, {"conditions": [condition("Available", True)]})

    def _jobset(self, _csv: Json) -> None:
        if self._client.items("operator.openshift.io/v1", "JobSetOperator"):
            for crd in crds.jobset():
                self._client.apply(crd)

    def _efs(self, _csv: Json) -> None:
        one = self._client.look("operator.openshift.io/v1", "ClusterCSIDriver", "efs.csi.aws.com")
        if one:
            typed = one | {"apiVersion": "operator.openshift.io/v1", "kind": "ClusterCSIDriver"}
            self._say(
                typed,
                {"conditions": [condition("AWSEFSDriverNodeServiceControllerAvailable", bool(one.get("status")))]},
            )

    def _odf(self, _csv: Json) -> None:
        for one in self._client.items("ocs.openshift.io/v1", "StorageCluster"):
            self._say(one, {"phase": "Ready" if one.get("status") else "Progressing"})

    def _rhoai(self, csv: Json) -> None:
        version = "v1" if ".2.25." in csv["metadata"]["name"] else "v2"
        clusters = self._client.items(f"{DSC}/{version}", "DataScienceCluster")
        initializations = self._client.items(f"{DSCI}/{version}", "DSCInitialization")
        if not initializations and not (csv["metadata"].get("annotations") or {}).get("test/initialized"):
            self._client.apply(
                {
                    "apiVersion": f"{DSCI}/{version}",
                    "kind": "DSCInitialization",
                    "metadata": {"name": "default-dsci", "finalizers": [FINALIZER]},
                    "spec": {"applicationsNamespace": APPLICATIONS},
                }
            )
            for name in (APPLICATIONS, "redhat-ods-monitoring", "rhods-notebooks"):
                labels = {"opendatahub.io/generated-namespace": "true"}
                self._client.apply(
                    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
                )
            self._client.merge(csv, {"metadata": {"annotations": {"test/initialized": "true"}}})
        for one in initializations:
            if one["metadata"].get("deletionTimestamp"):
                if not clusters:  # the real one's webhook denies it while there is a DataScienceCluster
                    self._client.merge(one, {"metadata": {"finalizers": []}})
            else:
                self._say(one, {"phase": "Ready" if one.get("status") else "Progressing"})
        for one in clusters:
            self._cluster(one)

    def _cluster(self, one: Json) -> None:
        if one["metadata"].get("deletionTimestamp"):
            self._client.merge(one, {"metadata": {"finalizers": []}})
            return
        if FINALIZER not in one["metadata"].get("finalizers", []):
            self._client.merge(one, {"metadata": {"finalizers": [FINALIZER]}})
        components = one["spec"].get("components") or {}
        conditions = [self._component(name, components.get(name) or {}) for name in ALWAYS_REPORTED]
        bad = [each for each in conditions if each["status"] != "True" and each["reason"] != "Removed"]
        good = not bad and bool(one.get("status")) and self.faults.get("rhods-operator") != "not-ready"
        words = ", ".join(each["type"] for each in bad)
        conditions.append(condition("Ready", good, "" if good else "NotReady", f"not ready: {words}" if bad else ""))
        self._say(one, {"phase": "Ready" if good else "Not Ready", "conditions": conditions})

    def _component(self, name: str, entry: Json) -> Json:
        kind = {"trainingoperator": "TrainingOperator", "modelregistry": "ModelRegistry"}.get(
            name, name.capitalize()
        ) + "Ready"
        state = entry.get("managementState", "Removed")
        if state == "Removed":
            return condition(kind, False, "Removed", "Component ManagementState is set to Removed")
        if name == "trainer" and not self._client.resources("jobset.x-k8s.io/v1alpha2", fresh=True):
            return condition(
                kind, False, "PreConditionFailed", "JobSet operator not installed: CRD jobsets.jobset.x-k8s.io"
            )
        if name == "kueue":
            if not self._client.path("kueue.openshift.io/v1", "Kueue"):
                return condition(kind, False, "PreConditionFailed", "Red Hat build of Kueue is not installed")
            frameworks = {"frameworks": ["PyTorchJob"]}
            self._client.apply(
                {
                    "apiVersion": "kueue.openshift.io/v1",
                    "kind": "Kueue",
                    "metadata": {"name": "cluster", "annotations": {"opendatahub.io/managed": "false"}},
                    "spec": {"managementState": "Managed", "config": {"integrations": frameworks}},
                }
            )
        return condition(kind, True)
