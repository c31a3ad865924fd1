{{/* TensorBoard over all runs of the volume, which the pods of a job write while they train. */}}

{{- define "trainjob.tensorboard" -}}{{ .release }}-tensorboard{{- end -}}

{{- /* `route`, `ingress`, or empty for none. It has no login, so it is not shown where the model asks for a token. */}}
{{- define "trainjob.tensorboardExposure" -}}
{{- if and .site.tensorboard.enabled (not .site.auth) -}}
{{- if or (eq .exposure "route") .site.tensorboard.host -}}{{ .exposure }}{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Without the labels of the run: it is of all, and must not start again for each. */}}
{{- define "trainjob.tensorboardSelector" -}}
app.kubernetes.io/component: tensorboard
app.kubernetes.io/instance: {{ .release | quote }}
{{- end -}}
