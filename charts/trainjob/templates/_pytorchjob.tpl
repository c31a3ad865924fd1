{{- define "trainjob.pytorchjobSpec" -}}
{{- $resolved := . -}}
{{- $nodes := int $resolved.phase.resources.nodes -}}
nprocPerNode: {{ $resolved.phase.resources.processes_per_node | quote }}
runPolicy:
  # None keeps the pods with their logs; no retry, so that a failure is seen at once (an upgrade after deleting the job resumes).
  cleanPodPolicy: None
  backoffLimit: 0
  activeDeadlineSeconds: {{ mul (int $resolved.phase.resources.timeout_minutes) 60 }}
pytorchReplicaSpecs:
  {{- range $role, $replicas := dict "Master" 1 "Worker" (sub $nodes 1) }}
  {{- if $replicas }}
  {{ $role }}:
    replicas: {{ $replicas }}
    restartPolicy: Never
    template:
      metadata:
        labels:
          {{- include "trainjob.trainPodLabels" $resolved | nindent 10 }}
        {{- with include "trainjob.podAnnotations" $resolved | trim }}{{ nindent 8 . }}{{ end }}
      spec:
        {{- include "trainjob.trainPod" (dict "resolved" $resolved "container" "pytorch") | nindent 8 }}
  {{- end }}
  {{- end }}
{{- end -}}
