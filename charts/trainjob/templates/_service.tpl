{{/* The InferenceService that the promotion Job applies. */}}
{{- define "trainjob.inferenceService" -}}
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: {{ .release }}
  namespace: {{ .namespace }}
  labels:
    opendatahub.io/dashboard: "true"
    {{- include "trainjob.stableLabels" . | nindent 4 }}
  annotations:
    openshift.io/display-name: {{ .phase.title | quote }}
    serving.kserve.io/deploymentMode: RawDeployment
    # Otherwise an autoscaler is made that finds no metrics.
    serving.kserve.io/autoscalerClass: none
spec:
  predictor:
    minReplicas: 1
    maxReplicas: 1
    # A rollout must not wait for a second GPU.
    deploymentStrategy: {type: Recreate}
    automountServiceAccountToken: false
    enableServiceLinks: false
    {{- with include "trainjob.podAnnotations" . | trim }}{{ nindent 4 . }}{{ end }}
    securityContext:
      {{- include "trainjob.podSecurity" . | nindent 6 }}
    {{- with include "trainjob.classes" . | trim }}{{ nindent 4 . }}{{ end }}
    model:
      modelFormat: {name: trainlab, version: "1"}
      runtime: {{ .run }}
      {{- if eq .protocol "v2" }}
      protocolVersion: v2
      {{- end }}
      # Mounted at /mnt/models. Without it KServe takes the predictor for a multi-model one and adds its agent.
      {{- if eq .claims.models .claims.runs }}
      # All of the claim, with the base models: one claim under two volumes of a pod would never be mounted (_storage.tpl).
      storageUri: pvc://{{ .claims.runs }}
      {{- else }}
      storageUri: pvc://{{ include "trainjob.join" (list .claims.runs .site.storage.runs.subPath .run) }}
      {{- end }}
{{- end -}}
