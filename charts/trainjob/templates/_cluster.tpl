{{/*
What depends on the cluster at hand. `helm template` has none: lookup returns nothing and the API list holds versions without
kinds, so `v1/Pod` in it tells a real cluster.
*/}}

{{- define "trainjob.api" -}}
{{- $served := .Capabilities.APIVersions -}}
{{- $real := $served.Has "v1/Pod" -}}
{{- $v1 := $served.Has "kubeflow.org/v1/PyTorchJob" -}}
{{- $v2 := $served.Has "trainer.kubeflow.org/v1alpha1/TrainJob" -}}
{{- $asked := .Values.site.trainingApi -}}
{{- if and $real (eq $asked "auto") (not $v1) (not $v2) -}}
{{- fail "site.trainingApi: auto, but the cluster serves neither kubeflow.org/v1 PyTorchJob nor trainer.kubeflow.org/v1alpha1 TrainJob; install one of the two operators (OpenShift AI: set trainingoperator or trainer to Managed)" -}}
{{- else if and $real (eq $asked "pytorchjob") (not $v1) -}}
{{- fail "site.trainingApi: pytorchjob, but the cluster serves no kubeflow.org/v1 PyTorchJob; install the training operator or set auto" -}}
{{- else if and $real (eq $asked "trainjob") (not $v2) -}}
{{- fail "site.trainingApi: trainjob, but the cluster serves no trainer.kubeflow.org/v1alpha1 TrainJob; install Trainer v2 or set auto" -}}
{{- end -}}
{{- if eq $asked "auto" -}}{{ and $v2 (not $v1) | ternary "trainjob" "pytorchjob" }}{{- else -}}{{ $asked }}{{- end -}}
{{- end -}}

{{- define "trainjob.checkCluster" -}}
{{- $resolved := include "trainjob.resolved" . | fromJson -}}
{{- if and $resolved.site.serving (.Capabilities.APIVersions.Has "v1/Pod") (not (.Capabilities.APIVersions.Has "serving.kserve.io/v1beta1")) -}}
{{- fail "site.serving: true, but the cluster serves no serving.kserve.io/v1beta1 InferenceService; install KServe or set site.serving to false" -}}
{{- end -}}
{{- range $resolved.volumes -}}
{{- include "trainjob.checkClaim" (dict "resolved" $resolved "name" .) -}}
{{- end -}}
{{- if $resolved.site.preflight -}}
{{- include "trainjob: looks at nodes and StorageClasses; where you may not, use --set site.preflight=false" $resolved -}}
{{- end -}}
{{- end -}}

{{- /* The name is the remedy: lookup cannot be caught, and Helm prints this name before `nodes is forbidden`. */}}
{{- define "trainjob: looks at nodes and StorageClasses; where you may not, use --set site.preflight=false" -}}
{{- $resolved := . -}}
{{- range $resolved.volumes -}}
{{- $volume := index $resolved.site.storage . -}}
{{- $classes := dict -}}
{{- if $volume.storageClass -}}{{- $classes = lookup "storage.k8s.io/v1" "StorageClass" "" "" -}}{{- end -}}
{{- if hasKey $classes "items" -}}
{{- $names := list -}}
{{- range $classes.items -}}{{- $names = append $names .metadata.name -}}{{- end -}}
{{- if not (has $volume.storageClass $names) -}}
{{- fail (printf "site.storage.%s.storageClass: %s does not exist in the cluster; it has: %s" . $volume.storageClass (sortAlpha $names | join ", " | default "none")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $key, $asked := dict "phase.resources.gpus_per_node" $resolved.phase.resources.gpus_per_node "phase.serve.gpus" $resolved.phase.serve.gpus -}}
{{- $nodes := dict -}}
{{- if $asked -}}{{- $nodes = lookup "v1" "Node" "" "" -}}{{- end -}}
{{- if $nodes.items -}}
{{- $most := 0 -}}
{{- range $nodes.items -}}
{{- $most = max $most (index .status.allocatable $resolved.site.gpuResource | default "0" | int) -}}
{{- end -}}
{{- if lt $most (int $asked) -}}
{{- fail (printf "%s: %d asked, but no node of the cluster offers more than %d %s; set it to what a node has, take another site.gpuResource, or add the overlay values/local/%s.yaml that needs no GPU" $key (int $asked) (int $most) $resolved.site.gpuResource $resolved.phase.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
