{{/* The promotion Job's spec: .resolved, and the .name of Job and manifests. */}}
{{- define "trainjob.promoteSpec" -}}
{{- $resolved := .resolved -}}
backoffLimit: 4
# No activeDeadlineSeconds: it would count while the training waits in a queue. `trainlab promote` counts from its first sign of
# life, and exits 3 when the time is up, which no retry can change.
podFailurePolicy:
  rules:
    # A drained node, or a more important pod: while the training is queued that may happen any number of times.
    - {action: Ignore, onPodConditions: [{type: DisruptionTarget, status: "True"}]}
    - {action: FailJob, onExitCodes: {containerName: promote, operator: In, values: [3]}}
template:
  metadata:
    labels:
      app.kubernetes.io/component: promote
      {{- include "trainjob.stableLabels" $resolved | nindent 6 }}
      {{- with include "trainjob.podLabels" $resolved | trim }}{{ nindent 6 . }}{{ end }}
    {{- with include "trainjob.podAnnotations" $resolved | trim }}{{ nindent 4 . }}{{ end }}
  spec:
    restartPolicy: Never
    serviceAccountName: {{ $resolved.site.serviceAccount | default (include "trainjob.promoter" $resolved) | quote }}
    automountServiceAccountToken: true
    enableServiceLinks: false
    securityContext:
      {{- include "trainjob.podSecurity" $resolved | nindent 6 }}
    {{- with include "trainjob.placement" (dict "resolved" $resolved "gpus" 0 "component" "promote") | trim }}{{ nindent 4 . }}{{ end }}
    containers:
      - name: promote
        {{- include "trainjob.image" $resolved.site | nindent 8 }}
        command: [trainlab, promote]
        args:
          - --run-dir=/runs/{{ $resolved.run }}
          - --manifests=/etc/trainlab
          - --namespace={{ $resolved.namespace }}
          - --owner={{ include "trainjob.servedOwner" $resolved }}
          {{- with int $resolved.phase.serve.hours }}
          - --hours={{ . }}
          {{- end }}
          - --timeout={{ add (int $resolved.phase.resources.timeout_minutes) 10 }}
        env:
          {{- include "trainjob.env" . | nindent 10 }}
        resources:
          {{- include "trainjob.resources" (include "trainjob.smallPod" . | fromJson) | nindent 10 }}
        securityContext:
          {{- include "trainjob.containerSecurity" . | nindent 10 }}
        volumeMounts:
          - {name: manifests, mountPath: /etc/trainlab, readOnly: true}
          {{- include "trainjob.mount" (dict "resolved" $resolved "name" "runs" "path" "/runs" "readOnly" true) | nindent 10 }}
          - {name: tmp, mountPath: /tmp}
    volumes:
      - {name: manifests, configMap: {name: {{ .name }}}}
      {{- include "trainjob.claimVolumes" (dict "resolved" $resolved "names" (list "runs")) | trim | nindent 6 }}
      - {name: tmp, emptyDir: {}}
{{- end -}}

{{- /* Name of the Job and of the ConfigMap with its manifests: a hash of both, as no Job's template can be changed. */}}
{{- define "trainjob.promoteName" -}}
{{- $content := list (include "trainjob.promoteSpec" (dict "resolved" . "name" "")) (include "trainjob.manifests" .) -}}
{{- printf "%s-promote-%s" .run (join "\n" $content | sha256sum | trunc 6) -}}
{{- end -}}

{{- define "trainjob.manifests" -}}
{{- $served := include "trainjob.servedName" . -}}
servingruntime.yaml: |
  {{- include "trainjob.servingRuntime" (dict "resolved" . "name" $served) | nindent 2 }}
configmap.yaml: |
  {{- include "trainjob.servedPhase" (dict "resolved" . "name" $served) | nindent 2 }}
inferenceservice.yaml: |
  {{- include "trainjob.inferenceService" (dict "resolved" . "served" $served) | nindent 2 }}
{{- end -}}

{{- /* Who promotes, unless the site names somebody. */}}
{{- define "trainjob.promoter" -}}{{ .release }}-promote{{- end -}}

{{- /* Who takes the served model down when its time is over, and as whom. */}}
{{- define "trainjob.lease" -}}{{ .release }}-lease{{- end -}}

{{- /* "true" where a model is served whose time will be over, of whichever revision: who takes it down has to outlive an upgrade
without hours, which promotes later if at all. */}}
{{- define "trainjob.leased" -}}
{{- $live := dict -}}
{{- if .root.Capabilities.APIVersions.Has "serving.kserve.io/v1beta1" -}}
{{- $live = lookup "serving.kserve.io/v1beta1" "InferenceService" .resolved.namespace .resolved.release -}}
{{- end -}}
{{- if index (($live.metadata | default dict).annotations | default dict) (printf "%s/served-until" (include "trainjob.labelDomain" .)) -}}true{{- end -}}
{{- end -}}

{{- /* The ConfigMap that owns all that is served, and lives as long as the release serves. */}}
{{- define "trainjob.servedOwner" -}}{{ .release }}-served{{- end -}}
