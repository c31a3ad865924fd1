{{/*
What depends on the cluster at hand. `helm template` has none: lookup returns nothing and the API list holds versions without
kinds, so `v1/Pod` in it tells a real cluster.
*/}}

{{- /* What `auto` makes of a new release: a TrainJob where it is served with the JobSet that its operator needs, as OpenShift AI lists
no other kind from 3.3 on. An API stays when its operator is gone; who may install in one namespace sees no more of either. */}}
{{- define "trainjob.newApi" -}}
{{- $served := .Capabilities.APIVersions -}}
{{- $v1 := $served.Has "kubeflow.org/v1/PyTorchJob" -}}
{{- $v2 := $served.Has "trainer.kubeflow.org/v1alpha1/TrainJob" -}}
{{- and $v2 (or ($served.Has "jobset.x-k8s.io/v1alpha2") (not $v1)) | ternary "trainjob" "pytorchjob" -}}
{{- end -}}

{{- /* What the revision before is, by its ConfigMap; one that does not say it was made when `auto` preferred a PyTorchJob. Empty without one. */}}
{{- define "trainjob.apiBefore" -}}
{{- with lookup "v1" "ConfigMap" .Release.Namespace .Release.Name -}}
{{- dig "data" "api" "" . | default ($.Capabilities.APIVersions.Has "kubeflow.org/v1/PyTorchJob" | ternary "pytorchjob" "trainjob") -}}
{{- end -}}
{{- end -}}

{{- /* `auto` leaves a release what it is as long as that is served. plugin_utils/checks/training_api.py decides the same. */}}
{{- define "trainjob.api" -}}
{{- $served := dict "pytorchjob" (.Capabilities.APIVersions.Has "kubeflow.org/v1/PyTorchJob") "trainjob" (.Capabilities.APIVersions.Has "trainer.kubeflow.org/v1alpha1/TrainJob") -}}
{{- $before := include "trainjob.apiBefore" . -}}
{{- $auto := index $served $before | default false | ternary $before (include "trainjob.newApi" .) -}}
{{- eq .Values.site.trainingApi "auto" | ternary $auto .Values.site.trainingApi -}}
{{- end -}}

{{- define "trainjob.checkApi" -}}
{{- $v1 := .Capabilities.APIVersions.Has "kubeflow.org/v1/PyTorchJob" -}}
{{- $v2 := .Capabilities.APIVersions.Has "trainer.kubeflow.org/v1alpha1/TrainJob" -}}
{{- $asked := .Values.site.trainingApi -}}
{{- if and (eq $asked "auto") (not $v1) (not $v2) -}}
{{- print "site.trainingApi: auto, but the cluster serves neither kubeflow.org/v1 PyTorchJob nor trainer.kubeflow.org/v1alpha1 TrainJob; install one of the two operators (OpenShift AI: set trainingoperator or trainer to Managed)" "\n" -}}
{{- else if and (eq $asked "pytorchjob") (not $v1) -}}
{{- print "site.trainingApi: pytorchjob, but the cluster serves no kubeflow.org/v1 PyTorchJob; install the training operator or set auto" "\n" -}}
{{- else if and (eq $asked "trainjob") (not $v2) -}}
{{- print "site.trainingApi: trainjob, but the cluster serves no trainer.kubeflow.org/v1alpha1 TrainJob; install Trainer v2 or set auto" "\n" -}}
{{- end -}}
{{- end -}}

