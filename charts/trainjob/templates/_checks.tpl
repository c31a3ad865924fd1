{{/*
Everything that is refused before an object is made. Types and bounds of single keys are in values.schema.json, which Helm
checks earlier; sentences here are those of training/src/trainlab/config/rules.py (tests/charts compares them with the CLI's).
*/}}

{{- define "trainjob.checkKeys" -}}
{{- if not .Values.phase -}}
{{- fail "phase: missing; give a phase with -f values/<phase>.yaml" -}}
{{- end -}}
{{- $given := omit .Values "global" -}}
{{- include "trainjob.walk" (dict "given" $given "known" (.Files.Get "keys.json" | fromJson) "at" "") -}}
{{- $required := dict "phase" (list "name" "recipe" "title") "phase.model" (list "source") "phase.data" (list "source") -}}
{{- range $at, $keys := $required -}}
{{- $block := $.Values -}}
{{- range splitList "." $at -}}
{{- $block = index $block . | default dict -}}
{{- end -}}
{{- range $keys -}}
{{- if not (index $block .) -}}{{- fail (printf "%s.%s: missing; add it" $at .) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Refuse keys that keys.json does not have; `true` in it stands for a value of any shape. */}}
{{- define "trainjob.walk" -}}
{{- range $key, $value := .given -}}
{{- $path := printf "%s%s" $.at $key -}}
{{- if not (hasKey $.known $key) -}}
{{- fail (printf "%s: unknown key; known keys: %s" $path (keys $.known | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $known := index $.known $key -}}
{{- if and (kindIs "map" $known) (kindIs "map" $value) -}}
{{- include "trainjob.walk" (dict "given" $value "known" $known "at" (printf "%s." $path)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "trainjob.checkRules" -}}
{{- $phase := .phase -}}
{{- $site := .root.Values.site -}}
{{- $release := .root.Release.Name -}}
{{- $gpus := int $phase.resources.gpus_per_node -}}
{{- $processes := int $phase.resources.processes_per_node -}}
{{- $nodes := int $phase.resources.nodes -}}
{{- if or (gt (len $release) 30) (not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $release)) -}}
{{- fail (printf "release name: %s is no name for pods; take at most 30 small letters, digits and -, a letter first" $release) -}}
{{- end -}}
{{- include "trainjob.checkText" . -}}
{{- include "trainjob.checkHub" . -}}
{{- include "trainjob.checkVision" . -}}
{{- include "trainjob.checkStage" . -}}
{{- if and $phase.evaluate.tasks (eq $phase.recipe "resnet") -}}
{{- fail (printf "phase.evaluate.tasks: %s with recipe resnet, which tunes no language model; set []" (join ", " $phase.evaluate.tasks)) -}}
{{- end -}}
{{- range $i, $task := $phase.evaluate.tasks -}}
{{- if has $task (slice $phase.evaluate.tasks 0 $i) -}}
{{- fail (printf "phase.evaluate.tasks: %s stands there twice; name it once" $task) -}}
{{- end -}}
{{- end -}}
{{- if and $gpus (ne $processes $gpus) -}}
{{- fail (printf "phase.resources.processes_per_node: %d processes for %d GPUs per pod; set it to the same number as resources.gpus_per_node" $processes $gpus) -}}
{{- end -}}
{{- if and $phase.train.memory_snapshot (not $gpus) -}}
{{- fail "phase.train.memory_snapshot: true with resources.gpus_per_node 0; only GPU allocations are recorded: set false" -}}
{{- end -}}
{{- if and $phase.unfreeze.tie_word_embeddings (not $phase.unfreeze.lm_head) -}}
{{- fail "phase.unfreeze.tie_word_embeddings: true needs unfreeze.lm_head: true; set one of the two differently" -}}
{{- end -}}
{{- if and $phase.train.cache_frozen_activations $phase.unfreeze.tie_word_embeddings -}}
{{- fail "phase.train.cache_frozen_activations: true needs a frozen trunk; set it, or unfreeze.tie_word_embeddings, to false" -}}
{{- end -}}
{{- if and $phase.train.cache_frozen_activations (int $phase.lora.rank) -}}
{{- fail (printf "phase.lora.rank: %d with train.cache_frozen_activations true; adapters lie in every layer, so there is no frozen trunk: set cache_frozen_activations to false" (int $phase.lora.rank)) -}}
{{- end -}}
{{- if and $phase.train.cache_frozen_activations $phase.train.packing -}}
{{- fail "phase.train.packing: true with train.cache_frozen_activations true; the cache knows single rows: set one false" -}}
{{- end -}}
{{- if or (has "lm_head" $phase.lora.target_modules) (has "embed_tokens" $phase.lora.target_modules) -}}
{{- fail "phase.lora.target_modules: names lm_head or embed_tokens; vLLM serves no such adapter: take them out" -}}
{{- end -}}
{{- if and (eq $phase.serve.runtime "vllm") (eq (int $phase.serve.gpus) 0) -}}
{{- fail "phase.serve.gpus: 0 with serve.runtime vllm; give it at least 1 or set runtime to trainlab" -}}
{{- end -}}
{{- if and $phase.evaluate.generate_rows $phase.data.heldout_rows -}}
{{- if gt (int $phase.evaluate.generate_rows) (int $phase.data.heldout_rows) -}}
{{- fail (printf "phase.evaluate.generate_rows: %d is more than data.heldout_rows %d; lower it" (int $phase.evaluate.generate_rows) (int $phase.data.heldout_rows)) -}}
{{- end -}}
{{- end -}}
{{- if not (regexMatch "^[a-z0-9.-]+/[A-Za-z0-9._-]+$" $site.gpuResource) -}}
{{- fail (printf "site.gpuResource: '%s' is no extended resource name; use vendor/resource, e.g. nvidia.com/gpu" $site.gpuResource) -}}
{{- end -}}
{{- range (include "trainjob.volumes" .root | fromJson).names -}}
{{- $subPath := (index $site.storage .).subPath -}}
{{- $parts := splitList "/" $subPath -}}
{{- if and $subPath (or (not (regexMatch "^[A-Za-z0-9._/-]+$" $subPath)) (has "" $parts) (has "." $parts) (has ".." $parts)) -}}
{{- fail (printf "site.storage.%s.subPath: '%s' is no folder inside a claim; write names of letters, digits, ., _ and - with / between them, none of them . or .., e.g. team/models" . $subPath) -}}
{{- end -}}
{{- if and (gt $nodes 1) (eq (index $site.storage .).accessMode "ReadWriteOnce") -}}
{{- fail (printf "site.storage.%s.accessMode: ReadWriteOnce with phase.resources.nodes %d: pods on several nodes cannot mount it; set ReadWriteMany (and a storageClass that offers it) or nodes 1" . $nodes) -}}
{{- end -}}
{{- end -}}
{{- if and (eq $phase.serve.runtime "vllm") (not $site.images.vllm) -}}
{{- fail "site.images.vllm: empty with phase.serve.runtime vllm; name vLLM's image" -}}
{{- end -}}
{{- end -}}
