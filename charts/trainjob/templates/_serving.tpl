{{/*
What the promotion Job applies: a ServingRuntime, the phase that its server reads, and the InferenceService. None is an object of
the release, as a run that is not promoted must change nothing that is served. The first two are named by their content: the server
that answers keeps its own until the InferenceService changes over, in one patch. A ServingRuntime changed under its name would take
effect too early or never: KServe 0.16 and OpenShift AI 3.3 restart the server at once, KServe 0.15 and OpenShift AI 2.25 never.
*/}}

{{- /* Name of ServingRuntime and phase: the run and a hash of both, but for the hours, for which no server has to restart. */}}
{{- define "trainjob.servedName" -}}
{{- $content := list (include "trainjob.servingRuntime" (dict "resolved" . "name" "")) (set (deepCopy .phase) "serve" (omit .phase.serve "hours") | toJson) -}}
{{- printf "%s-%s" .run (join "\n" $content | sha256sum | trunc 6) -}}
{{- end -}}

{{- /* The phase as a ConfigMap of this .name: the release's own changes with the release, the server's with the server. */}}
{{- define "trainjob.servedPhase" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}
  labels:
    {{- include "trainjob.stableLabels" .resolved | nindent 4 }}
data:
  phase.json: {{ dict "phase" .resolved.phase | toPrettyJson | quote }}
{{- end -}}

{{- /* "true" where the server sees all runs, not its own alone: our own answers for the others too by adapter. It sees them in
KServe's mount, as one claim under two volumes of a pod would never be mounted (_storage.tpl). */}}
{{- define "trainjob.allRuns" -}}
{{- $asked := .phase.serve }}
{{- if and (eq $asked.runtime "trainlab") (int (.phase.lora | default dict).rank) (int $asked.max_adapters) -}}true{{- end -}}
{{- end -}}

{{- /* The server of a run: .resolved, and its .name. */}}
{{- define "trainjob.servingRuntime" -}}
{{- $resolved := .resolved }}
{{- $asked := $resolved.phase.serve }}
{{- $vllm := eq $asked.runtime "vllm" }}
{{- $rank := int ($resolved.phase.lora | default dict).rank }}
{{- $onCpu := and $vllm (eq (int $asked.gpus) 0) }}
{{- /* KServe mounts the run at /mnt/models, from a volume of its own. Where the models lie in the same claim, it mounts all of
that claim (below), and both are found in there. */}}
{{- $shared := eq $resolved.claims.models $resolved.claims.runs }}
{{- $models := $shared | ternary (include "trainjob.join" (list "/mnt/models" $resolved.site.storage.models.subPath)) "/models" }}
{{- $run := include "trainjob.allRuns" $resolved | empty | ternary "/mnt/models" (printf "/mnt/models/%s" $resolved.run) }}
{{- if $shared }}
{{- $run = include "trainjob.join" (list "/mnt/models" $resolved.site.storage.runs.subPath $resolved.run) }}
{{- end }}
{{- /* What vLLM loads: the base, under an adapter or on request, or what was trained. */}}
{{- $asBase := and $vllm (or (gt $rank 0) (eq $asked.weights "base")) }}
{{- $base := printf "%s/%s" $models (include "trainjob.modelFolder" $resolved.phase.model.source) }}
{{- if hasPrefix "parent:" $resolved.phase.model.source }}
{{- $base = printf "%s/parent_model" $run }}
{{- end }}
{{- $result := printf "%s/%s" $run (gt $rank 0 | ternary "lora_adapter" "best_model") -}}
apiVersion: serving.kserve.io/v1alpha1
kind: ServingRuntime
metadata:
  name: {{ .name }}
  labels:
    opendatahub.io/dashboard: "true"
    {{- include "trainjob.stableLabels" $resolved | nindent 4 }}
  annotations:
    openshift.io/display-name: {{ $resolved.phase.title | quote }}
    opendatahub.io/apiProtocol: REST
    {{- if $vllm }}
    opendatahub.io/template-name: {{ $onCpu | ternary "vllm-cpu-x86-runtime-template" "vllm-cuda-runtime-template" }}
    {{- end }}
    {{- if int $asked.gpus }}
    opendatahub.io/recommended-accelerators: {{ list $resolved.site.gpuResource | toJson | quote }}
    {{- end }}
spec:
  annotations:
    {{- if $vllm }}
    opendatahub.io/kserve-runtime: vllm # which of its boards the dashboard draws
    {{- end }}
    prometheus.io/port: "8080"
    prometheus.io/path: /metrics
  multiModel: false
  {{- if eq $resolved.protocol "v2" }}
  protocolVersions: [v2]
  {{- end }}
  supportedModelFormats: [{name: trainlab, version: "1", autoSelect: false}]
  {{- with include "trainjob.placement" (dict "resolved" $resolved "gpus" (int $asked.gpus) "component" "server") | trim }}{{ nindent 2 . }}{{ end }}
  containers:
    - name: kserve-container
      {{- if $vllm }}
      {{- include "trainjob.image" (dict "images" (merge (dict "trainer" $resolved.site.images.vllm) $resolved.site.images)) | nindent 6 }}
      command: [python3, -m, vllm.entrypoints.openai.api_server]
      args:
        - --port=8080
        - --model={{ $asBase | ternary $base $result }}
        - --served-model-name={{ $asBase | ternary "base" "tuned" }}
        {{- if $rank }}
        - --enable-lora
        - --lora-modules=tuned={{ $result }}
        - --max-lora-rank={{ include "trainjob.servedRank" $rank }}
        {{- if $onCpu }}
        # One place stays empty: on CPU vLLM takes the last place for a row without an adapter (vllm 0.32, lora/ops/torch_ops/
        # lora_ops.py: index -1), so that base would answer as tuned whenever both are in a batch.
        - --max-loras=2
        {{- end }}
        {{- end }}
        {{- if $asBase }}
        # vLLM takes both from --model, which is the base here; base and tuned are asked as they were scored.
        - --chat-template={{ $result }}/chat_template.jinja
        - --generation-config={{ $result }}
        {{- end }}
        - --max-model-len={{ add (int $resolved.phase.model.max_length) (int $asked.max_tokens) }}
        - --max-num-seqs={{ int $asked.max_concurrency }}
        - --dtype={{ include "trainjob.servedDtype" $resolved.phase }}
        {{- if $onCpu }}
        - --enforce-eager # compiling takes a C++ compiler and minutes
        {{- else }}
        - --tensor-parallel-size={{ int $asked.gpus }}
        {{- end }}
        {{- range $asked.args }}
        - {{ quote . }}
        {{- end }}
      {{- else }}
      {{- include "trainjob.image" $resolved.site | nindent 6 }}
      command: [trainlab, serve, /etc/trainlab/phase.json]
      args: [--models={{ $models }}, --run-dir={{ $run }}, --port=8080]
      {{- end }}
      {{- with include "trainjob.envFrom" $resolved | trim }}{{ nindent 6 . }}{{ end }}
      env:
        {{- include "trainjob.env" . | nindent 8 }}
        {{- with include "trainjob.siteEnv" $resolved | trim }}{{ nindent 8 . }}{{ end }}
        - {name: HF_HUB_OFFLINE, value: "1"}
        {{- if $vllm }}
        # torch asks for the user's name, which a UID without a passwd entry does not have.
        - {name: USER, value: trainlab}
        - {name: VLLM_NO_USAGE_STATS, value: "1"}
        {{- end }}
        {{- if $onCpu }}
        # GiB, whole ones; plan/device_memory.py counts the same.
        - {name: VLLM_CPU_KVCACHE_SPACE, value: {{ max 1 (divf (include "trainjob.bytes" $asked.memory) 4294967296 | floor) | quote }}}
        # Otherwise it takes all cores of the node, one thread bound to each.
        - {name: VLLM_CPU_OMP_THREADS_BIND, value: nobind}
        - {name: OMP_NUM_THREADS, value: {{ include "trainjob.threads" (dict "cpu" $asked.cpu "processes_per_node" 1) | quote }}}
        {{- end }}
      ports: [{name: http, containerPort: 8080, protocol: TCP}]
      startupProbe:
        httpGet: {path: /health, port: 8080}
        periodSeconds: 5
        # What fills its memory is read at 100 MB/s; vLLM has 20 minutes in any case, for its compiler. plan/source.py counts the same.
        failureThreshold: {{ max ($vllm | ternary 240 60) (divf (include "trainjob.bytes" $asked.memory) 5e8 | ceil | int) }}
      readinessProbe:
        httpGet: {path: {{ $vllm | ternary "/health" "/ready" }}, port: 8080}
        periodSeconds: 5
        timeoutSeconds: 5
      livenessProbe:
        httpGet: {path: /health, port: 8080}
        periodSeconds: 20
        timeoutSeconds: 10
        failureThreshold: 6
      resources:
        {{- include "trainjob.serverResources" $resolved | nindent 8 }}
      securityContext:
        {{- include "trainjob.containerSecurity" . | nindent 8 }}
        {{- if and $vllm (eq $resolved.platform "kubernetes") }}
        runAsUser: 1001 # vLLM's own image says root
        {{- end }}
      volumeMounts:
        - {name: phase, mountPath: /etc/trainlab, readOnly: true}
        {{- if not $shared }}
        {{- include "trainjob.mount" (dict "resolved" $resolved "name" "models" "path" "/models" "readOnly" true) | nindent 8 }}
        {{- end }}
        - {name: tmp, mountPath: /tmp}
        - {name: shm, mountPath: /dev/shm}
  volumes:
    - {name: phase, configMap: {name: {{ .name }}}}
    {{- if not $shared }}
    {{- include "trainjob.claimVolumes" (dict "resolved" $resolved "names" (list "models")) | trim | nindent 4 }}
    {{- end }}
    - {name: tmp, emptyDir: {}}
    - {name: shm, emptyDir: {medium: Memory, sizeLimit: {{ $resolved.phase.resources.shared_memory }}}}
{{- end -}}

{{- /* What vLLM computes in: phase.serve.dtype, else as the run was trained and scored (models/compute.py). Named on GPUs, too:
of its own it takes float16 for weights that are saved as float32. */}}
{{- define "trainjob.servedDtype" -}}
{{- $auto := gt (int .resources.gpus_per_node) 0 | ternary "bfloat16" "float32" -}}
{{- .serve.dtype | default (eq .model.dtype "auto" | ternary $auto .model.dtype) -}}
{{- end -}}

{{- define "trainjob.serverResources" -}}
{{- $asked := .phase.serve -}}
{{- include "trainjob.resources" (dict "cpu" $asked.cpu "memory" $asked.memory "gpus" (int $asked.gpus) "gpuResource" .site.gpuResource) -}}
{{- end -}}

{{- define "trainjob.inferenceService" -}}
{{- $served := .served -}}
{{- with .resolved -}}
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: {{ .release | quote }}
  namespace: {{ .namespace | quote }}
  labels:
    opendatahub.io/dashboard: "true"
    {{- include "trainjob.stableLabels" . | nindent 4 }}
    {{- /* KServe gives it to the Deployment, which Kueue counts if that integration is on. Elsewhere CPUs are not worth it that the
server takes the quota of the next training; OpenShift AI 2.25 and 3.3 deny one without it where Kueue manages the namespace
(opendatahub-operator, internal/webhook/kueue/validating.go). */}}
    {{- if or (int .phase.serve.gpus) (eq .platform "openshift") }}
    {{- include "trainjob.queueLabel" . | indent 4 }}
    {{- end }}
  annotations:
    openshift.io/display-name: {{ .phase.title | quote }}
    opendatahub.io/model-type: {{ eq .protocol "v2" | ternary "predictive" "generative" }}
    {{- /* Its name since 0.16, Standard, is unknown to KServe 0.15, which OpenShift AI 2.25 and 3.3 have; later ones know both. */}}
    serving.kserve.io/deploymentMode: RawDeployment
    # Otherwise an autoscaler is made that finds no metrics.
    serving.kserve.io/autoscalerClass: none
    {{- if .site.auth }}
    # OpenShift AI puts kube-rbac-proxy in front of it, on 8443, the only port of its Service then.
    security.opendatahub.io/enable-auth: "true"
    {{- end }}
    {{- with .site.hardwareProfile.name }}
    opendatahub.io/hardware-profile-name: {{ . | quote }}
    opendatahub.io/hardware-profile-namespace: {{ $.resolved.site.hardwareProfile.namespace | default $.resolved.namespace | quote }}
    {{- end }}
spec:
  predictor:
    minReplicas: 1
    maxReplicas: 1
    # A rollout must not wait for a second GPU.
    deploymentStrategy: {type: Recreate}
    automountServiceAccountToken: false
    enableServiceLinks: false
    {{- with .site.podLabels }}
    labels: {{ toJson . }}
    {{- end }}
    {{- with include "trainjob.podAnnotations" . | trim }}{{ nindent 4 . }}{{ end }}
    securityContext:
      {{- include "trainjob.podSecurity" . | nindent 6 }}
    {{- with include "trainjob.classes" . | trim }}{{ nindent 4 . }}{{ end }}
    {{- if .site.hardwareProfile.name }}
    # Those of a profile would replace the runtime's.
    {{- with include "trainjob.tolerated" (dict "resolved" . "gpus" (int .phase.serve.gpus)) }}{{ nindent 4 . }}{{ end }}
    {{- end }}
    model:
      modelFormat: {name: trainlab, version: "1"}
      runtime: {{ $served }}
      {{- if .site.hardwareProfile.name }}
      # As in the runtime: what is missing here OpenShift AI takes from the profile, and that wins over the runtime. A limit of the CPU is
      # among it.
      resources: {{- $own := include "trainjob.serverResources" . | fromYaml }}
        {{- mergeOverwrite (dict "limits" (dict "cpu" .phase.serve.cpu)) $own | toYaml | nindent 8 }}
      {{- end }}
      {{- if eq .protocol "v2" }}
      protocolVersion: v2
      {{- end }}
      # Mounted at /mnt/models. Without it KServe takes the predictor for a multi-model one and adds its agent.
      {{- if eq .claims.models .claims.runs }}
      # All of the claim, with the base models: one claim under two volumes of a pod would never be mounted (_storage.tpl).
      storageUri: pvc://{{ .claims.runs }}
      {{- else }}
      {{- $path := include "trainjob.allRuns" . | empty | ternary .run "" }}
      storageUri: pvc://{{ include "trainjob.join" (list .claims.runs .site.storage.runs.subPath $path) }}
      {{- end }}
{{- end -}}
{{- end -}}
