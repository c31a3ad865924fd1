"""What the installed operators do with their resources, in tests: the objects they make and the status they report, step by step.

The steps are those of real operators, one file of statuses/ for each (recorded.py). Each acts only while its
ClusterServiceVersion is Succeeded, so a resource whose operator is gone hangs as in reality.
"""

from __future__ import annotations

from collections.abc import Callable

from api_server import bundles, crds, recorded
from api_server.catalog import release_of
from api_server.client import Client, Json, condition
from api_server.policies import Policies
from api_server.webhook import SlowWebhook

OLM = "operators.coreos.com/v1alpha1"
FINALIZER = "tests.trainlab.rhoai/finalizer"
DSC, DSCI = "datasciencecluster.opendatahub.io", "dscinitialization.opendatahub.io"
APPLICATIONS = "redhat-ods-applications"
ALWAYS_REPORTED = ("dashboard", "workbenches", "kserve", "ray", "trainingoperator", "trainer", "kueue", "modelregistry")
UNACKNOWLEDGED, ACKNOWLEDGED = "not acknowledged", "odh-upgrade-acks"
GATES = "platform.opendatahub.io/upgrade-gate=true"
HARDWARE = "tests.trainlab.rhoai/pci"
"""Annotation of a test's Node: the PCI vendor that Node Feature Discovery finds there, `10de` for an NVIDIA GPU."""
QUEUES, IN_USE = "kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/resource-in-use"
PART_OF = {"platform.opendatahub.io/part-of": "platform"}
WEBHOOK = {"name": "cert-manager-webhook", "namespace": "cert-manager"}
FEATURE = "feature.node.kubernetes.io/"


