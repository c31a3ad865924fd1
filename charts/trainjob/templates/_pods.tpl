{{/* Parts of pods: all of them pass the Pod Security level `restricted` with any UID and a read-only root. */}}

{{- define "trainjob.podSecurity" -}}
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- if .plainKubernetes }}
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

{{- /* No CPU limit: throttled ranks make the whole job wait. The memory limit is the request: nobody else's memory. */}}
{{- define "trainjob.resources" -}}
requests:
  cpu: {{ .cpu | quote }}
  memory: {{ .memory | quote }}
  {{- if .gpus }}
  {{ .gpuResource }}: {{ .gpus | quote }}
  {{- end }}
limits:
  memory: {{ .memory | quote }}
  {{- if .gpus }}
  {{ .gpuResource }}: {{ .gpus | quote }}
  {{- end }}
{{- end -}}

{{- /* Where pods may run; .gpus > 0 also tolerates the taint that GPU nodes usually carry. */}}
{{- define "trainjob.placement" -}}
{{- $tolerations := .resolved.site.tolerations | default list -}}
{{- if .gpus -}}
{{- $tolerations = append $tolerations (dict "key" .resolved.site.gpuResource "operator" "Exists" "effect" "NoSchedule") -}}
{{- end -}}
{{- with $tolerations }}
tolerations: {{ toJson (uniq .) }}
{{- end }}
{{- with .resolved.site.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .resolved.site.images.pullSecret }}
imagePullSecrets: [{name: {{ . }}}]
{{- end }}
{{- end -}}

{{- define "trainjob.image" -}}
image: {{ .images.trainer | quote }}
imagePullPolicy: {{ .images.pullPolicy }}
terminationMessagePolicy: FallbackToLogsOnError
{{- end -}}

{{- define "trainjob.env" -}}
- {name: HOME, value: /tmp}
- {name: PYTHONUNBUFFERED, value: "1"}
{{- end -}}

{{- /* Threads of one rank. Without this each of several pods on a node takes all its cores, and they wait for one another. */}}
{{- define "trainjob.threads" -}}
{{- $cpu := .cpu | toString -}}
{{- $cores := divf (trimSuffix "m" $cpu) (hasSuffix "m" $cpu | ternary 1000 1) | ceil | int -}}
{{- max 1 (div $cores (int .processes_per_node)) -}}
{{- end -}}
