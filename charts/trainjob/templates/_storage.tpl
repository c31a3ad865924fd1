{{/*
Volumes and claims. A pod must not name one claim under two volumes: kubelet then waits for the second one for ever
(kubernetes/kubernetes#132921, open). So volumes of one claim are mounted from one volume, `storage`, each with its subPath.
*/}}

{{- /* Names of the volumes that a release has, as {"names": [...]}; .data is the third one, off without size and existing. */}}
{{- define "trainjob.volumes" -}}
{{- $data := .Values.site.storage.data | default dict -}}
{{- dict "names" (concat (list "models" "runs") (ternary (list "data") list (or $data.size $data.existing | not | not))) | toJson -}}
{{- end -}}

{{- /* Claim of each volume, by its name. */}}
{{- define "trainjob.claims" -}}
{{- $claims := dict -}}
{{- range (include "trainjob.volumes" . | fromJson).names -}}
{{- $_ := set $claims . ((index $.Values.site.storage .).existing | default (printf "%s-%s" $.Release.Name .)) -}}
{{- end -}}
{{- toJson $claims -}}
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

{{- /* Where the package finds the data sets when they are not in the model volume; nothing else of it knows. */}}
{{- define "trainjob.datasets" -}}
{{- if has "data" .volumes }}
- {name: TRAINLAB_DATASETS, value: /data}
{{- end }}
{{- end -}}

{{- /* A path of the parts that are not empty. */}}
{{- define "trainjob.join" -}}
{{- compact . | join "/" -}}
{{- end -}}
