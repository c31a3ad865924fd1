{{/* Rules that a table cannot say: those of training/src/trainlab/config/rule.py but for regular expressions of Python's. */}}

{{- define "trainjob.computed" -}}
{{- range $name, $_ := .site.env -}}
{{- if not (regexMatch "^[A-Za-z_][A-Za-z0-9_]*$" $name) -}}
{{- print (printf "site.env: '%s' is not a variable name; use letters, digits and _, no digit first" $name) "\n" -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := .site.podLabels -}}
{{- if regexMatch "^(app.kubernetes.io|helm.sh|trainlab.dev)/" $name -}}
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
{{- $ranks := mul (int $asked.nodes) (int $asked.gpus_per_node) -}}
{{- if and (gt $ranks 1) (not (and (eq (int $asked.gpus_per_node) 1) (eq .site.spread "required"))) -}}
{{- $label := "nvidia.com/gpu.product" -}}
{{- $product := list (printf "site.nodeSelector %s" $label) (index (.site.nodeSelector | default dict) $label | default "") -}}
{{- range list (list "site.gpuResource" .site.gpuResource) $product -}}
{{- if regexMatch "/mig-|\\.shared$|-MIG-|-SHARED$" (last .) -}}
{{- print (printf "%s: %s is a part of a GPU, and the job has %d ranks: two of them on one GPU end in NCCL (Duplicate GPU detected); choose whole GPUs, or set phase.resources.nodes and gpus_per_node to 1, or gpus_per_node to 1 and site.spread to required" (first .) (last .) $ranks) "\n" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A quantity of Kubernetes as a number, of memory in bytes: 2Ki is 2048. */}}
{{- define "trainjob.bytes" -}}
{{- $unit := regexFind "[mkMGTPi]+$" . -}}
{{- $factors := dict "" 1 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 -}}
{{- $factors = merge $factors (dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624) -}}
{{- mulf (trimSuffix $unit .) (get $factors $unit) -}}
{{- end -}}
