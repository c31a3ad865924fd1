{{- define "trainjob.trainingRuntimeSpec" -}}
mlPolicy:
  numNodes: {{ .phase.resources.nodes }}
  # The number of processes is in the TrainJob: from Trainer 2.2 on there is no such key here.
  torch: {}
template:
  spec:
    {{- with int .phase.resources.restarts }}
    # All pods start again together. A rank's own error (below) and the deadline end the job at once.
    failurePolicy:
      maxRestarts: {{ . }}
      rules: [{name: ends, action: FailJobSet, onJobFailureReasons: [PodFailurePolicy, DeadlineExceeded]}]
    {{- end }}
    replicatedJobs:
      - name: node
        template:
          metadata:
            labels:
              trainer.kubeflow.org/trainjob-ancestor-step: trainer
          spec:
            backoffLimit: 0
            # Counted from each start and each return from a queue. Pods that SIGTERM ends for ever are bounded by nothing else.
            activeDeadlineSeconds: {{ mul (int .phase.resources.timeout_minutes) 60 }}
            {{- if int .phase.resources.restarts }}
            podFailurePolicy:
              rules:
                - {action: FailJob, onExitCodes: {operator: In, values: [1, 2]}}
                # A pod that was told to end (preempted, drained) has kept a checkpoint and counts nothing: the Job makes it again.
                - {action: Ignore, onExitCodes: {operator: In, values: [143]}}
            {{- end }}
            template:
              metadata:
                labels:
                  {{- include "trainjob.trainPodLabels" . | nindent 18 }}
                {{- with include "trainjob.podAnnotations" . | trim }}{{ nindent 16 . }}{{ end }}
              spec:
                {{- include "trainjob.trainPod" (dict "resolved" . "container" "node") | nindent 16 }}
{{- end -}}
