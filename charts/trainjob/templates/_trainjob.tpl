{{- define "trainjob.trainingRuntimeSpec" -}}
mlPolicy:
  numNodes: {{ .phase.resources.nodes }}
  # The number of processes is in the TrainJob: from Trainer 2.2 on there is no such key here.
  torch: {}
template:
  spec:
    replicatedJobs:
      - name: node
        template:
          metadata:
            labels:
              trainer.kubeflow.org/trainjob-ancestor-step: trainer
          spec:
            backoffLimit: 0
            template:
              metadata:
                labels:
                  {{- include "trainjob.trainPodLabels" . | nindent 18 }}
                {{- with include "trainjob.podAnnotations" . | trim }}{{ nindent 16 . }}{{ end }}
              spec:
                {{- include "trainjob.trainPod" (dict "resolved" . "container" "node") | nindent 16 }}
{{- end -}}
