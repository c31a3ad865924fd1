{{/*
A job object that exists already, as it is; nothing if there is none. Trap: pod templates of Jobs, PyTorchJobs and TrainJobs
cannot be changed, so an upgrade that only changes `site:` (another image, say) would fail or train again if these were
rendered anew. To repeat a run delete its job, then upgrade. `suspend` stays out: it is Kueue's.
*/}}

{{- define "trainjob.existing" -}}
{{- $live := lookup .apiVersion .kind .namespace .name -}}
{{- if $live -}}
{{- $spec := omit $live.spec "suspend" -}}
{{- if $spec.runPolicy -}}
{{- $_ := set $spec "runPolicy" (omit $spec.runPolicy "suspend") -}}
{{- end -}}
{{- $metadata := dict "name" .name "labels" $live.metadata.labels -}}
{{- dict "apiVersion" .apiVersion "kind" .kind "metadata" $metadata "spec" $spec | toYaml -}}
{{- end -}}
{{- end -}}