{{- /* Of the .root and what is .resolved: what the cluster cannot do. */}}
{{- define "trainjob.checkCluster" -}}
{{- $resolved := .resolved -}}
{{- $served := .root.Capabilities.APIVersions -}}
{{- $real := $served.Has "v1/Pod" -}}
{{- if $real -}}{{- include "trainjob.checkApi" .root -}}{{- end -}}
{{- if and $resolved.site.serving $real (not ($served.Has "serving.kserve.io/v1beta1")) -}}
{{- print "site.serving: true, but the cluster serves no serving.kserve.io/v1beta1 InferenceService; install KServe or set site.serving to false" "\n" -}}
{{- end -}}
{{- if and $resolved.site.monitoring.enabled $real (not ($served.Has "monitoring.coreos.com/v1/PodMonitor")) -}}
{{- print "site.monitoring.enabled: true, but the cluster serves no monitoring.coreos.com/v1 PodMonitor; install the Prometheus operator or set it to false" "\n" -}}
{{- end -}}
{{- if and $resolved.site.auth $real (not (or ($served.Has "datasciencecluster.opendatahub.io/v1") ($served.Has "datasciencecluster.opendatahub.io/v2"))) -}}
{{- print "site.auth: true, but the cluster has no OpenShift AI, which alone checks tokens; set false" "\n" -}}
{{- end -}}
{{- with $resolved.site.hardwareProfile.name -}}
{{- if and $real (not (or ($served.Has "infrastructure.opendatahub.io/v1") ($served.Has "infrastructure.opendatahub.io/v1alpha1"))) -}}
{{- print (printf "site.hardwareProfile.name: %s, but the cluster serves no HardwareProfile of infrastructure.opendatahub.io, OpenShift AI's; remove it, and use site.nodeSelector and site.tolerations" .) "\n" -}}
{{- end -}}
{{- end -}}
{{- include "trainjob.checkPrepared" $resolved -}}
{{- include "trainjob.checkNoTraining" . -}}
{{- include "trainjob.checkExposure" $resolved -}}
{{- range $resolved.volumes -}}
{{- include "trainjob.checkClaim" (dict "resolved" $resolved "name" .) -}}
{{- end -}}
{{- include "trainjob: looks at quotas and limits; who installs must be allowed to list resourcequotas and limitranges in the namespace" (dict "resolved" $resolved "install" .root.Release.IsInstall) -}}
{{- if and $resolved.site.serving (not $resolved.site.serviceAccount) -}}
{{- include "trainjob: makes a Role for the promotion; where you may not, name a ServiceAccount that may promote with site.serviceAccount" $resolved -}}
{{- end -}}
{{- if $resolved.site.monitoring.enabled -}}
{{- include "trainjob: makes a PodMonitor; where you may not, set site.monitoring.enabled to false" $resolved -}}
{{- end -}}
{{- if $resolved.exposure -}}
{{- include "trainjob: makes a Route or an Ingress; where you may not, set site.expose.enabled to false" $resolved -}}
{{- end -}}
{{- if $resolved.site.preflight -}}
{{- $scaled := $served.Has "autoscaling.openshift.io/v1beta1/MachineAutoscaler" -}}
{{- include "trainjob: looks at nodes and StorageClasses; where you may not, use --set site.preflight=false" (merge (dict "scaled" $scaled) $resolved) -}}
{{- end -}}
{{- range $resolved.volumes -}}
{{- include "trainjob.checkExisting" (dict "resolved" $resolved "name" .) -}}
{{- end -}}
{{- end -}}

{{- /* Provisioners of block storage, which one node at a time can mount; a contract test compares them with BLOCK_ONLY of
plugins/plugin_utils/checks/storage.py, which names the source. */}}
{{- define "trainjob.blockOnly" -}}
cinder.csi.openstack.org disk.csi.azure.com ebs.csi.aws.com kubernetes.io/aws-ebs kubernetes.io/no-provisioner
openshift-storage.rbd.csi.ceph.com pd.csi.storage.gke.io topolvm.io vpc.block.csi.ibm.io
{{- end -}}

{{- /* The names are the remedies: lookup cannot be caught, and Helm prints these names before `nodes is forbidden`. */}}
{{- define "trainjob: makes a Role for the promotion; where you may not, name a ServiceAccount that may promote with site.serviceAccount" -}}
{{- $_ := lookup "rbac.authorization.k8s.io/v1" "Role" .namespace (include "trainjob.promoter" .) -}}
{{- end -}}

{{- define "trainjob: makes a PodMonitor; where you may not, set site.monitoring.enabled to false" -}}
{{- $_ := lookup "monitoring.coreos.com/v1" "PodMonitor" .namespace .release -}}
{{- end -}}

{{- define "trainjob: makes a Route or an Ingress; where you may not, set site.expose.enabled to false" -}}
{{- $made := eq .exposure "route" | ternary (list "route.openshift.io/v1" "Route") (list "networking.k8s.io/v1" "Ingress") -}}
{{- $_ := lookup (first $made) (last $made) .namespace (include "trainjob.exposed" .) -}}
{{- end -}}

