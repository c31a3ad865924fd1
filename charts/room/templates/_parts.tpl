{{/* Names, labels and refusals of the room; the pod itself is in room.yaml. */}}

{{- define "room.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{ include "room.podLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "room.podLabels" -}}
{{ include "room.selector" . }}
app.kubernetes.io/part-of: trainlab
app.kubernetes.io/component: room
{{- end -}}

{{- define "room.selector" -}}
app.kubernetes.io/name: room
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- /* What the namespace and the defaults know of the site, below what is given; as {{ include "room.site" . }} before all else. */}}
{{- define "room.site" -}}
{{- include "trainjob.siteOfNamespace" . -}}
{{- $defaults := (.Files.Get "defaults.json" | fromJson).site -}}
{{- $_ := set .Values "site" (mergeOverwrite $defaults (include "trainjob.clean" (.Values.site | default dict) | fromJson)) -}}
{{- end -}}

{{- /* What templates of charts/trainjob read: the site, and the claims of the served release. */}}
{{- define "room.resolved" -}}
{{- $claims := dict -}}
{{- range (include "trainjob.volumes" . | fromJson).names -}}
{{- $_ := set $claims . ((index $.Values.site.storage .).existing | default (printf "%s-%s" $.Values.release .)) -}}
{{- end -}}
{{- dict "site" .Values.site "claims" $claims "platform" (include "room.platform" .) | toJson -}}
{{- end -}}

{{- define "room.platform" -}}
{{- if eq .Values.site.platform "auto" -}}
{{- .Capabilities.APIVersions.Has "security.openshift.io/v1" | ternary "openshift" "kubernetes" -}}
{{- else -}}{{ .Values.site.platform }}{{- end -}}
{{- end -}}

{{- /* Address of the server of the release. A headless Service, OpenShift AI's default, forwards no port: there the pod's own. */}}
{{- define "room.engine" -}}
{{- $service := lookup "v1" "Service" .Release.Namespace (printf "%s-predictor" .Values.release) -}}
{{- $headless := empty $service | ternary (eq (include "room.platform" .) "openshift") (eq (($service.spec | default dict).clusterIP | default "None") "None") -}}
{{- $host := printf "%s-predictor.%s.svc.cluster.local" .Values.release .Release.Namespace -}}
{{- if .Values.site.auth -}}https://{{ $host }}:8443
{{- else -}}http://{{ $host }}{{ $headless | ternary ":8080" "" }}
{{- end -}}
{{- end -}}

{{- define "room.check" -}}
{{- $refused := list -}}
{{- if or (gt (len .Release.Name) 40) (not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" .Release.Name)) -}}
{{- $refused = append $refused (printf "release name: %s is no name for a Service; take at most 40 lowercase letters, digits and -, a letter first and no - last" .Release.Name) -}}
{{- end -}}
{{- if not .Values.release -}}
{{- $refused = append $refused "release: empty; name the release of charts/trainjob whose models answer, --set release=quick" -}}
{{- end -}}
{{- if not .Values.run -}}
{{- $refused = append $refused (printf "run: empty; name the run that it serves: kubectl -n %s get inferenceservice %s -o jsonpath='{.metadata.labels.trainlab\\.dev/run}'" .Release.Namespace (.Values.release | default "RELEASE")) -}}
{{- end -}}
{{- if not .Values.site.images.trainer -}}
{{- $refused = append $refused "site.images.trainer: empty; give the values file of the site, -f artifacts/site.yaml, as for charts/trainjob" -}}
{{- end -}}
{{- if and .Values.job (not (regexMatch "(?m)^ *kind: (TrainJob|PyTorchJob)$" .Values.job)) -}}
{{- $refused = append $refused "job: holds no TrainJob or PyTorchJob; write it with helm template NAME charts/trainjob -f values/room/adapters.yaml, then --set-file job=FILE" -}}
{{- end -}}
{{- $expose := .Values.site.expose -}}
{{- if and $expose.enabled (eq (include "room.platform" .) "kubernetes") (not $expose.host) -}}
{{- $refused = append $refused "site.expose.host: empty; an Ingress needs the host name that phones open" -}}
{{- end -}}
{{- if $refused -}}{{- fail (printf "\n  %s" (join "\n  " $refused)) -}}{{- end -}}
{{- end -}}
