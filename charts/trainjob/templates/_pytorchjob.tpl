{{- define "trainjob.pytorchjobSpec" -}}
{{- $resolved := . -}}
{{- $nodes := int $resolved.phase.resources.nodes -}}
{{- $restarts := gt (int $resolved.phase.resources.restarts) 0 -}}
nprocPerNode: {{ $resolved.phase.resources.processes_per_node | quote }}
runPolicy:
  # None keeps the pods with their logs.
  cleanPodPolicy: None
  {{- if not $restarts }}
  backoffLimit: 0
  {{- end }}
  activeDeadlineSeconds: {{ mul (int $resolved.phase.resources.timeout_minutes) 60 }}
pytorchReplicaSpecs:
  {{- range $role, $replicas := dict "Master" 1 "Worker" (sub $nodes 1) }}
  {{- if $replicas }}
  {{ $role }}:
    replicas: {{ $replicas }}
    # ExitCode makes a pod again that is gone or ended with 128 or more (a signal, a lost peer), and ends the job at any other code.
    # It counts nothing: backoffLimit 0 ends the job at the first loss, and a higher one never does (training-operator 1.9.4,
    # pkg/controller.v1/common/job.go: the queue that it asks is a fake). So `trainlab run` counts (run/attempts.py).
    restartPolicy: {{ $restarts | ternary "ExitCode" "Never" }}
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
