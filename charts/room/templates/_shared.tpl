{{/*
What the charts share: `make gen` copies this file to charts/room, as Helm reads none outside of a chart's folder. A library chart would
have to be fetched into both before `helm install` from a checkout.
*/}}

{{- /* The phase as given, without nulls: Helm 3 and Helm 4 differ in which nulls of an overlay they keep. */}}
{{- define "trainjob.clean" -}}
{{- $clean := dict -}}
{{- range $key, $value := . -}}
{{- if kindIs "map" $value -}}
{{- $_ := set $clean $key (include "trainjob.clean" $value | fromJson) -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $_ := set $clean $key $value -}}
{{- end -}}
{{- end -}}
{{- toJson $clean -}}
{{- end -}}

{{- /* What playbooks/image.yml and attendees.yml know of the cluster, below what is given: then `helm install NAME chart -f PHASE` is enough. */}}
{{- define "trainjob.siteOfNamespace" -}}
{{- if ne (toString (.Values.site | default dict).fromNamespace) "false" -}}
{{- $held := lookup "v1" "ConfigMap" .Release.Namespace "trainlab-site" -}}
{{- with (dig "data" "site.yaml" "" $held | fromYaml).site -}}
{{- $given := include "trainjob.clean" ($.Values.site | default dict) | fromJson -}}
{{- $_ := set $.Values "site" (mergeOverwrite . $given) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Names of the volumes that a release has, as {"names": [...]}; .data is the third one, off without size and existing. */}}
{{- define "trainjob.volumes" -}}
{{- $data := .Values.site.storage.data | default dict -}}
{{- dict "names" (concat (list "models" "runs") (ternary (list "data") list (or $data.size $data.existing | not | not))) | toJson -}}
{{- end -}}

{{- /* What a pod calls the volume .name. */}}
{{- define "trainjob.volumeName" -}}
{{- $claims := .resolved.claims -}}
{{- $own := index $claims .name -}}
{{- $alike := 0 -}}
{{- range $claims -}}{{- if eq . $own -}}{{- $alike = add1 $alike -}}{{- end -}}{{- end -}}
{{- gt (int $alike) 1 | ternary "storage" .name -}}
{{- end -}}

{{- /* Mount of the volume .name at .path, .readOnly or not. */}}
{{- define "trainjob.mount" -}}
{{- $mount := dict "name" (include "trainjob.volumeName" .) "mountPath" .path -}}
{{- with (index .resolved.site.storage .name).subPath -}}{{- $_ := set $mount "subPath" . -}}{{- end -}}
{{- if .readOnly -}}{{- $_ := set $mount "readOnly" true -}}{{- end -}}
- {{ toJson $mount }}
{{- end -}}

{{- /* Entries of the volumes .names in a pod, one for each claim. */}}
{{- define "trainjob.claimVolumes" -}}
{{- $resolved := .resolved -}}
{{- $seen := dict -}}
{{- range .names }}
{{- $name := include "trainjob.volumeName" (dict "resolved" $resolved "name" .) }}
{{- if not (hasKey $seen $name) }}
{{- $_ := set $seen $name true }}
- {name: {{ $name }}, persistentVolumeClaim: {claimName: {{ include "trainjob.word" (index $resolved.claims .) }}}}
{{- end }}
{{- end }}
{{- end -}}

{{- /* A name inside of what names a job or a server by its hash: quoted only where YAML would read a number, a boolean or null, as
quotes around every other would rename them all. Elsewhere `quote` does. */}}
{{- define "trainjob.word" -}}
{{- kindIs "string" (printf "word: %s" . | fromYaml).word | ternary . (quote .) -}}
{{- end -}}

{{- /* Tolerations of a pod: those of .site, and with .gpus of the taint that GPU nodes usually carry, whole, sliced (MIG) or shared. */}}
{{- define "trainjob.tolerations" -}}
{{- $tolerations := .site.tolerations | default list -}}
{{- if .gpus -}}
{{- range prepend (hasPrefix "nvidia.com/" .site.gpuResource | ternary (list "nvidia.com/gpu") list) .site.gpuResource -}}
{{- $tolerations = append $tolerations (dict "key" . "operator" "Exists" "effect" "NoSchedule") -}}
{{- end -}}
{{- end -}}
{{- with $tolerations -}}
tolerations: {{ toJson (uniq .) }}
{{- end -}}
{{- end -}}

{{- define "trainjob.podSecurity" -}}
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- if eq .platform "kubernetes" }}
# OpenShift gives each namespace its own group; elsewhere a fresh volume belongs to root.
fsGroup: 1001
fsGroupChangePolicy: OnRootMismatch
{{- end }}
{{- end -}}

{{- define "trainjob.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}
