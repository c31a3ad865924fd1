{{/* The rules of training/src/trainlab/config/rules_stage.py: which stage follows which, and what each of them takes. */}}

{{- define "trainjob.checkStage" -}}
{{- $phase := .phase -}}
{{- $defaults := (.root.Files.Get "defaults.json" | fromJson).phase -}}
{{- $stage := $phase.stage -}}
{{- $recipe := $phase.recipe -}}
{{- $model := $phase.model.source -}}
{{- $kind := splitList ":" $model | first -}}
{{- $metric := $phase.gate.metric -}}
{{- $rank := int $phase.lora.rank -}}
{{- $order := list "pretrain" "sft" "dpo" "lora" -}}
{{- $recipes := dict "pretrain" "pretrain" "sft" "sft" "dpo" "dpo" "lora" "sft" -}}
{{- $earlier := dict "sft" (list "pretrain") "dpo" (list "pretrain" "sft") "lora" (list "pretrain" "sft" "dpo") -}}
{{- if not $stage.name -}}
{{- if ne (toJson $stage) (toJson $defaults.stage) -}}
{{- fail "phase.stage: has keys but no name; set stage.name, or remove the block" -}}
{{- end -}}
{{- if has $recipe (list "pretrain" "dpo") -}}
{{- fail (printf "phase.recipe: %s without stage.name; set stage.name: %s" $recipe $recipe) -}}
{{- end -}}
{{- if has $kind (list "init" "parent") -}}
{{- fail (printf "phase.model.source: %s in a phase that is no stage; set stage.name, or name a model" $model) -}}
{{- end -}}
{{- if eq $metric "preference_margin" -}}
{{- fail "phase.gate.metric: preference_margin without stage dpo; set another" -}}
{{- end -}}
{{- else -}}
{{- if ne $recipe (get $recipes $stage.name) -}}
{{- fail (printf "phase.recipe: %s in stage %s; set %s" $recipe $stage.name (get $recipes $stage.name)) -}}
{{- end -}}
{{- if ne (gt $rank 0) (eq $stage.name "lora") -}}
{{- fail (printf "phase.lora.rank: %d in stage %s; stage lora needs one, the others train the model itself" $rank $stage.name) -}}
{{- end -}}
{{- if ne (eq $metric "preference_margin") (eq $stage.name "dpo") -}}
{{- fail (printf "phase.gate.metric: %s in stage %s; preference_margin belongs to stage dpo" $metric $stage.name) -}}
{{- end -}}
{{- if $phase.train.cache_frozen_activations -}}
{{- fail (printf "phase.train.cache_frozen_activations: true in stage %s, which trains all layers; set false" $stage.name) -}}
{{- end -}}
{{- if ne $phase.serve.runtime "trainlab" -}}
{{- fail (printf "phase.serve.runtime: %s in stage %s, whose base is a run's model; set trainlab" $phase.serve.runtime $stage.name) -}}
{{- end -}}
{{- $gpus := mul (int $phase.resources.nodes) (int $phase.resources.gpus_per_node) -}}
{{- range $wish := list (list "fsdp" 2) (list "compile" 1) -}}
{{- if and (get $stage (first $wish)) (lt $gpus (last $wish | int64)) -}}
{{- fail (printf "phase.stage.%s: true with %d GPUs, needs %d at least; set false" (first $wish) $gpus (last $wish)) -}}
{{- end -}}
{{- end -}}
{{- if eq $stage.name "pretrain" -}}
{{- if or $stage.parent $stage.parent_run -}}
{{- fail "phase.stage.parent: stage pretrain has none; remove it" -}}
{{- end -}}
{{- if ne $kind "init" -}}
{{- fail (printf "phase.model.source: %s in stage pretrain; set init:llama-SIZE" $model) -}}
{{- end -}}
{{- include "trainjob.checkLessons" . -}}
{{- else -}}
{{- $before := get $earlier $stage.name -}}
{{- if not $stage.parent -}}
{{- fail (printf "phase.stage.parent: missing in stage %s; set %s" $stage.name (join " or " $before)) -}}
{{- end -}}
{{- if not (has $stage.parent $before) -}}
{{- fail (printf "phase.stage.parent: %s does not come before %s; the order is %s" $stage.parent $stage.name (join ", " $order)) -}}
{{- end -}}
{{- if ne $kind "parent" -}}
{{- fail (printf "phase.model.source: %s with stage.parent %s; set parent:llama-SIZE" $model $stage.parent) -}}
{{- end -}}
{{- if $stage.curriculum -}}
{{- fail (printf "phase.stage.curriculum: stage %s does not read it; remove it" $stage.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "trainjob.checkLessons" -}}
{{- $longest := int .phase.model.max_length -}}
{{- $last := 0 -}}
{{- $total := 0.0 -}}
{{- range .phase.stage.curriculum -}}
{{- $length := int .length -}}
{{- if mod $longest $length -}}
{{- fail (printf "phase.stage.curriculum: length %d does not divide model.max_length %d; take one that does" $length $longest) -}}
{{- end -}}
{{- end -}}
{{- range .phase.stage.curriculum -}}
{{- if lt (int .length) $last -}}
{{- fail "phase.stage.curriculum: lengths fall; put the short ones first" -}}
{{- end -}}
{{- $last = int .length -}}
{{- $total = addf $total (float64 .share) -}}
{{- end -}}
{{- if and .phase.stage.curriculum (or (lt $total 0.999999) (gt $total 1.000001)) -}}
{{- fail (printf "phase.stage.curriculum: shares add up to %g; make it 1" $total) -}}
{{- end -}}
{{- end -}}
