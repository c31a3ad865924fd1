{{/* What a revision trains that the one before did not, for the notes: before a user agrees, with `helm upgrade --dry-run=server`. */}}

{{- define "trainjob.changes" -}}
{{- $before := lookup "v1" "ConfigMap" .namespace .release -}}
{{- if and .upgrade (not $before) -}}
{{- /* --dry-run, which Helm takes as --dry-run=client, and --dry-run=server differ in nothing that a template sees but this. */ -}}
what cannot be told here: it asks nothing of the cluster; helm upgrade --dry-run=server does.
{{- else -}}
{{- $name := include "trainjob.trainName" . -}}
{{- if eq .site.step "prepare" -}}
nothing (site.step is prepare). Its Job {{ include "trainjob.prepareName" . }} makes the text ready, without a GPU, for run {{ .run }}.
{{- if .site.serving }}
What is served stays as it is.
{{- end }}
{{- else if or (not $before) (and (eq $before.data.run .run) (include "trainjob.preparedBefore" .)) -}}
run {{ .run }}, from its last checkpoint if the volume {{ .claims.runs }} has one; nothing if it is complete there.
{{- else if ne $before.data.run .run -}}
run {{ .run }}, which is not the one before, {{ $before.data.run }}, because of
{{- include "trainjob.differences" (dict "before" (index $before.data "trained.json" | fromJson) "after" .trained "at" "phase.") }}
{{- if .site.serving }}
What is served stays as it is until the gate promotes this run.
{{- end }}
{{- else if ne $before.data.job $name -}}
nothing new: the same run, {{ .run }}. Its pods start once more, for site or phase.train.resume_from: they resume, or end at once if it is complete.
{{- else -}}
nothing new: the same run, {{ .run }}, and its pods as they are.
{{- end -}}
{{- if and $before (eq .site.step "train") -}}{{- include "trainjob.changedKind" . -}}{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Whether the job is of another kind than before; where it is not, that `auto` would now choose another. */}}
{{- define "trainjob.changedKind" -}}
{{- $kinds := dict "pytorchjob" "PyTorchJob" "trainjob" "TrainJob" -}}
{{- if ne .apiBefore .api }}
Its job is a {{ index $kinds .api }} from now on, and no {{ index $kinds .apiBefore }}.
{{- else if and (eq .site.trainingApi "auto") (ne .newApi .api) }}
Its job stays a {{ index $kinds .api }}; a new release would be a {{ index $kinds .newApi }}, as site.trainingApi={{ .newApi }} makes this one, of the same run.
{{- end -}}
{{- end -}}

{{- /* A line for each key that is not the same in .before and .after. */}}
{{- define "trainjob.differences" -}}
{{- $before := .before -}}
{{- $after := .after -}}
{{- $at := .at -}}
{{- range concat (keys $before) (keys $after) | uniq | sortAlpha -}}
{{- $old := index $before . -}}
{{- $new := index $after . -}}
{{- if and (kindIs "map" $old) (kindIs "map" $new) -}}
{{- include "trainjob.differences" (dict "before" $old "after" $new "at" (printf "%s%s." $at .)) -}}
{{- else if ne (toJson $old) (toJson $new) }}
  {{ $at }}{{ . }}: {{ hasKey $before . | ternary (toRawJson $old) "not set" | trunc 60 }} -> {{ hasKey $after . | ternary (toRawJson $new) "not set" | trunc 60 }}
{{- end -}}
{{- end -}}
{{- end -}}
