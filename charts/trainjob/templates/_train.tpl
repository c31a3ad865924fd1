{{/* The training pod, the same for PyTorchJob and TrainJob: .resolved and the .container name that the operator wants. */}}

{{- /* Where the first pod tells how far it is: the port that OpenShift AI's trainer asks by default. */}}
{{- define "trainjob.progressPort" -}}28080{{- end -}}

{{- /* For whoever waits for the job: a failed pod is not its end. */}}
{{- define "trainjob.restartsAnnotation" -}}
{{ include "trainjob.labelDomain" . }}/restarts: {{ .phase.resources.restarts | quote }}
{{- end -}}

{{- define "trainjob.trainPodLabels" -}}
{{ include "trainjob.stableLabels" . }}
app.kubernetes.io/component: train
{{- include "trainjob.podLabels" . }}
{{- end -}}

{{- /* What needs a network or a volume to write to, before training: .resolved, the container's .name and .resources. */}}
{{- define "trainjob.fetchContainer" -}}
{{- $resolved := .resolved -}}
- name: {{ .name }}
  {{- include "trainjob.image" $resolved.site | nindent 2 }}
  command: [trainlab, fetch, /etc/trainlab/phase.json, --models, /models]
  {{- with include "trainjob.envFrom" $resolved | trim }}{{ nindent 2 . }}{{ end }}
  env:
    {{- include "trainjob.env" . | nindent 4 }}
    {{- if eq .name "fetch" }}
    - {name: TRAINLAB_FETCH_ERROR, value: /tmp/fetch-error}
    {{- end }}
    {{- with include "trainjob.siteEnv" $resolved | trim }}{{ nindent 4 . }}{{ end }}
    {{- with include "trainjob.datasets" $resolved | trim }}{{ nindent 4 . }}{{ end }}
    {{- if $resolved.site.caConfigMap }}
    - {name: SSL_CERT_FILE, value: /etc/trainlab-ca/ca-bundle.crt}
    {{- end }}
    {{- with $resolved.site.hfTokenSecret }}
    - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: {{ include "trainjob.word" . }}, key: token}}}
    {{- end }}
  resources:
    {{- include "trainjob.resources" .resources | nindent 4 }}
  securityContext:
    {{- include "trainjob.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - {name: phase, mountPath: /etc/trainlab, readOnly: true}
    {{- include "trainjob.mount" (dict "resolved" $resolved "name" "models" "path" "/models") | nindent 4 }}
    {{- if has "data" $resolved.volumes }}
    {{- include "trainjob.mount" (dict "resolved" $resolved "name" "data" "path" "/data") | nindent 4 }}
    {{- end }}
    {{- if $resolved.site.caConfigMap }}
    - {name: ca, mountPath: /etc/trainlab-ca, readOnly: true}
    {{- end }}
    - {name: tmp, mountPath: /tmp}
{{- end -}}

{{- define "trainjob.trainPod" -}}
{{- $resolved := .resolved -}}
{{- $asked := $resolved.phase.resources -}}
{{- $trusts := and $resolved.site.reportTo $resolved.site.caConfigMap -}}
{{- /* The PyTorchJob says it per replica; its operator warns where both do. */ -}}
{{- if eq .container "node" }}
restartPolicy: Never
{{- end }}
automountServiceAccountToken: false
enableServiceLinks: false
# At SIGTERM the ranks have 30 seconds, torchrun's, to keep a checkpoint; the rest is for the launcher.
terminationGracePeriodSeconds: 60
# Also bounds pods that outlive a failed job: its finished pods stay, for their logs.
activeDeadlineSeconds: {{ mul (int $asked.timeout_minutes) 60 }}
securityContext:
  {{- include "trainjob.podSecurity" $resolved | nindent 2 }}
  {{- if and (ne .container "node") (gt (int $asked.nodes) 1) (eq $resolved.platform "kubernetes") }}
  runAsUser: 1001 # for the init container that the operator adds to workers, whose image says root
  {{- end }}
{{- include "trainjob.classes" $resolved }}
{{- include "trainjob.placement" (dict "resolved" $resolved "gpus" (int $asked.gpus_per_node) "component" "train") }}
{{- if and (gt (int $asked.nodes) 1) (ne $resolved.site.spread "none") }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: {{ eq $resolved.site.spread "required" | ternary "DoNotSchedule" "ScheduleAnyway" }}
    # Or an empty control-plane node would count as a place that has to be filled first.
    nodeTaintsPolicy: Honor
    labelSelector:
      matchLabels:
        {{ include "trainjob.labelDomain" . }}/run: {{ $resolved.run }}
        app.kubernetes.io/component: train
{{- end }}
initContainers:
  {{- include "trainjob.fetchContainer" (dict "resolved" $resolved "name" "fetch" "resources" (pick $asked "cpu" "memory")) | nindent 2 }}
containers:
  - name: {{ .container }}
    {{- include "trainjob.image" $resolved.site | nindent 4 }}
    command: [trainlab, run, /etc/trainlab/phase.json, --models, /models, --out, /runs]
    {{- with include "trainjob.envFrom" $resolved | trim }}{{ nindent 4 . }}{{ end }}
    env:
      {{- include "trainjob.env" . | nindent 6 }}
      - {name: TRAINLAB_FETCH_ERROR, value: /tmp/fetch-error}
      {{- with include "trainjob.siteEnv" $resolved | trim }}{{ nindent 6 . }}{{ end }}
      {{- with include "trainjob.datasets" $resolved | trim }}{{ nindent 6 . }}{{ end }}
      - {name: TRAINLAB_RUN, value: {{ $resolved.run }}}
      {{- with $resolved.site.reportTo }}
      - {name: TRAINLAB_REPORT_TO, value: {{ join "," . | quote }}}
      {{- end }}
      {{- if $trusts }}
      - {name: SSL_CERT_FILE, value: /etc/trainlab-ca/ca-bundle.crt}
      {{- end }}
      - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
      - {name: TRAINLAB_PROGRESS_PORT, value: {{ include "trainjob.progressPort" . | quote }}}
      - {name: TRAINLAB_TERMINATION_MESSAGE, value: /dev/termination-log}
      - {name: HF_HUB_OFFLINE, value: "1"}
      {{- if eq (int $asked.gpus_per_node) 0 }}
      - {name: OMP_NUM_THREADS, value: {{ include "trainjob.threads" $asked | quote }}}
      {{- end }}
    ports: [{name: progress, containerPort: {{ include "trainjob.progressPort" . }}, protocol: TCP}]
    resources:
      {{- $gpus := dict "gpus" (int $asked.gpus_per_node) "gpuResource" $resolved.site.gpuResource }}
      {{- include "trainjob.resources" (merge (pick $asked "cpu" "memory") $gpus) | nindent 6 }}
    securityContext:
      {{- include "trainjob.containerSecurity" . | nindent 6 }}
    volumeMounts:
      - {name: phase, mountPath: /etc/trainlab, readOnly: true}
      {{- if $trusts }}
      - {name: ca, mountPath: /etc/trainlab-ca, readOnly: true}
      {{- end }}
      {{- include "trainjob.mount" (dict "resolved" $resolved "name" "models" "path" "/models" "readOnly" true) | nindent 6 }}
      {{- if has "data" $resolved.volumes }}
      {{- include "trainjob.mount" (dict "resolved" $resolved "name" "data" "path" "/data" "readOnly" true) | nindent 6 }}
      {{- end }}
      {{- include "trainjob.mount" (dict "resolved" $resolved "name" "runs" "path" "/runs") | nindent 6 }}
      - {name: tmp, mountPath: /tmp}
      - {name: shm, mountPath: /dev/shm}
volumes:
  - {name: phase, configMap: {name: {{ $resolved.run }}}}
  {{- with $resolved.site.caConfigMap }}
  - {name: ca, configMap: {name: {{ include "trainjob.word" . }}}}
  {{- end }}
  {{- include "trainjob.claimVolumes" (dict "resolved" $resolved "names" $resolved.volumes) | trim | nindent 2 }}
  - {name: tmp, emptyDir: {}}
  - {name: shm, emptyDir: {medium: Memory, sizeLimit: {{ $asked.shared_memory }}}}
{{- end -}}

{{- /* Name of the training job: the run and a hash of the job, as Kueue refuses changes of an admitted one. So a changed site is
another job of the same run: it resumes, or ends at once if the run is complete. So does one that names a checkpoint. */}}
{{- define "trainjob.trainName" -}}
{{- $spec := eq .api "trainjob" | ternary "trainjob.trainingRuntimeSpec" "trainjob.pytorchjobSpec" -}}
{{- $content := list .api .site.queue .phase.resources.nodes .phase.resources.processes_per_node (include $spec .) -}}
{{- with .phase.train.resume_from }}{{- $content = append $content . }}{{- end -}}
{{- printf "%s-%s" .run (join "\n" $content | sha256sum | trunc 6) -}}
{{- end -}}

{{- /* The spec of a PyTorchJob. */}}
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

{{- /* The spec of a TrainingRuntime. */}}
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
