{{/*
Volumes and claims. A pod must not name one claim under two volumes: kubelet then waits for the second one for ever
(kubernetes/kubernetes#132921, open). So volumes of one claim are mounted from one volume, `storage`, each with its subPath.
*/}}

{{- /* Claim of each volume, by its name. */}}
{{- define "trainjob.claims" -}}
{{- $claims := dict -}}
{{- range (include "trainjob.volumes" . | fromJson).names -}}
{{- $_ := set $claims . ((index $.Values.site.storage .).existing | default (printf "%s-%s" $.Release.Name .)) -}}
{{- end -}}
{{- toJson $claims -}}
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

{{- /*
What a claim that exists may become: larger, nothing else. All else is refused here, as Kubernetes refuses it in words that name
no key. Of what is looked up here only the size is rendered: what the cluster filled in would be sent back by `helm rollback`, and refused.
*/}}

{{- /* Size of the volume .name: the one asked for, else what the phase needs, but never less than the claim has. */}}
{{- define "trainjob.claimSize" -}}
{{- $volume := index .resolved.site.storage .name -}}
{{- $needed := index .resolved.phase.needs .name | default "" -}}
{{- $live := lookup "v1" "PersistentVolumeClaim" .resolved.namespace (index .resolved.claims .name) -}}
{{- $size := $volume.size | default $needed -}}
{{- if and $live (not $volume.size) -}}
{{- $has := $live.spec.resources.requests.storage -}}
{{- if gt (include "trainjob.bytes" $has | float64) (include "trainjob.bytes" $size | float64) -}}{{- $size = $has -}}{{- end -}}
{{- end -}}
{{- $size -}}
{{- end -}}

{{- /* Kubernetes adds the default class to a claim without one, so the claim itself does not tell what was asked for. */}}
{{- define "trainjob.classAnnotation" -}}{{ include "trainjob.labelDomain" . }}/storage-class{{- end -}}

{{- /* A claim that the site names is there; of a cluster that is not asked, there is no list. */}}
{{- define "trainjob.checkExisting" -}}
{{- $existing := (index .resolved.site.storage .name).existing -}}
{{- if and $existing (not (lookup "v1" "PersistentVolumeClaim" .resolved.namespace $existing)) -}}
{{- if hasKey (lookup "v1" "PersistentVolumeClaim" .resolved.namespace "") "items" -}}
{{- print (printf "site.storage.%s.existing: namespace %s has no claim %s; the pods would wait for it; create it, or set existing to '' so that the release creates one" .name .resolved.namespace $existing) "\n" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "trainjob.checkClaim" -}}
{{- $volume := index .resolved.site.storage .name -}}
{{- $claim := index .resolved.claims .name -}}
{{- $key := printf "site.storage.%s" .name -}}
{{- $live := lookup "v1" "PersistentVolumeClaim" .resolved.namespace $claim -}}
{{- if $live -}}
{{- $modes := $live.spec.accessModes -}}
{{- if not (has $volume.accessMode $modes) -}}
{{- print (printf "%s.accessMode: %s, but the claim %s exists with %s; set that, or delete the claim with its data" $key $volume.accessMode $claim (join ", " $modes)) "\n" -}}
{{- end -}}
{{- if not $volume.existing -}}
{{- $class := index ($live.metadata.annotations | default dict) (include "trainjob.classAnnotation" .) -}}
{{- $asked := $volume.storageClass | default "the default" -}}
{{- if kindIs "invalid" $class -}}
{{- $class = ternary ($live.spec.storageClassName | default "") "" (ne $volume.storageClass "") -}}
{{- end -}}
{{- if ne $class $volume.storageClass -}}
{{- print (printf "%s.storageClass: %s, but the claim %s was made with %s; set '%s', or delete the claim with its data" $key $asked $claim ($class | default "the default") $class) "\n" -}}
{{- end -}}
{{- $has := $live.spec.resources.requests.storage -}}
{{- $size := include "trainjob.claimSize" . -}}
{{- $more := sub (include "trainjob.bytes" $size | float64 | int64) (include "trainjob.bytes" $has | float64 | int64) -}}
{{- if lt $more 0 -}}
{{- print (printf "%s.size: %s, but the claim %s has %s and no claim can shrink; set %s, or delete the claim with its data" $key $size $claim $has $has) "\n" -}}
{{- else if and (gt $more 0) (not $volume.size) -}}
{{- print (printf "phase.needs.%s: %s, but the claim %s has %s; set %s.size to %s to let it grow, which no helm rollback can undo, or to %s to leave it" .name $size $claim $has $key $size $has) "\n" -}}
{{- else if and (gt $more 0) (ne ($live.status.phase | default "Pending") "Bound") -}}
{{- print (printf "%s.size: %s, but the claim %s has %s and is not bound, and only a bound one can grow; set %s, or delete the claim" $key $size $claim $has $has) "\n" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
