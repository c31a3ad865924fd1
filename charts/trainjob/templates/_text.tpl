{{/* The rules of training/src/trainlab/config/rules_text.py: what recipe cpt takes, and what only it takes. */}}

{{- define "trainjob.checkText" -}}
{{- $phase := .phase -}}
{{- $defaults := (.root.Files.Get "defaults.json" | fromJson).phase -}}
{{- $recipe := $phase.recipe -}}
{{- $data := $phase.data.source -}}
{{- $kind := splitList ":" $data | first -}}
{{- $metric := $phase.gate.metric -}}
{{- if not (has $recipe (list "cpt" "pretrain")) -}}
{{- if ne (toJson $phase.text) (toJson $defaults.text) -}}
{{- fail (printf "phase.text: recipe %s does not read this block; remove it" $recipe) -}}
{{- end -}}
{{- if or (eq $kind "pydoc") (and (eq $kind "hf") (ne $recipe "sft")) -}}
{{- fail (printf "phase.data.source: %s holds running text, which recipe %s does not read; use recipe cpt" $data $recipe) -}}
{{- end -}}
{{- if eq $metric "perplexity" -}}
{{- fail (printf "phase.gate.metric: perplexity with recipe %s; set another, this one is for recipe cpt" $recipe) -}}
{{- end -}}
{{- else -}}
{{- if has $kind (list "builtin" "torchvision") -}}
{{- fail (printf "phase.data.source: %s with recipe %s, which reads running text; set pydoc:topics, hf:OWNER/NAME@40-HEX-REVISION, or pvc:PATH of a text file" $data $recipe) -}}
{{- end -}}
{{- if ne $metric "perplexity" -}}
{{- fail (printf "phase.gate.metric: %s with recipe %s; set perplexity" $metric $recipe) -}}
{{- end -}}
{{- if int $phase.lora.rank -}}
{{- fail (printf "phase.lora.rank: %d with recipe %s, which trains the model's own weights; set 0" (int $phase.lora.rank) $recipe) -}}
{{- end -}}
{{- if $phase.train.cache_frozen_activations -}}
{{- fail (printf "phase.train.cache_frozen_activations: true with recipe %s, which sees each block once or twice; set false" $recipe) -}}
{{- end -}}
{{- if ne $phase.serve.runtime "trainlab" -}}
{{- fail (printf "phase.serve.runtime: %s with recipe %s, whose models need no chat template; set trainlab" $phase.serve.runtime $recipe) -}}
{{- end -}}
{{- end -}}
{{- end -}}
