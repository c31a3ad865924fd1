{{/*
Everything that is refused before an object is made. Types and bounds of single keys are in values.schema.json, which Helm
checks earlier; what else there is comes from keys.json and rules.json, so that the sentences are those of `trainlab check`.
Each check prints a line for each refusal, which begins with the key; `trainjob.refuse` makes one failure of all of them.
*/}}

{{- define "trainjob.refuse" -}}
{{- with trim . -}}{{- fail (splitList "\n" . | uniq | join "\n") -}}{{- end -}}
{{- end -}}

{{- /* keys.json with all keys of each recipe: there those that all recipes have stand once, in `all`, as in other tables by recipe. */}}
{{- define "trainjob.keys" -}}
{{- $keys := .Files.Get "keys.json" | fromJson -}}
{{- $phase := dict -}}
{{- range $recipe, $own := omit $keys.phase "all" -}}
{{- $_ := set $phase $recipe (mergeOverwrite (deepCopy $keys.phase.all) $own) -}}
{{- end -}}
{{- set $keys "phase" $phase | toJson -}}
{{- end -}}

{{- define "trainjob.checkKeys" -}}
{{- $keys := include "trainjob.keys" . | fromJson -}}
{{- $recipe := .Values.phase.recipe | default "" -}}
{{- if not $recipe -}}{{- fail "phase.recipe: missing; add it" -}}{{- end -}}
{{- if not (hasKey $keys.phase $recipe) -}}
{{- fail (printf "phase.recipe is '%s': must be one of %s; set one of these" $recipe (keys $keys.phase | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $known := dict "phase" (index $keys.phase $recipe) "preset" $keys.preset "site" $keys.site -}}
{{- include "trainjob.walk" (dict "given" (omit .Values "global") "known" $known "at" "" "keys" $keys "recipe" $recipe) -}}
{{- $required := (.Files.Get "rules.json" | fromJson).required -}}
{{- range $at, $names := mergeOverwrite $required.all (index $required $recipe) -}}
{{- $block := (include "trainjob.value" (dict "values" $.Values "key" $at) | fromJson).value -}}
{{- range kindIs "map" $block | ternary $names list -}}
{{- if not (index $block .) -}}{{- print (printf "%s.%s: missing; add it" $at .) "\n" -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Refuse keys that keys.json does not have for this recipe; `true` in it stands for a value of any shape. */}}
{{- define "trainjob.walk" -}}
{{- range $key, $value := .given -}}
{{- $path := printf "%s%s" $.at $key -}}
{{- if kindIs "invalid" $value -}}{{- /* null takes the default */ -}}
{{- else if not (hasKey $.known $key) -}}
{{- $others := list -}}
{{- range $recipe, $keys := $.keys.phase -}}
{{- if and (not (contains "." $key)) (include "trainjob.value" (dict "values" (dict "phase" $keys) "key" $path) | fromJson).value -}}
{{- $others = append $others $recipe -}}
{{- end -}}
{{- end -}}
{{- if $others -}}
{{- print (printf "%s: recipe %s does not read it, only %s; remove it" $path $.recipe (join ", " $others)) "\n" -}}
{{- else -}}
{{- print (printf "%s: unknown key; known keys: %s" $path (keys $.known | sortAlpha | join ", ")) "\n" -}}
{{- end -}}
{{- $_ := unset $.given $key -}}{{- /* no rule judges it */ -}}
{{- else if and (kindIs "map" (index $.known $key)) (kindIs "map" $value) -}}
{{- include "trainjob.walk" (dict "given" $value "known" (index $.known $key) "at" (printf "%s." $path) "keys" $.keys "recipe" $.recipe) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "trainjob.checkRules" -}}
{{- $phase := .phase -}}
{{- $release := .root.Release.Name -}}
{{- if or (gt (len $release) 30) (not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $release)) -}}
{{- print (printf "release name: %s is no name for pods; take at most 30 small letters, digits and -, a letter first" $release) "\n" -}}
{{- end -}}
{{- /* KServe's own Ingress names a host so, and KServe checks that it is one (0.15, ingress/domain.go and kube_ingress_reconciler.go). */ -}}
{{- $host := printf "%s-predictor-%s" $release .root.Release.Namespace -}}
{{- if and .root.Values.site.serving (gt (len $host) 63) -}}
{{- print (printf "release name: %s with namespace %s makes %s of %d characters, and KServe's names of hosts hold 63; shorten one of the two, or set site.serving to false" $release .root.Release.Namespace $host (len $host)) "\n" -}}
{{- end -}}
{{- $tables := .root.Files.Get "rules.json" | fromJson -}}
{{- $values := dict "phase" $phase "site" .root.Values.site -}}
{{- range $key, $form := index $tables.forms $phase.recipe -}}
{{- $value := (include "trainjob.value" (dict "values" $values "key" $key) | fromJson).value -}}
{{- if not (or (kindIs "invalid" $value) (regexMatch (first $form) $value)) -}}
{{- print (printf "%s is '%s': %s" $key $value (last $form)) "\n" -}}
{{- end -}}
{{- end -}}
{{- range $tables.rules -}}
{{- include "trainjob.rule" (dict "rule" . "values" $values) -}}
{{- end -}}
{{- include "trainjob.computed" (set $values "patterns" $tables.patterns) -}}
{{- if not .root.Values.site.images.trainer -}}{{- print (include "trainjob.noImage" .) "\n" -}}{{- end -}}
{{- end -}}

{{- /* A rule of rules.json, and whether these values break it; training/src/trainlab/config/rule.py does the same and names the tests. */}}
{{- define "trainjob.rule" -}}
{{- $values := .values -}}
{{- $broken := true -}}
{{- range .rule.when -}}
{{- if $broken -}}
{{- $broken = eq (include "trainjob.holds" (dict "condition" . "values" $values)) "true" -}}
{{- end -}}
{{- end -}}
{{- if $broken -}}
{{- $says := .rule.says -}}
{{- range regexFindAll "\\{[a-zA-Z_.]+\\}" $says -1 -}}
{{- $value := (include "trainjob.value" (dict "values" $values "key" (trimAll "{}" .)) | fromJson).value -}}
{{- $shown := kindIs "string" $value | ternary $value (toJson $value) -}}
{{- if regexMatch "(?s)^.{81}" $shown -}}{{- $shown = printf "%s..." (regexFind "(?s)^.{77}" $shown) -}}{{- end -}}
{{- $says = replace . $shown $says -}}
{{- end -}}
{{- print (printf "%s: %s" .rule.key $says) "\n" -}}
{{- end -}}
{{- end -}}

{{- define "trainjob.holds" -}}
{{- $test := index .condition 1 -}}
{{- $operand := index .condition 2 -}}
{{- $value := (include "trainjob.value" (dict "values" .values "key" (first .condition)) | fromJson).value -}}
{{- if eq $test "unset" -}}{{- not $value -}}
{{- else if kindIs "invalid" $value -}}
{{- else if eq $test "set" -}}{{- not (not $value) -}}
{{- else if has $test (list "is" "is not") -}}
{{- $same := kindIs "float64" $operand | ternary (eq (float64 $value) (float64 $operand)) (eq (toString $value) (toString $operand)) -}}
{{- eq $same (eq $test "is") -}}
{{- else if eq $test "in" -}}{{- has $value $operand -}}
{{- else if eq $test "starts" -}}{{- hasPrefix $operand $value -}}
{{- else if eq $test "starts not" -}}{{- not (hasPrefix $operand $value) -}}
{{- else if eq $test "holds" -}}
{{- $any := false -}}
{{- range $operand -}}{{- if has . $value -}}{{- $any = true -}}{{- end -}}{{- end -}}
{{- $any -}}
{{- else if eq $test "has not form" -}}{{- not (regexMatch $operand $value) -}}
{{- else -}}
{{- $other := (include "trainjob.value" (dict "values" .values "key" $operand) | fromJson).value -}}
{{- if kindIs "invalid" $other -}}
{{- else if eq $test "differs" -}}{{- ne (float64 $value) (float64 $other) -}}
{{- else if eq $test "exceeds" -}}{{- gt (float64 $value) (float64 $other) -}}
{{- else -}}{{- fail (printf "%s: no test of a rule" $test) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* {"value": what a dotted key holds}; null where it or a section above it is absent. */}}
{{- define "trainjob.value" -}}
{{- $found := .values -}}
{{- range splitList "." .key -}}
{{- $found = index (kindIs "map" $found | ternary $found dict) . -}}
{{- end -}}
{{- dict "value" $found | toJson -}}
{{- end -}}

{{- /* Rules that a table cannot say: those of training/src/trainlab/config/rule.py but for regular expressions of Python's. */}}
{{- define "trainjob.computed" -}}
{{- range $name, $_ := .site.env -}}
{{- if not (regexMatch "^[A-Za-z_][A-Za-z0-9_]*$" $name) -}}
{{- print (printf "site.env: '%s' is not a variable name; use letters, digits and _, no digit first" $name) "\n" -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := .site.podLabels -}}
{{- if regexMatch $.patterns.own_label $name -}}
{{- print (printf "site.podLabels: %s is set by the chart; remove it" $name) "\n" -}}
{{- end -}}
{{- end -}}
{{- $tasks := .phase.evaluate.tasks | default list -}}
{{- range $i, $task := $tasks -}}
{{- if has $task (slice $tasks 0 $i) -}}
{{- print (printf "phase.evaluate.tasks: %s is listed twice; name it once" $task) "\n" -}}
{{- end -}}
{{- end -}}
{{- $asked := .phase.resources -}}
{{- if gt (include "trainjob.bytes" $asked.shared_memory | float64) (include "trainjob.bytes" $asked.memory | float64) -}}
{{- print (printf "phase.resources.shared_memory: %s is more than resources.memory %s, of which it is a part; lower it" $asked.shared_memory $asked.memory) "\n" -}}
{{- end -}}
{{- $steps := (.phase.stage | default dict).curriculum | default list -}}
{{- $longest := int .phase.model.max_length -}}
{{- $wrong := "" -}}
{{- range $steps -}}
{{- if and (not $wrong) (mod $longest (int .length)) -}}
{{- $wrong = (printf "phase.stage.curriculum: length %d does not divide model.max_length %d; take one that does" (int .length) $longest) -}}
{{- end -}}
{{- end -}}
{{- $last := 0 -}}
{{- $total := 0.0 -}}
{{- range $steps -}}
{{- if and (not $wrong) (lt (int .length) $last) -}}
{{- $wrong = "phase.stage.curriculum: lengths decrease; put the short ones first" -}}
{{- end -}}
{{- $last = int .length -}}
{{- $total = addf $total (float64 .share) -}}
{{- end -}}
{{- if and $steps (not $wrong) (or (lt $total 0.999999) (gt $total 1.000001)) -}}
{{- $wrong = printf "phase.stage.curriculum: shares add up to %g; make it 1" $total -}}
{{- end -}}
{{- with $wrong -}}{{- print . "\n" -}}{{- end -}}
{{- $source := .phase.model.source -}}
{{- if regexMatch "^(init|parent):llama-hidden" $source -}}
{{- $size := dict -}}
{{- range regexFindAll "[a-z]+[0-9]+" $source -1 -}}
{{- $_ := set $size (regexFind "[a-z]+" .) (int (regexFind "[0-9]+" .)) -}}
{{- end -}}
{{- if mod $size.hidden (mul 2 $size.heads) -}}
{{- print (printf "phase.model.source: hidden %d is not a multiple of 2 x heads %d; change one of the two" $size.hidden $size.heads) "\n" -}}
{{- else if mod $size.heads $size.kv -}}
{{- print (printf "phase.model.source: heads %d is not a multiple of kv %d; change one of the two" $size.heads $size.kv) "\n" -}}
{{- else if gt $longest $size.context -}}
{{- print (printf "phase.model.max_length: %d is more than the context %d of phase.model.source; lower it" $longest $size.context) "\n" -}}
{{- else if eq .phase.serve.runtime "vllm" -}}
{{- $gpus := int .phase.serve.gpus -}}
{{- $tokens := int .phase.serve.max_tokens -}}
{{- if and $gpus (or (mod $size.heads $gpus) (and (mod $size.kv $gpus) (mod $gpus $size.kv))) -}}
{{- print (printf "phase.serve.gpus: %d with runtime vllm, which divides the %d heads and %d of keys and values of phase.model.source evenly; take a divisor of the heads that divides the others, or is a multiple of them" $gpus $size.heads $size.kv) "\n" -}}
{{- else if gt (add $longest $tokens) (int64 $size.context) -}}
{{- print (printf "phase.serve.max_tokens: %d and model.max_length %d are more than the context %d of phase.model.source, with which vllm does not start; lower one of them" $tokens $longest $size.context) "\n" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $ranks := mul (int $asked.nodes) (int $asked.gpus_per_node) -}}
{{- if and (gt $ranks 1) (not (and (eq (int $asked.gpus_per_node) 1) (eq .site.spread "required"))) -}}
{{- $label := "nvidia.com/gpu.product" -}}
{{- $product := list (printf "site.nodeSelector %s" $label) (index (.site.nodeSelector | default dict) $label | default "") -}}
{{- range list (list "site.gpuResource" .site.gpuResource) $product -}}
{{- if regexMatch $.patterns.part_of_gpu (last .) -}}
{{- print (printf "%s: %s is a part of a GPU, and the job has %d ranks: two of them on one GPU end in NCCL (Duplicate GPU detected); choose whole GPUs, or set phase.resources.nodes and gpus_per_node to 1, or gpus_per_node to 1 and site.spread to required" (first .) (last .) $ranks) "\n" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A quantity of Kubernetes as a number, of memory in bytes: 2Ki is 2048. */}}
{{- define "trainjob.bytes" -}}
{{- $unit := regexFind "[mkMGTPEi]+$" . -}}
{{- $factors := dict "" 1 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 -}}
{{- $factors = merge $factors (dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976) -}}
{{- mulf (trimSuffix $unit .) (get $factors $unit) -}}
{{- end -}}
