{{/*
Quotas and limits of the namespace that the pods and claims of a release cannot meet. Jobs are made all the same, and their pods are
not; so it is told before.
*/}}

{{- /* The name is the remedy, as in _cluster.tpl. */}}
{{- define "trainjob: looks at quotas and limits; who installs must be allowed to list resourcequotas and limitranges in the namespace" -}}
{{- $resolved := .resolved -}}
{{- $pods := include "trainjob.askedByPods" $resolved | fromJsonArray -}}
{{- $ranges := (lookup "v1" "LimitRange" $resolved.namespace "").items | default list -}}
{{- $claims := include "trainjob.newClaims" $resolved | fromJsonArray -}}
{{- $defaults := include "trainjob.defaultsOfRanges" $ranges | fromJson -}}
{{- range $range := $ranges -}}
{{- range $limit := $range.spec.limits -}}
{{- if eq $limit.type "PersistentVolumeClaim" -}}
{{- include "trainjob.checkClaimSizes" (dict "range" $range.metadata.name "limit" $limit "claims" $claims) -}}
{{- end -}}
{{- if has $limit.type (list "Container" "Pod") -}}
{{- range $each := $pods -}}
{{- $amount := include "trainjob.bytes" $each.amount | float64 -}}
{{- $most := index ($limit.max | default dict) $each.resource -}}
{{- if and $most (lt (include "trainjob.bytes" (toString $most) | float64) $amount) -}}
{{- print (printf "LimitRange %s: a %s may have %s of %s at most, %s is %s; the API server refuses the pods; raise it, or lower %s" $range.metadata.name $limit.type $most $each.resource $each.key $each.amount $each.key) "\n" -}}
{{- end -}}
{{- $least := index ($limit.min | default dict) $each.resource -}}
{{- if and $least (gt (include "trainjob.bytes" (toString $least) | float64) $amount) -}}
{{- print (printf "LimitRange %s: a %s has to have %s of %s at least, %s is %s; the API server refuses the pods; lower it%s" $range.metadata.name $limit.type $least $each.resource $each.key $each.amount (hasPrefix "phase." $each.key | ternary (printf ", or raise %s" $each.key) "")) "\n" -}}
{{- end -}}
{{- $given := index ($limit.default | default dict) $each.resource -}}
{{- if and $given (eq $each.resource "cpu") (lt (include "trainjob.bytes" (toString $given) | float64) $amount) -}}
{{- print (printf "LimitRange %s: it limits containers to %s of cpu by default, %s is %s; the API server refuses the pods; raise it, or lower %s" $range.metadata.name $given $each.key $each.amount $each.key) "\n" -}}
{{- end -}}
{{- end -}}
{{- /* For containers the API server makes a default of it (k8s.io/kubernetes, apis/core/v1/defaults.go: SetDefaults_LimitRangeItem). */ -}}
{{- if and (eq $limit.type "Pod") (hasKey ($limit.max | default dict) "cpu") (not (hasKey $defaults.limits "cpu")) -}}
{{- print (printf "LimitRange %s: a Pod may have %v of cpu at most, and no LimitRange sets a limit; the API server refuses pods without a CPU limit, and a limit slows all ranks of a job; remove max.cpu from it, or give namespace %s a LimitRange with a default" $range.metadata.name $limit.max.cpu $resolved.namespace) "\n" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $trains := eq $resolved.site.step "train" -}}
{{- $ofClaims := include "trainjob.wantedByClaims" (dict "claims" $claims) | fromJsonArray -}}
{{- range $quota := (lookup "v1" "ResourceQuota" $resolved.namespace "").items -}}
{{- with $counts := include "trainjob.quotaCounts" (dict "spec" $quota.spec "priorityClass" $resolved.site.priorityClass "serving" (and $resolved.site.serving $trains) "tensorboard" $resolved.site.tensorboard.enabled) | fromJsonArray -}}
{{- $nodes := $trains | ternary (int $resolved.phase.resources.nodes) 1 -}}
{{- $wanted := concat (include "trainjob.wantedByPods" (dict "pods" $pods "nodes" $nodes "counts" $counts) | fromJsonArray) $ofClaims -}}
{{- $hard := $quota.spec.hard | default dict -}}
{{- if and (hasKey $hard "limits.cpu") (not (hasKey $defaults.limits "cpu")) -}}
{{- print (printf "ResourceQuota %s counts limits.cpu, and no LimitRange sets one; the API server refuses pods without a CPU limit, and a limit slows all ranks of a job; remove limits.cpu from it, or give namespace %s a LimitRange with a default" $quota.metadata.name $resolved.namespace) "\n" -}}
{{- end -}}
{{- range $entry, $default := dict "limits.ephemeral-storage" "default" "requests.ephemeral-storage" "defaultRequest" "ephemeral-storage" "defaultRequest" -}}
{{- $set := eq $default "default" | ternary $defaults.limits $defaults.requests -}}
{{- if and (hasKey $hard $entry) (not (hasKey $set "ephemeral-storage")) -}}
{{- print (printf "ResourceQuota %s counts %s, and no LimitRange sets one; the API server refuses pods without it; remove %s from it, or give namespace %s a LimitRange with a %s" $quota.metadata.name $entry $entry $resolved.namespace $default) "\n" -}}
{{- end -}}
{{- end -}}
{{- range $each := $wanted -}}
{{- range $entry := $each.entries -}}
{{- if hasKey $hard $entry -}}
{{- /* Of an upgrade, what is in use may be the release's own; what claims are not there yet is not. */ -}}
{{- $used := or $.install (hasKey $each "new") | ternary (index (($quota.status | default dict).used | default dict) $entry | default "0") "0" -}}
{{- $left := subf (include "trainjob.bytes" (toString (index $hard $entry))) (include "trainjob.bytes" (toString $used)) -}}
{{- if lt $left ($each.total | float64) -}}
{{- print (printf "ResourceQuota %s: %s is %v, %v in use, %s" $quota.metadata.name $entry (index $hard $entry) $used $each.says) "\n" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Whose pods a quota of this .spec counts, of `job`, `server`, `promotion` and `tensorboard`. All request resources; those of the job have a deadline
of their own, which makes them terminating; job and server have the .priorityClass. Without one they get the cluster's default, if there
is one, which a user may not look up. */}}
{{- define "trainjob.quotaCounts" -}}
{{- $scopes := (.spec.scopeSelector | default dict).matchExpressions | default list -}}
{{- range .spec.scopes -}}{{- $scopes = append $scopes (dict "scopeName" . "operator" "Exists") -}}{{- end -}}
{{- $found := list -}}
{{- $made := .serving | ternary (list "job" "server" "promotion") (list "job") -}}
{{- if .tensorboard -}}{{- $made = append $made "tensorboard" -}}{{- end -}}
{{- range $pods := $made -}}
{{- $class := has $pods (list "promotion" "tensorboard") | ternary "" $.priorityClass -}}
{{- $counts := true -}}
{{- range $scopes -}}
{{- if eq .scopeName "PriorityClass" -}}
{{- $named := or (eq .operator "Exists") (and (eq .operator "In") (has $class .values)) (and (eq .operator "NotIn") (not (has $class .values))) -}}
{{- if not (and $class $named) -}}{{- $counts = false -}}{{- end -}}
{{- else if eq .scopeName (eq $pods "job" | ternary "NotTerminating" "Terminating") -}}{{- $counts = false -}}
{{- else if not (has .scopeName (list "NotBestEffort" "NotTerminating" "Terminating")) -}}{{- $counts = false -}}
{{- end -}}
{{- end -}}
{{- if $counts -}}{{- $found = append $found $pods -}}{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- /* Resources that LimitRanges give to containers without, {"limits": {RESOURCE: true}, "requests": {...}}. */}}
{{- define "trainjob.defaultsOfRanges" -}}
{{- $found := dict "limits" dict "requests" dict -}}
{{- range . -}}
{{- range .spec.limits -}}
{{- range $resource, $_ := .default -}}
{{- $_ := set $found.limits $resource true -}}
{{- $_ := set $found.requests $resource true -}}
{{- end -}}
{{- range $resource, $_ := .defaultRequest -}}{{- $_ := set $found.requests $resource true -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- /* The bounds of a LimitRange for claims: its name as .range, the .limit, and the .claims. */}}
{{- define "trainjob.checkClaimSizes" -}}
{{- $most := (.limit.max | default dict).storage -}}
{{- $least := (.limit.min | default dict).storage -}}
{{- range .claims -}}
{{- $size := include "trainjob.bytes" .size | float64 -}}
{{- $says := printf "%s requests %s; the API server refuses the claim" .claim .size -}}
{{- if and $most (lt (include "trainjob.bytes" (toString $most) | float64) $size) -}}
{{- print (printf "LimitRange %s: a PersistentVolumeClaim may have %v of storage at most, %s; raise it, or set %s.size" $.range $most $says .key) "\n" -}}
{{- else if and $least (gt (include "trainjob.bytes" (toString $least) | float64) $size) -}}
{{- print (printf "LimitRange %s: a PersistentVolumeClaim has to have %v of storage at least, %s; lower it, or set %s.size" $.range $least $says .key) "\n" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* What a pod requests: of the job, of the server, and of those whose amounts the chart itself says. */}}
{{- define "trainjob.askedByPods" -}}
{{- $blocks := dict "phase.resources" (dict "cpu" "cpu" "memory" "memory" .site.gpuResource "gpus_per_node") -}}
{{- if eq .site.step "prepare" -}}
{{- $blocks = dict "site.prepare" (dict "cpu" "cpu" "memory" "memory") -}}
{{- else if .site.serving -}}
{{- $_ := set $blocks "phase.serve" (dict "cpu" "cpu" "memory" "memory" .site.gpuResource "gpus") -}}
{{- end -}}
{{- $pods := list -}}
{{- range $block, $keys := $blocks -}}
{{- $values := hasPrefix "phase." $block | ternary (index $.phase (trimPrefix "phase." $block)) $.site.prepare -}}
{{- range $resource, $key := $keys -}}
{{- $amount := index $values $key -}}
{{- if and $amount (ne (toString $amount) "0") -}}
{{- $pods = append $pods (dict "resource" $resource "amount" (toString $amount) "key" (printf "%s.%s" $block $key)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $resource, $amount := include "trainjob.smallPod" . | fromJson -}}
{{- $pods = append $pods (dict "resource" $resource "amount" $amount "key" "what promotion and test request") -}}
{{- end -}}
{{- $pods | toJson -}}
{{- end -}}

{{- /* What the pods that only ask and write manifests request, and TensorBoard (measured with 5 runs: 106 MiB). */}}
{{- define "trainjob.smallPod" -}}
{{- dict "cpu" "20m" "memory" "256Mi" | toJson -}}
{{- end -}}

{{- /* What a quota has to have left for those pods that it .counts: for the job, and for the server alone, as by then the job has ended.
`pods` counts those that have not ended, `count/pods` all that are there. */}}
{{- define "trainjob.wantedByPods" -}}
{{- $wanted := list -}}
{{- range $each := .pods -}}
{{- $trains := hasPrefix "phase.resources." $each.key -}}
{{- $whose := or $trains (hasPrefix "site.prepare." $each.key) | ternary "job" (hasPrefix "phase." $each.key | ternary "server" "") -}}
{{- if has $whose $.counts -}}
{{- $entries := list (printf "requests.%s" $each.resource) $each.resource -}}
{{- if eq $each.resource "memory" -}}{{- $entries = append $entries "limits.memory" -}}{{- end -}}
{{- $amount := include "trainjob.bytes" $each.amount | float64 -}}
{{- $says := printf "the server requests %s; its pod could not be created; raise it, free what is in use, or lower %s" $each.amount $each.key -}}
{{- if eq $whose "job" -}}
{{- $amount = mulf $amount $.nodes -}}
{{- $says = printf "the job requests %d times %s; pods of the job could not be created; raise it, free what is in use, or lower %s%s" (int $.nodes) $each.amount $each.key ($trains | ternary " or phase.resources.nodes" "") -}}
{{- end -}}
{{- $wanted = append $wanted (dict "entries" $entries "total" $amount "says" $says) -}}
{{- end -}}
{{- end -}}
{{- range $entry, $how := dict "pods" "at once" "count/pods" "that stay" -}}
{{- $total := 0 -}}
{{- $parts := list -}}
{{- $could := "the server could not be created; raise it, or free what is in use" -}}
{{- if has "job" $.counts -}}
{{- $total = $.nodes -}}
{{- $parts = append $parts (printf "%d of the job" $.nodes) -}}
{{- $could = "pods of the job could not be created; raise it, free what is in use, or lower phase.resources.nodes" -}}
{{- end -}}
{{- if has "promotion" $.counts -}}
{{- $total = add $total 1 -}}
{{- $parts = append $parts "1 of the promotion" -}}
{{- end -}}
{{- if has "tensorboard" $.counts -}}
{{- $total = add $total 1 -}}
{{- $parts = append $parts "1 of TensorBoard" -}}
{{- end -}}
{{- /* The server comes when the job has ended, whose pods are as many at least. */ -}}
{{- if and (has "server" $.counts) (or (eq $entry "count/pods") (not (has "job" $.counts))) -}}
{{- $total = add $total 1 -}}
{{- $parts = append $parts "1 of the server" -}}
{{- end -}}
{{- $says := printf "the release makes %d %s: %s; %s" (int $total) $how (join ", " $parts) $could -}}
{{- $wanted = append $wanted (dict "entries" (list $entry) "total" $total "says" $says) -}}
{{- end -}}
{{- $wanted | toJson -}}
{{- end -}}

{{- /* The claims that are not there yet and that the release makes: .key, .claim, .size and .class. */}}
{{- define "trainjob.newClaims" -}}
{{- $new := list -}}
{{- range $volume := .volumes -}}
{{- $asked := index $.site.storage $volume -}}
{{- $claim := index $.claims $volume -}}
{{- if not (or $asked.existing (lookup "v1" "PersistentVolumeClaim" $.namespace $claim)) -}}
{{- $size := include "trainjob.claimSize" (dict "resolved" $ "name" $volume) -}}
{{- $new = append $new (dict "key" (printf "site.storage.%s" $volume) "claim" $claim "size" $size "class" $asked.storageClass) -}}
{{- end -}}
{{- end -}}
{{- $new | toJson -}}
{{- end -}}

{{- /* What a quota has to have left for the .claims that are not there yet. */}}
{{- define "trainjob.wantedByClaims" -}}
{{- $sizes := list -}}
{{- $keys := list -}}
{{- $total := 0.0 -}}
{{- $wanted := list -}}
{{- range .claims -}}
{{- $sizes = append $sizes .size -}}
{{- $keys = append $keys .key -}}
{{- $total = addf $total (include "trainjob.bytes" .size) -}}
{{- if .class -}}
{{- $says := printf "claim %s requests %s; it could not be made; raise it, free what is in use, or set %s.size" .claim .size .key -}}
{{- $wanted = append $wanted (dict "entries" (list (printf "%s.storageclass.storage.k8s.io/requests.storage" .class)) "total" (include "trainjob.bytes" .size | float64) "says" $says "new" true) -}}
{{- end -}}
{{- end -}}
{{- if $sizes -}}
{{- $says := printf "the claims request %s; they could not be made; raise it, free what is in use, or set %s.size" (join " and " $sizes) (join ".size or " $keys) -}}
{{- $wanted = append $wanted (dict "entries" (list "requests.storage") "total" $total "says" $says "new" true) -}}
{{- $says = printf "the release makes %d; they could not be made; raise it, delete those that nobody needs, or name one that exists with %s.existing" (len $sizes) (join ".existing or " $keys) -}}
{{- $wanted = append $wanted (dict "entries" (list "persistentvolumeclaims" "count/persistentvolumeclaims") "total" (len $sizes) "says" $says "new" true) -}}
{{- end -}}
{{- $wanted | toJson -}}
{{- end -}}
