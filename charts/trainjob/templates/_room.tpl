{{/*
Quotas and limits of the namespace that the pods of a release cannot meet. Jobs are made all the same, and their pods are not; so
it is told before. plugins/plugin_utils/checks/limits.py says the same in the same words.
*/}}

{{- /* The name is the remedy, as in _cluster.tpl. */}}
{{- define "trainjob: looks at quotas and limits; who installs must be allowed to list resourcequotas and limitranges in the namespace" -}}
{{- $resolved := .resolved -}}
{{- $asked := include "trainjob.asked" $resolved | fromJson -}}
{{- $ranges := (lookup "v1" "LimitRange" $resolved.namespace "").items | default list -}}
{{- $cpuLimit := false -}}
{{- range $range := $ranges -}}
{{- range $limit := $range.spec.limits -}}
{{- if hasKey ($limit.default | default dict) "cpu" -}}{{- $cpuLimit = true -}}{{- end -}}
{{- if has $limit.type (list "Container" "Pod") -}}
{{- range $each := $asked.pods -}}
{{- $most := index ($limit.max | default dict) $each.resource -}}
{{- if and $most (lt (include "trainjob.bytes" (toString $most) | float64) (include "trainjob.bytes" $each.amount | float64)) -}}
{{- fail (printf "LimitRange %s: a %s may have %s of %s at most, %s is %s; the API server refuses the pods; raise it, or lower %s" $range.metadata.name $limit.type $most $each.resource $each.key $each.amount $each.key) -}}
{{- end -}}
{{- $given := index ($limit.default | default dict) $each.resource -}}
{{- if and $given (eq $each.resource "cpu") (lt (include "trainjob.bytes" (toString $given) | float64) (include "trainjob.bytes" $each.amount | float64)) -}}
{{- fail (printf "LimitRange %s: it limits containers to %s of cpu by default, %s is %s; the API server refuses the pods; raise it, or lower %s" $range.metadata.name $given $each.key $each.amount $each.key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $quota := (lookup "v1" "ResourceQuota" $resolved.namespace "").items -}}
{{- /* One with scopes counts some pods only. */ -}}
{{- if not (or $quota.spec.scopes $quota.spec.scopeSelector) -}}
{{- $hard := $quota.spec.hard | default dict -}}
{{- if and (hasKey $hard "limits.cpu") (not $cpuLimit) -}}
{{- fail (printf "ResourceQuota %s counts limits.cpu, and no LimitRange sets one; the API server refuses pods without a CPU limit, and a limit slows all ranks of a job; remove limits.cpu from it, or give namespace %s a LimitRange with a default" $quota.metadata.name $resolved.namespace) -}}
{{- end -}}
{{- range $each := $asked.job -}}
{{- $entries := list (printf "requests.%s" $each.resource) $each.resource -}}
{{- if eq $each.resource "memory" -}}{{- $entries = append $entries "limits.memory" -}}{{- end -}}
{{- range $entry := $entries -}}
{{- if hasKey $hard $entry -}}
{{- /* Of an upgrade, what is in use may be the release's own. */ -}}
{{- $used := $.install | ternary (index (($quota.status | default dict).used | default dict) $entry | default "0") "0" -}}
{{- $left := subf (include "trainjob.bytes" (toString (index $hard $entry))) (include "trainjob.bytes" (toString $used)) -}}
{{- if lt $left (mulf (include "trainjob.bytes" $each.amount) $asked.nodes) -}}
{{- fail (printf "ResourceQuota %s: %s is %v, %v in use, the job requests %d times %s; pods of the job could not be created; raise it, free what is in use, or lower %s or phase.resources.nodes" $quota.metadata.name $entry (index $hard $entry) $used (int $asked.nodes) $each.amount $each.key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* What a pod of the job, and of the server, requests: .job, .pods (both); .nodes is the number of the job's. */}}
{{- define "trainjob.asked" -}}
{{- $blocks := dict "phase.resources" (dict "cpu" "cpu" "memory" "memory" .site.gpuResource "gpus_per_node") -}}
{{- if .site.serving -}}
{{- $_ := set $blocks "phase.serve" (dict "cpu" "cpu" "memory" "memory" .site.gpuResource "gpus") -}}
{{- end -}}
{{- $job := list -}}
{{- $pods := list -}}
{{- range $block, $keys := $blocks -}}
{{- $values := index $.phase (trimPrefix "phase." $block) -}}
{{- range $resource, $key := $keys -}}
{{- $amount := index $values $key -}}
{{- if and $amount (ne (toString $amount) "0") -}}
{{- $each := dict "resource" $resource "amount" (toString $amount) "key" (printf "%s.%s" $block $key) -}}
{{- $pods = append $pods $each -}}
{{- if eq $block "phase.resources" -}}{{- $job = append $job $each -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- dict "job" $job "pods" $pods "nodes" .phase.resources.nodes | toJson -}}
{{- end -}}