class Operands:
    """Lets every installed operator act once per call of `step`."""

    def __init__(
        self,
        client: Client,
        faults: dict[str, str],
        image: str = "",
        read: Callable[[str], Json] = recorded.read,
    ) -> None:
        """`read` returns a file of statuses by its name. With `image`, which the nodes have, cert-manager's pod runs it; without nodes its status is set.

        Faults by package: `not-ready` (never becomes ready); for nfd `no-worker`, or the index of
        the step at which it stays, for gpu-operator-certified `no-gpus` (its
        pods never offer one), for rhods-operator also `webhook` (see webhook.py)."""
        self._client, self.faults, self._image, self._read = client, faults, image, read
        self._webhook, self._policies, self._replay = SlowWebhook(client), Policies(client), recorded.Replay()
        self._brought: set[str] = set()
        self._acts: dict[str, Callable[[Json], None]] = {
            "nfd.": self._nfd,
            "gpu-operator-certified.": self._gpu,
            "cert-manager-operator.": self._cert_manager,
            "jobset-operator.": self._jobset,
            "kueue-operator.": self._kueue,
            "rhods-operator.": self._rhoai,
            "aws-efs-csi-driver-operator.": self._efs,
            "odf-operator.": self._odf,
        }

    def step(self) -> None:
        """Act for every ClusterServiceVersion that has succeeded."""
        self._webhook.step(self.faults.get("rhods-operator") == "webhook")
        versions = self._client.items(OLM, "ClusterServiceVersion")
        if not any(csv["metadata"]["name"].startswith("rhods-operator.") for csv in versions):
            self._policies.step([], "")
        for csv in versions:
            if (csv.get("status") or {}).get("phase") == "Succeeded":
                for prefix, act in self._acts.items():
                    if csv["metadata"]["name"].startswith(prefix):
                        act(csv)

    def _next(self, thing: Json, file: str, sequence: str, stay: bool = False) -> Json:
        """Advance an object by one step of a sequence and return the step; what it says of status and labels is set."""
        step: Json = self._replay.step(thing, self._read(file)["sequences"][sequence], sequence, stay)
        self._say(thing, step.get("status", {}))
        labels = thing["metadata"].get("labels") or {}
        if any(labels.get(key) != value for key, value in step.get("labels", {}).items()):
            self._client.merge(thing, {"metadata": {"labels": step["labels"]}})
        return step

    def _situation(self, file: str, kind: str, situation: str) -> str:
        """Return the sequence of a kind in a situation; a bundle has one for all that its cluster went through."""
        sequence = f"{kind}, {situation}" if situation else kind
        return sequence if sequence in self._read(file)["sequences"] else kind

    def _ended(self, thing: Json, file: str, sequence: str) -> bool:
        return self._replay.ended(thing, self._read(file)["sequences"][sequence], sequence)

    def _say(self, thing: Json, status: Json) -> None:
        """Set a status once; conditions get the time that the API requires."""
        if status.get("conditions"):
            stamped = [
                {"lastTransitionTime": "2026-01-01T00:00:00Z", "message": "", **one} for one in status["conditions"]
            ]
            status = status | {"conditions": stamped}
        if any((thing.get("status") or {}).get(key) != value for key, value in status.items()):
            self._client.status(thing, status)

    def _nfd(self, _csv: Json) -> None:
        file, kind = "nfd-4.20", "NodeFeatureDiscovery"
        fault = self.faults.get("nfd", "")
        sequence = self._situation(file, kind, "no worker" if fault == "no-worker" else "")
        for one in self._client.items("nfd.openshift.io/v1", kind):
            self._next(one, file, sequence, stay=fault == str(self._replay.at(one, sequence)))
            if sequence == kind and self._ended(one, file, kind):
                for node in self._client.items("v1", "Node"):
                    vendor = (node["metadata"].get("annotations") or {}).get(HARDWARE)
                    self._next(node, file, "Node, NVIDIA GPU" if vendor == "10de" else "Node")

    def _gpu(self, csv: Json) -> None:
        file = f"gpu-operator-{release_of(csv['metadata']['name'])}"
        nodes = self._client.items("v1", "Node")
        found = [node for node in nodes if (node["metadata"].get("labels") or {}).get(f"{FEATURE}pci-10de.present")]
        seen = any(key.startswith(FEATURE) for node in nodes for key in node["metadata"].get("labels") or {})
        sequence = self._situation(file, "ClusterPolicy", "" if found else "no GPU nodes" if seen else "no NFD labels")
        fault = self.faults.get("gpu-operator-certified")
        for one in self._client.items("nvidia.com/v1", "ClusterPolicy"):
            if fault == "not-ready":
                self._say(one, recorded.read(file)["sequences"]["ClusterPolicy"][1]["status"])
                continue
            self._next(one, file, sequence)
            for node in found if self._ended(one, file, sequence) and fault != "no-gpus" else []:
                self._next(node, file, "Node")

    def _cert_manager(self, csv: Json) -> None:
        file, sequence = "cert-manager-1.19", "ClusterServiceVersion of cert-manager-operator"
        step = self._replay.step(csv, self._read(file)["sequences"][sequence], sequence)
        container = {"name": "webhook", "image": self._image or "cert-manager", "imagePullPolicy": "Never"}
        labels = {"app": "webhook"}
        make: dict[str, Json] = {
            "instance": {
                "apiVersion": "operator.openshift.io/v1alpha1",
                "kind": "CertManager",
                "metadata": {"name": "cluster"},
            },
            "namespace": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": WEBHOOK["namespace"]}},
            "webhook": {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": WEBHOOK,
                "spec": {
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
                },
            },
        }
        for what in make if self._ended(csv, file, sequence) else [step["makes"]]:
            self._client.apply(make[what])
        found = self._client.look("apps/v1", "Deployment", **WEBHOOK)
        if found and not self._image:  # with nodes its controller says so
            self._next(found | {"apiVersion": "apps/v1", "kind": "Deployment"}, file, "Deployment")

    def _dependency(self) -> str:
        """Return the situation of those who need cert-manager's API, empty where it is served."""
        return "" if self._client.resources("cert-manager.io/v1", fresh=True) else "no cert-manager"

    def _jobset(self, _csv: Json) -> None:
        for one in self._client.items("operator.openshift.io/v1", "JobSetOperator"):
            file = "jobset-1.0"
            step = self._next(one, file, self._situation(file, "JobSetOperator", self._dependency()))
            self._bring(one, step, crds.jobset)

    def _kueue(self, csv: Json) -> None:
        file = f"kueue-{release_of(csv['metadata']['name'])}"
        for one in self._client.items("kueue.openshift.io/v1", "Kueue"):
            step = self._next(one, file, self._situation(file, "Kueue", self._dependency()))
            self._bring(one, step, crds.kueue)
            self._in_use()

    def _bring(self, thing: Json, step: Json, definitions: Callable[[], list[Json]]) -> None:
        """Make the API that a step makes, once for each object: not again while a playbook removes it."""
        uid = thing["metadata"]["uid"]
        if step.get("makes") and uid not in self._brought:
            for crd in definitions():
                self._client.apply(crd)
            self._brought.add(uid)

    def _in_use(self) -> None:
        """What Kueue itself does while it runs: a finalizer on queues and flavors, which only it takes away.

        kubernetes-sigs/kueue v0.16.0, pkg/controller/core/{clusterqueue,resourceflavor}_controller.go.
        """
        for kind in ("ClusterQueue", "ResourceFlavor"):
            for one in self._client.items(QUEUES, kind):
                goes, held = bool(one["metadata"].get("deletionTimestamp")), one["metadata"].get("finalizers") or []
                if goes == (IN_USE in held):
                    self._client.merge(one, {"metadata": {"finalizers": [] if goes else [*held, IN_USE]}})

    def _efs(self, _csv: Json) -> None:
        one = self._client.look("operator.openshift.io/v1", "ClusterCSIDriver", "efs.csi.aws.com")
        if one and not self._without_role():
            typed = one | {"apiVersion": "operator.openshift.io/v1", "kind": "ClusterCSIDriver"}
            self._next(typed, "efs-4.20", "ClusterCSIDriver")

    def _without_role(self) -> bool:
        """Tell whether the cluster gives out tokens for roles (STS) and the EFS operator was not told its own.

        It then asks for no credentials and says nothing about it: openshift/library-go 09c8e0174b29,
        pkg/operator/csi/credentialsrequestcontroller/credentials_request_controller.go, shouldSync.
        """
        told = self._client.look("config.openshift.io/v1", "Authentication", "cluster")
        if not told or not told["spec"].get("serviceAccountIssuer"):
            return False
        subscriptions = self._client.items(OLM, "Subscription", "openshift-cluster-csi-drivers")
        env = [
            each for subscription in subscriptions for each in (subscription["spec"].get("config") or {}).get("env", [])
        ]
        return not any(each["name"] == "ROLEARN" and each["value"] for each in env)

    def _odf(self, csv: Json) -> None:
        sequence = "ClusterServiceVersion of odf-operator"
        step = self._replay.step(csv, self._read("odf-4.20")["sequences"][sequence], sequence)
        self._bring(csv, step, lambda: [crds.reduced("ocs.openshift.io", "StorageCluster", ["v1"], True)])
        for one in self._client.items("ocs.openshift.io/v1", "StorageCluster"):
            self._next(one, "odf-4.20", "StorageCluster")

    def _rhoai(self, csv: Json) -> None:
        release = release_of(csv["metadata"]["name"])
        file = self._read(f"rhoai-{release}")
        version = "v1" if release == "2.25" else "v2"
        self._policies.step(file["denies"], version)
        clusters = self._client.items(f"{DSC}/{version}", "DataScienceCluster")
        initializations = self._client.items(f"{DSCI}/{version}", "DSCInitialization")
        if not (csv["metadata"].get("annotations") or {}).get(
            "test/initialized"
        ):  # its process looks once, when it starts
            if not initializations:
                self._client.apply(
                    {
                        "apiVersion": f"{DSCI}/{version}",
                        "kind": "DSCInitialization",
                        "metadata": {"name": "default-dsci", "finalizers": [FINALIZER]},
                        "spec": {"applicationsNamespace": APPLICATIONS},
                    }
                )
            self._client.merge(csv, {"metadata": {"annotations": {"test/initialized": "true"}}})
        for one in initializations:
            if one["metadata"].get("deletionTimestamp"):
                self._client.merge(one, {"metadata": {"finalizers": []}})
                continue
            self._makes(file["makes"], one)
            self._next(one, f"rhoai-{release}", "DSCInitialization")
        for one in clusters:
            self._cluster(one, csv["metadata"], release)

    def _makes(self, makes: list[Json], owner: Json) -> None:
        """Make what is not there, as long as there is a DSCInitialization."""
        for each in (make for make in makes if "object" in make):
            thing, metadata = each["object"], each["object"]["metadata"]
            if self._client.look(thing["apiVersion"], thing["kind"], metadata["name"]):
                continue
            owners = [
                {key: owner[key] for key in ("apiVersion", "kind")}
                | {key: owner["metadata"][key] for key in ("name", "uid")}
            ]
            self._client.apply(
                thing | {"metadata": metadata | ({"ownerReferences": owners} if each.get("owned") else {})}
            )

    def _component_apis(self, makes: list[Json], components: Json) -> None:
        """Make the APIs of components that are Managed, where there is none: a cluster may have them from elsewhere."""
        for each in makes:
            crd = each.get("crd")
            if crd and (components.get(each["component"]) or {}).get("managementState") == "Managed":
                made = crds.reduced(crd["group"], crd["kind"], [crd["version"]], namespaced=True)
                if not self._client.look(made["apiVersion"], made["kind"], made["metadata"]["name"]):
                    made["metadata"]["labels"] = PART_OF
                    self._client.apply(made)

    def _cluster(self, one: Json, operator: Json, release: str) -> None:
        csv = operator["name"]
        if one["metadata"].get("deletionTimestamp"):
            self._client.merge(one, {"metadata": {"finalizers": []}})
            return
        if FINALIZER not in one["metadata"].get("finalizers", []):
            self._client.merge(one, {"metadata": {"finalizers": [FINALIZER]}})
        self._component_apis(self._read(f"rhoai-{release}")["makes"], one["spec"].get("components") or {})
        # a sequence for each generation and version, as an edit or an upgrade begins it again; until the operator's first pass,
        # and at an edit in this pass, too, the status is that of before
        file = self._read(f"rhoai-{release}")
        steps = file["sequences"]["DataScienceCluster"]
        if self._gated(one, operator, file["sequences"].get(f"DataScienceCluster, {UNACKNOWLEDGED}")):
            return
        generation = one["metadata"]["generation"]
        step = self._replay.step(one, steps, f"{csv}, generation {generation}")
        components, version = one["spec"].get("components") or {}, csv.partition(".")[2]
        if self._wants_kueue(components.get("kueue") or {}):
            self._bring_kueue(components["kueue"], file)
        if "lags" not in step:  # of a cluster
            self._say(one, bundles.as_of(step["status"], steps[-1]["status"], generation, version))
            return
        lags = step["lags"]
        conditions = [
            self._component(name, components.get(name) or {}, lags.get(name), file) for name in ALWAYS_REPORTED
        ]
        bad = [each for each in conditions if each["status"] != "True" and each["reason"] != "Removed"]
        awaits = any(each["status"] == "False" for each in step.get("conditions", []))
        good = not bad and not awaits and self.faults.get("rhods-operator") != "not-ready"
        names = ", ".join(each["type"].removesuffix("Ready").lower() for each in bad)
        words = f"Some components are not ready: {names}" if bad else ""
        conditions += step.get("conditions", [])
        conditions += [
            condition(kind, good, "" if good else "NotReady", words) for kind in ("ComponentsReady", "Ready")
        ]
        observed: Json = {"observedGeneration": generation} if good else {}
        # whoever reconciles says so in each pass: datasciencecluster_controller_actions.go:105 (3.3), :185 (3.4), :204 (3.5); and what
        # is asked of Kueue, which the webhook for workloads reads there: components/kueue/kueue.go:97 (3.3)
        observed |= {"release": {"name": "OpenShift AI Self-Managed", "version": version}}
        asked = (components.get("kueue") or {}).get("managementState", "Removed")
        observed |= {"components": {"kueue": {"managementState": asked}}}
        self._say(one, {"phase": "Ready" if good else "Not Ready", "conditions": conditions} | observed)

    def _gated(self, one: Json, operator: Json, steps: list[Json] | None) -> bool:
        """Stop at gates for this version that nobody has acknowledged, and tell them; tell whether there are any.

        They are ConfigMaps with a label, in the operator's namespace: pkg/controller/gates/gates.go of 3.5.
        """
        version, space = operator["name"].partition(".")[2], operator["namespace"]
        if not steps:
            return False
        found = self._client.items("v1", "ConfigMap", space, labelSelector=GATES)
        gates = {
            key: text
            for each in found
            for key, text in (each.get("data") or {}).items()
            if key.startswith(f"ack-{version}-")
        }
        said = (self._client.look("v1", "ConfigMap", ACKNOWLEDGED, space) or {}).get("data") or {}
        open_ = sorted(key for key in gates if said.get(key) != "true")
        if not open_:
            return False
        asked = {key: gates[key] for key in open_}
        metadata = {"name": ACKNOWLEDGED, "namespace": space}
        self._client.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": said | asked})
        stopped = [
            each | {"message": each["message"].replace("{gates}", ", ".join(open_))} for each in steps[0]["conditions"]
        ]
        kinds = {each["type"] for each in stopped} | {"Ready"}
        kept = [each for each in (one.get("status") or {}).get("conditions", []) if each["type"] not in kinds]
        words = f"provisioning blocked: {len(open_)} unacknowledged upgrade gate(s) for version {version}"
        conditions = [*kept, *stopped, condition("Ready", False, "Error", words)]
        self._say(one, {"phase": "Not Ready", "conditions": conditions})
        return True

    @staticmethod
    def _missing(name: str, kind: str, file: Json) -> Json:
        """Return what a component says whose operator is not there."""
        (entry,) = file["missing"]
        return condition(kind, False, entry["reason"], entry["messages"][name])

    def _wants_kueue(self, entry: Json) -> bool:
        """Tell whether the component Kueue is asked for, and its operator there."""
        asked = entry.get("managementState", "Removed") != "Removed"
        return asked and bool(self._client.path("kueue.openshift.io/v1", "Kueue"))

    def _bring_kueue(self, entry: Json, file: Json) -> None:
        """Ask the operator for Kueue, once, never correcting it; then make OpenShift AI's own queues."""
        if not self._client.look("kueue.openshift.io/v1", "Kueue", "cluster"):
            frameworks = {"frameworks": ["PyTorchJob"]}
            self._client.apply(
                {
                    "apiVersion": "kueue.openshift.io/v1",
                    "kind": "Kueue",
                    "metadata": {"name": "cluster", "annotations": {"opendatahub.io/managed": "false"}},
                    "spec": {"managementState": "Managed", "config": {"integrations": frameworks}},
                }
            )
        if self._client.resources(QUEUES, fresh=True):
            self._queues(file.get("queues", []), entry)

    def _queues(self, queues: list[Json], entry: Json) -> None:
        """Make what is not there of OpenShift AI's own flavor and queues, named by its component Kueue."""
        managed = self._client.items("v1", "Namespace", labelSelector="kueue.openshift.io/managed=true")
        for each in queues:
            thing = each["object"]
            metadata = thing["metadata"] | {"name": entry.get(each.get("named", ""), thing["metadata"]["name"])}
            spaces = [one["metadata"]["name"] for one in managed] if thing["kind"] == "LocalQueue" else [""]
            for space in spaces:
                if not self._client.look(thing["apiVersion"], thing["kind"], metadata["name"], space):
                    own = {"namespace": space} if space else {}
                    queue = {"spec": {"clusterQueue": entry["defaultClusterQueueName"]}} if space else {}
                    self._client.apply(thing | queue | {"metadata": metadata | own})

    def _component(self, name: str, entry: Json, lag: Json | None, file: Json) -> Json:
        kind = {"trainingoperator": "TrainingOperator", "modelregistry": "ModelRegistry"}.get(
            name, name.capitalize()
        ) + "Ready"
        state = entry.get("managementState", "Removed")
        if state == "Removed":
            return condition(kind, False, "Removed", "Component ManagementState is set to Removed")
        if name == "trainer" and not self._client.resources("jobset.x-k8s.io/v1alpha2", fresh=True):
            return self._missing(name, kind, file)
        if name == "kueue" and not self._wants_kueue(entry):
            return self._missing(name, kind, file)
        if lag is not None:
            return condition(kind, False, message=lag.get("message", "")) | {"reason": lag.get("reason", "")}
        return condition(kind, True)
