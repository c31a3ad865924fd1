{{/* Parts of pods: all of them pass the Pod Security level `restricted` with any UID and a read-only root. */}}

{{- /* No CPU limit but where asked for: throttled ranks make the whole job wait. The memory limit is the request: nobody else's memory. */}}
{{- define "trainjob.resources" -}}
requests:
  cpu: {{ .cpu | quote }}
  memory: {{ .memory | quote }}
  {{- if .gpus }}
  {{ .gpuResource }}: {{ .gpus | quote }}
  {{- end }}
limits:
  {{- with .cpuLimit }}
  cpu: {{ . | quote }}
  {{- end }}
  memory: {{ .memory | quote }}
  {{- if .gpus }}
  {{ .gpuResource }}: {{ .gpus | quote }}
  {{- end }}
{{- end -}}

{{- /* Where pods may run: .resolved, their .gpus and their .component. Pods with GPUs tolerate the taint of GPU nodes; so do the others of
such a phase, which a node selector or a volume for one node may send there. */}}
{{- define "trainjob.tolerated" -}}
{{- $phase := .resolved.phase -}}
{{- $sent := and (or .resolved.site.nodeSelector (include "trainjob.oneNode" .resolved)) (or (int $phase.resources.gpus_per_node) (int $phase.serve.gpus)) -}}
{{- include "trainjob.tolerations" (dict "site" .resolved.site "gpus" (or .gpus $sent)) -}}
{{- end -}}

{{- define "trainjob.placement" -}}
{{- with include "trainjob.tolerated" . }}
{{ . }}
{{- end }}
{{- with .resolved.site.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .resolved.site.images.pullSecret }}
imagePullSecrets: [{name: {{ include "trainjob.word" . }}}]
{{- end }}
{{- $apart := list "lease" -}}
{{- if and (has .component (list "promote" "tensorboard")) (include "trainjob.promotionFollows" .resolved) -}}{{- $apart = append $apart .component -}}{{- end -}}
{{- if and (include "trainjob.oneNode" .resolved) (ne .component "lease") }}
affinity:
  podAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {app.kubernetes.io/instance: {{ .resolved.release | quote }}}
          matchExpressions:
            - key: app.kubernetes.io/component
              operator: NotIn
              values: {{ toJson $apart }}
{{- end }}
{{- end -}}

{{- /* "true" where a claim of the release is for one node at a time: then all pods that mount one run where the others do. The first is
free to choose, as it matches its own term and nothing else does (kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node,
"Inter-pod affinity and anti-affinity"). A lease mounts none. KServe gives the server's pod the labels of the InferenceService. */}}
{{- define "trainjob.oneNode" -}}
{{- $once := "" -}}
{{- range .volumes -}}
{{- if eq (index $.site.storage .).accessMode "ReadWriteOnce" -}}{{- $once = "true" -}}{{- end -}}
{{- end -}}
{{- $once -}}
{{- end -}}

{{- /* "true" where the promotion waits for another pod there. It is made with the job, whose pods may be queued: with GPUs it could take
a node that has none, and they would have to follow. So it finds no node by itself when nothing trains and nothing is served. TensorBoard does the same. */}}
{{- define "trainjob.promotionFollows" -}}
{{- if and (include "trainjob.oneNode" .) (int .phase.resources.gpus_per_node) -}}true{{- end -}}
{{- end -}}

{{- /* Pods that train or serve may be more important than others, and need the runtime of their GPUs. */}}
{{- define "trainjob.classes" -}}
{{- with .site.priorityClass }}
priorityClassName: {{ include "trainjob.word" . }}
{{- end }}
{{- with .site.runtimeClass }}
runtimeClassName: {{ include "trainjob.word" . }}
{{- end }}
{{- end -}}

{{- define "trainjob.podAnnotations" -}}
{{- with .site.podAnnotations }}
annotations: {{ toJson . }}
{{- end }}
{{- end -}}

{{- /* Further labels, below those of the chart. */}}
{{- define "trainjob.podLabels" -}}
{{- with .site.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "trainjob.noImage" -}}
site.images.trainer: missing, as no registry offers the trainer image; add -f artifacts/site.yaml, which
{{- print " " -}} `ansible-playbook -i YOUR_INVENTORY playbooks/image.yml -e image_site_file=artifacts/site.yaml` writes in a checkout, and into this namespace (YOUR_INVENTORY
{{- print " " -}} is a copy of inventory/openshift, where it builds the image, or of inventory/kubernetes, where it pushes it to your registry if
{{- print " " -}} trainlab_image_push names one), or name one that is there with --set site.images.trainer=REGISTRY/NAME@sha256:DIGEST
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

{{- /* Of containers that fetch, train or serve; those that speak to the cluster's own services need no proxy. */}}
{{- define "trainjob.siteEnv" -}}
{{- range $name, $value := .site.env }}
- {name: {{ include "trainjob.word" $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end -}}

{{- define "trainjob.envFrom" -}}
{{- with .site.envSecrets }}
envFrom:
  {{- range . }}
  - {secretRef: {name: {{ include "trainjob.word" . }}}}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* Threads of one rank. Without this each of several pods on a node takes all its cores, and they wait for one another. */}}
{{- define "trainjob.threads" -}}
{{- $cpu := .cpu | toString -}}
{{- $cores := divf (trimSuffix "m" $cpu) (hasSuffix "m" $cpu | ternary 1000 1) | ceil | int -}}
{{- max 1 (div $cores (int .processes_per_node)) -}}
{{- end -}}
