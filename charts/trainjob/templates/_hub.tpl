{{/* The rules of training/src/trainlab/config/rules_hub.py: rows of a hub, which recipe sft reads. */}}

{{- define "trainjob.checkHub" -}}
{{- $phase := .phase -}}
{{- $defaults := (.root.Files.Get "defaults.json" | fromJson).hub -}}
{{- $recipe := $phase.recipe -}}
{{- $source := $phase.data.source -}}
{{- $hub := $phase.data.hub | default $defaults -}}
{{- $named := keys $hub.columns -}}
{{- if or (ne $recipe "sft") (not (hasPrefix "hf:" $source)) -}}
{{- if ne (toJson $hub) (toJson $defaults) -}}
{{- fail (printf "phase.data.hub: data.source %s with recipe %s does not read this block; remove it" $source $recipe) -}}
{{- end -}}
{{- else -}}
{{- if $phase.stage.name -}}
{{- fail (printf "phase.data.source: %s in stage %s; rows of a hub are measured with the model's tokenizer, which a stage gets from its parent: set a pvc: folder" $source $phase.stage.name) -}}
{{- end -}}
{{- if not $hub.accept_licence -}}
{{- fail (printf "phase.data.hub.accept_licence: false with data.source %s; song lyrics are under copyright whatever a set's card says, and other texts may be; whether you may train on them is for you to clear: set it true when you have" $source) -}}
{{- end -}}
{{- $questions := or (has "question" $named) (has "answer" $named) -}}
{{- if and $questions (or (has "instruction" $named) (has "verse" $named) (has "form" $named)) -}}
{{- $listed := list -}}
{{- range list "instruction" "verse" "question" "answer" "form" -}}
{{- if has . $named -}}{{- $listed = append $listed . -}}{{- end -}}
{{- end -}}
{{- fail (printf "phase.data.hub.columns: %s do not go together; name instruction, verse and form, or question and answer" (join ", " $listed)) -}}
{{- end -}}
{{- range list (list "instruction" "verse") (list "question" "answer") -}}
{{- if ne (has (first .) $named) (has (last .) $named) -}}
{{- fail (printf "phase.data.hub.columns: %s alone; name %s, or neither for columns of these names" (has (first .) $named | ternary (first .) (last .)) (join " and " .)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
