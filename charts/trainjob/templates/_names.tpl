{{/*
Names and labels. `trainjob.resolved` is the one dictionary that the templates work on: the phase with its defaults, the
site, the run, the release. Each template starts with it: that runs all checks before anything is created.
*/}}

{{- /* Made once for all templates of a rendering, which share .Values: the checks are most of a rendering's time. */}}
{{- define "trainjob.resolved" -}}
{{- if not (hasKey .Values "trainjobResolved") -}}
{{- $_ := set .Values "trainjobResolved" (include "trainjob.resolve" .) -}}
{{- end -}}
{{- .Values.trainjobResolved -}}
{{- end -}}

{{- define "trainjob.resolve" -}}
{{- include "trainjob.preset" . -}}
{{- include "trainjob.siteOfNamespace" . -}}
{{- $refused := include "trainjob.checkKeys" . -}}
{{- if contains ": missing; add it" $refused -}}{{- include "trainjob.refuse" $refused -}}{{- end -}}
{{- $given := include "trainjob.clean" .Values.phase | fromJson -}}
{{- $defaults := .Files.Get "defaults.json" | fromJson -}}
{{- $_ := set .Values "site" (mergeOverwrite $defaults.site (include "trainjob.clean" (.Values.site | default dict) | fromJson)) -}}
{{- $phase := mergeOverwrite $defaults.phase.all (index $defaults.phase $given.recipe) $given -}}
{{- /* A block that may be absent gets its defaults only where it is given. */ -}}
{{- range $key, $block := index $defaults.optional $given.recipe -}}
{{- $given := (include "trainjob.value" (dict "values" $phase "key" $key) | fromJson).value -}}
{{- if not (kindIs "invalid" $given) -}}
{{- $whole := mergeOverwrite $block $given -}}
{{- range splitList "." $key | reverse -}}{{- $whole = dict . $whole -}}{{- end -}}
{{- $phase = mergeOverwrite $phase $whole -}}
{{- end -}}
{{- end -}}
{{- $refused = print $refused (include "trainjob.checkRules" (dict "root" . "phase" $phase)) -}}
{{- /* The hash covers what is trained, so another `site:` or title is the same run; with its defaults, so that
Ansible, which passes all keys, and a short values file name the same run. trainlab.config.loading.phase_hash gives the same. */ -}}
{{- $trained := deepCopy $phase -}}
{{- range $defaults.not_training -}}
{{- $path := splitList "." . -}}
{{- $block := $trained -}}
{{- range initial $path -}}{{- $block = index $block . -}}{{- end -}}
{{- $_ := unset $block (last $path) -}}
{{- end -}}
{{- $run := printf "%s-%s" .Release.Name (toRawJson $trained | sha256sum | trunc 8) -}}
{{- $real := .Capabilities.APIVersions.Has "v1/Pod" -}}
{{- $platform := .Values.site.platform -}}
{{- if eq $platform "auto" -}}
{{- $platform = .Capabilities.APIVersions.Has "security.openshift.io/v1" | ternary "openshift" ($real | ternary "kubernetes" "") -}}
{{- end -}}
{{- $resolved := dict
    "phase" $phase "preset" (not (empty (.Values.preset | default dict).phase)) "site" .Values.site "release" .Release.Name "namespace" .Release.Namespace
    "run" $run "trained" $trained
    "protocol" (index $defaults.protocol $phase.recipe)
    "api" (include "trainjob.api" .) "apiBefore" (include "trainjob.apiBefore" .) "newApi" (include "trainjob.newApi" .)
    "platform" $platform
    "exposure" (include "trainjob.exposure" (dict "root" . "real" $real "platform" $platform))
    "volumes" (include "trainjob.volumes" . | fromJson).names
    "claims" (include "trainjob.claims" . | fromJson)
    "chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_")
    "version" .Chart.AppVersion "managedBy" .Release.Service
  | toJson -}}
{{- print $refused (include "trainjob.checkCluster" (dict "root" . "resolved" (fromJson $resolved))) | include "trainjob.refuse" -}}
{{- $resolved -}}
{{- end -}}

{{- /* Folder of a model reference in the model volume, as `trainlab fetch` names it (fetch.model_dir). */}}
{{- define "trainjob.modelFolder" -}}
{{- if hasPrefix "pvc:" . -}}
{{- trimPrefix "pvc:" . -}}
{{- else -}}
{{- regexReplaceAll "[^A-Za-z0-9._-]+" . "-" | lower -}}
{{- end -}}
{{- end -}}

{{- /* The smallest --max-lora-rank of vLLM that holds this rank; it takes no others, and its default of 16 refuses more. */}}
{{- define "trainjob.servedRank" -}}
{{- $rank := . -}}
{{- $served := "" -}}
{{- range list 8 16 32 64 128 256 320 512 -}}
{{- if and (not $served) (ge . $rank) -}}{{- $served = toString . -}}{{- end -}}
{{- end -}}
{{- $served -}}
{{- end -}}

{{- /* Of the labels that only this project has. */}}
{{- define "trainjob.labelDomain" -}}trainlab.dev{{- end -}}

{{- /* Of objects. */}}
{{- define "trainjob.labels" -}}
helm.sh/chart: {{ .chart | quote }}
app.kubernetes.io/version: {{ .version | quote }}
{{ include "trainjob.stableLabels" . }}
{{- end -}}

{{- /* Of pod templates, and of the InferenceService, whose labels KServe gives to its pods: without those that a new version of
the chart changes, as a job's template cannot change, and the server must not restart for a label. */}}
{{- define "trainjob.stableLabels" -}}
app.kubernetes.io/name: trainjob
app.kubernetes.io/instance: {{ .release | quote }}
app.kubernetes.io/part-of: trainlab
app.kubernetes.io/managed-by: {{ .managedBy }}
{{ include "trainjob.labelDomain" . }}/run: {{ .run }}
{{ include "trainjob.labelDomain" . }}/phase: {{ .phase.name | quote }}
{{- end -}}

{{- /* Of objects whose names change with what they are. All others keep theirs for the life of the release: Helm cannot go back from
a failed upgrade to a revision of other names while its objects are still there (helm/helm#10219; from 3.22 on it tries, with
a patch that no job takes). The notes name the command that makes room, by this label. */}}
{{- define "trainjob.runLabels" -}}
{{ include "trainjob.labels" . }}
app.kubernetes.io/component: run
{{- end -}}

{{- /* Labels of an object that Kueue may queue. */}}
{{- define "trainjob.jobLabels" -}}
{{ include "trainjob.runLabels" . }}
{{- include "trainjob.queueLabel" . }}
{{- end -}}

{{- define "trainjob.queueLabel" -}}
{{- with .site.queue }}
kueue.x-k8s.io/queue-name: {{ . | quote }}
{{- end }}
{{- end -}}