{{- define "trainjob: looks at nodes and StorageClasses; where you may not, use --set site.preflight=false" -}}
{{- $resolved := . -}}
{{- $found := lookup "storage.k8s.io/v1" "StorageClass" "" "" -}}
{{- $classes := $found.items | default list -}}
{{- $names := list -}}
{{- $default := "" -}}
{{- range $classes -}}
{{- $names = append $names .metadata.name -}}
{{- if eq (index (.metadata.annotations | default dict) "storageclass.kubernetes.io/is-default-class" | default "") "true" -}}{{- $default = .metadata.name -}}{{- end -}}
{{- end -}}
{{- range $resolved.volumes -}}
{{- $volume := index $resolved.site.storage . -}}
{{- $claim := index $resolved.claims . -}}
{{- if and (hasKey $found "items") (not $volume.existing) (not (lookup "v1" "PersistentVolumeClaim" $resolved.namespace $claim)) -}}
{{- $wanted := $volume.storageClass | default $default -}}
{{- if not (has $wanted $names) -}}
{{- $what := empty $wanted | ternary "empty, and the cluster has no default StorageClass" (printf "there is no StorageClass %s" $wanted) -}}
{{- print (printf "site.storage.%s.storageClass: %s; the claim would stay Pending, and every pod with it; set site.storage.%s.storageClass to one of: %s" . $what . (sortAlpha $names | join ", " | default "none exist, install one")) "\n" -}}
{{- end -}}
{{- $volumeName := . -}}
{{- range $classes -}}
{{- $blocks := has .provisioner (include "trainjob.blockOnly" $ | replace "\n" " " | splitList " ") -}}
{{- /* Its class offers ReadWriteMany only with a shared folder, which is configured elsewhere by the class's name. */ -}}
{{- if eq .provisioner "rancher.io/local-path" -}}{{- $blocks = not (contains "rwx" .metadata.name) -}}{{- end -}}
{{- if and (eq .metadata.name $wanted) $blocks (eq $volume.accessMode "ReadWriteMany") -}}
{{- $key := printf "site.storage.%s" $volumeName -}}
{{- $nodes := int $resolved.phase.resources.nodes -}}
{{- $says := printf "which %s.accessMode asks for; set that to ReadWriteOnce, which keeps all pods of the release on one node, or %s.storageClass to a class of shared storage" $key $key -}}
{{- if gt $nodes 1 -}}
{{- $says = printf "the %d pods of the job run on several nodes and share the volume; set %s.storageClass to a class of shared storage, or phase.resources.nodes to 1 and %s.accessMode to ReadWriteOnce" $nodes $key $key -}}
{{- end -}}
{{- print (printf "%s: StorageClass %s (%s) does not offer ReadWriteMany; %s" $key $wanted .provisioner $says) "\n" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- /* Where no node has any, OpenShift's autoscaler may add some; the playbooks' check looks at its machines, which takes more rights. */ -}}
{{- $training := eq $resolved.site.step "train" -}}{{- /* the Job that prepares text takes none */ -}}
{{- range $key, $asked := dict "phase.resources.gpus_per_node" ($training | ternary $resolved.phase.resources.gpus_per_node 0) "phase.serve.gpus" (and $training $resolved.site.serving | ternary $resolved.phase.serve.gpus 0) -}}
{{- $nodes := dict -}}
{{- if $asked -}}{{- $nodes = lookup "v1" "Node" "" "" -}}{{- end -}}
{{- if $nodes.items -}}
{{- $most := 0 -}}
{{- $whole := 0 -}}
{{- range $nodes.items -}}
{{- if not (include "trainjob.partOfGpu" (dict "node" . "resource" $resolved.site.gpuResource)) -}}
{{- $whole = max $whole (index .status.allocatable $resolved.site.gpuResource | default "0" | int) -}}
{{- end -}}
{{- $most = max $most (index .status.allocatable $resolved.site.gpuResource | default "0" | int) -}}
{{- end -}}
{{- if and (lt $most (int $asked)) (or $most (not $resolved.scaled)) -}}
{{- $without := $resolved.preset | ternary "set preset.scale to local, which" (printf "add the overlay values/local/%s.yaml, which" $resolved.phase.name) -}}
{{- print (printf "%s: %d asked, but no node of the cluster offers more than %d %s; set it to what a node has, take another site.gpuResource, set site.preflight to false where an autoscaler adds such nodes, or %s needs no GPU" $key (int $asked) (int $most) $resolved.site.gpuResource $without) "\n" -}}
{{- end -}}
{{- $ranks := mul (int $resolved.phase.resources.nodes) (int $asked) -}}
{{- $alone := and (eq (int $asked) 1) (eq $resolved.site.spread "required") -}}
{{- if and (contains "resources" $key) $most (not $whole) (gt $ranks 1) (not $alone) -}}
{{- print (printf "%s: the job has %d ranks, and every %s of the cluster is a part of a GPU (labels nvidia.com/*.replicas and .product of its nodes): two of them on one GPU end in NCCL (Duplicate GPU detected); set phase.resources.nodes and gpus_per_node to 1, gpus_per_node to 1 and site.spread to required, or site.preflight to false where whole GPUs are to come" $key $ranks $resolved.site.gpuResource) "\n" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Whether a node offers shares or slices of GPUs, by the labels that plugins/plugin_utils/gpu_inventory.py reads; empty if not. */}}
{{- define "trainjob.partOfGpu" -}}
{{- $family := .resource | trimPrefix "nvidia.com/" | trimSuffix ".shared" -}}
{{- $labels := .node.metadata.labels | default dict -}}
{{- $replicas := index $labels (printf "nvidia.com/%s.replicas" $family) | default "1" | int -}}
{{- $product := index $labels (printf "nvidia.com/%s.product" $family) | default "" -}}
{{- if or (gt $replicas 1) (contains "-MIG-" $product) (hasPrefix "mig-" $family) -}}true{{- end -}}
{{- end -}}
