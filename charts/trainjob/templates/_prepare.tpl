{{/*
The Job of `site.step: prepare`: the training's first step, by the same command, on CPUs alone. The next revision of the release, with
`step: train`, has the training in its place, whose first step then finds everything made.
*/}}

{{- /* How often it is made again after a loss; it goes on where it was. */}}
{{- define "trainjob.prepareRestarts" -}}4{{- end -}}

{{- define "trainjob.prepareSpec" -}}
{{- $resolved := . -}}
{{- $asked := $resolved.site.prepare -}}
{{- /* A volume for one node at a time may be bound to that node for good, so there the training's nodes are asked for. */ -}}
{{- $placed := deepCopy $resolved -}}
{{- if or $asked.nodeSelector (not (include "trainjob.oneNode" $resolved)) -}}{{- $_ := set $placed.site "nodeSelector" $asked.nodeSelector -}}{{- end -}}
backoffLimit: {{ include "trainjob.prepareRestarts" . }}
podFailurePolicy:
  rules:
    - {action: Ignore, onPodConditions: [{type: DisruptionTarget, status: "True"}]}
    # An error of its own, which no retry can change.
    - {action: FailJob, onExitCodes: {containerName: prepare, operator: In, values: [1, 2]}}
template:
  metadata:
    labels:
      app.kubernetes.io/component: prepare
      {{- include "trainjob.stableLabels" $resolved | nindent 6 }}
      {{- with include "trainjob.podLabels" $resolved | trim }}{{ nindent 6 . }}{{ end }}
      {{- /* Kueue queues Jobs, or pods alone where Jobs are not among its frameworks, as OpenShift AI sets them. */}}
      {{- with include "trainjob.queueLabel" $resolved | trim }}{{ nindent 6 . }}{{ end }}
    {{- with include "trainjob.podAnnotations" $resolved | trim }}{{ nindent 4 . }}{{ end }}
  spec:
    restartPolicy: Never
    automountServiceAccountToken: false
    enableServiceLinks: false
    activeDeadlineSeconds: {{ mul (int $resolved.phase.resources.timeout_minutes) 60 }}
    securityContext:
      {{- include "trainjob.podSecurity" $resolved | nindent 6 }}
    {{- with $resolved.site.priorityClass }}
    priorityClassName: {{ include "trainjob.word" . }}
    {{- end }}
    {{- with include "trainjob.placement" (dict "resolved" $placed "gpus" 0 "component" "prepare") | trim }}{{ nindent 4 . }}{{ end }}
    containers:
      {{- /* The limit of CPU tells how many processes pay. */}}
      {{- $resources := dict "cpu" $asked.cpu "memory" $asked.memory "cpuLimit" $asked.cpu }}
      {{- include "trainjob.fetchContainer" (dict "resolved" $resolved "name" "prepare" "resources" $resources) | nindent 6 }}
    volumes:
      - {name: phase, configMap: {name: {{ $resolved.run }}}}
      {{- with $resolved.site.caConfigMap }}
      - {name: ca, configMap: {name: {{ include "trainjob.word" . }}}}
      {{- end }}
      {{- include "trainjob.claimVolumes" (dict "resolved" $resolved "names" (without $resolved.volumes "runs")) | trim | nindent 6 }}
      - {name: tmp, emptyDir: {}}
{{- end -}}

{{- /* A hash of it, as no Job's template can be changed: another image or size is another Job, which goes on where the first was. */}}
{{- define "trainjob.prepareName" -}}
{{- printf "%s-prepare-%s" .release (include "trainjob.prepareSpec" . | sha256sum | trunc 6) -}}
{{- end -}}

{{- /* The name of the Job that the revision before made for its text, from its ConfigMap; empty if it trained. */}}
{{- define "trainjob.preparedBefore" -}}
{{- $job := dig "data" "job" "" (lookup "v1" "ConfigMap" .namespace .release) -}}
{{- if hasPrefix (printf "%s-prepare-" .release) $job -}}{{- $job -}}{{- end -}}
{{- end -}}

{{- /* An upgrade to the training would remove a Job that is still at work, and the reason of one that has failed; one to the Job, a training. */}}
{{- define "trainjob.checkPrepared" -}}
{{- $name := include "trainjob.preparedBefore" . -}}
{{- if and $name (eq .site.step "train") -}}
{{- $kubectl := printf "kubectl -n %s" .namespace -}}
{{- $job := lookup "batch/v1" "Job" .namespace $name -}}
{{- $state := "active" -}}
{{- $why := "" -}}
{{- range dig "status" "conditions" list $job -}}
{{- if and (eq .status "True") (has .type (list "Complete" "Failed")) -}}
{{- $state = .type -}}
{{- $why = .message | default "no message" -}}
{{- end -}}
{{- end -}}
{{- if and $job (eq $state "active") -}}
{{- print (printf "site.step: train, but Job %s of this release has not ended, and would be removed; wait for it with `%s wait --for=condition=Complete --timeout=24h job/%s`, follow it with `%s logs -f job/%s`, then repeat the upgrade" $name $kubectl $name $kubectl $name) "\n" -}}
{{- else if and $job (eq $state "Failed") -}}
{{- print (printf "site.step: train, but Job %s of this release failed (%s); `%s logs job/%s` says why; remove it with `%s delete job %s`, then repeat the upgrade with --set site.step=prepare, which goes on where it was" $name $why $kubectl $name $kubectl $name) "\n" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "trainjob.checkNoTraining" -}}
{{- $resolved := .resolved -}}
{{- $name := dig "data" "job" "" (lookup "v1" "ConfigMap" $resolved.namespace $resolved.release) -}}
{{- $version := eq $resolved.apiBefore "trainjob" | ternary "trainer.kubeflow.org/v1alpha1" "kubeflow.org/v1" -}}
{{- $kind := eq $resolved.apiBefore "trainjob" | ternary "TrainJob" "PyTorchJob" -}}
{{- $trained := and $name (not (include "trainjob.preparedBefore" $resolved)) -}}
{{- if and $trained (eq $resolved.site.step "prepare") (.root.Capabilities.APIVersions.Has (printf "%s/%s" $version $kind)) -}}
{{- $job := lookup $version $kind $resolved.namespace $name -}}
{{- $ended := false -}}
{{- range dig "status" "conditions" list $job -}}
{{- if and (eq .status "True") (has .type (list "Succeeded" "Complete" "Failed")) -}}{{- $ended = true -}}{{- end -}}
{{- end -}}
{{- if and $job (not $ended) -}}
{{- print (printf "site.step: prepare, but %s %s of this release has not ended, and would be removed; wait for its end, or uninstall the release, whose volumes stay" $kind $name) "\n" -}}
{{- end -}}
{{- end -}}
{{- end -}}
