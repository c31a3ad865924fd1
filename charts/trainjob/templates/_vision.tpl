{{/* The rules of training/src/trainlab/config/rules_vision.py: what recipe resnet takes, and what only it takes. */}}

{{- define "trainjob.checkVision" -}}
{{- $phase := .phase -}}
{{- $defaults := (.root.Files.Get "defaults.json" | fromJson).phase -}}
{{- $recipe := $phase.recipe -}}
{{- $model := $phase.model.source -}}
{{- $data := $phase.data.source -}}
{{- $metric := $phase.gate.metric -}}
{{- $images := list "builtin:digits" "torchvision:cifar10" -}}
{{- if ne $recipe "resnet" -}}
{{- if ne (toJson $phase.vision) (toJson $defaults.vision) -}}
{{- fail (printf "phase.vision: recipe %s does not read this block; remove it" $recipe) -}}
{{- end -}}
{{- if eq $model "builtin:resnet18" -}}
{{- fail (printf "phase.model.source: %s with recipe %s, which tunes a language model; name one" $model $recipe) -}}
{{- end -}}
{{- if has $data $images -}}
{{- fail (printf "phase.data.source: %s holds images, recipe %s reads text; name a data set of questions" $data $recipe) -}}
{{- end -}}
{{- if eq $metric "accuracy" -}}
{{- fail (printf "phase.gate.metric: accuracy with recipe %s; set answer_loss or fact_recall" $recipe) -}}
{{- end -}}
{{- else -}}
{{- range list "unfreeze" "questions" -}}
{{- if ne (toJson (index $phase .)) (toJson (index $defaults .)) -}}
{{- fail (printf "phase.%s: recipe resnet does not read it; remove it" .) -}}
{{- end -}}
{{- end -}}
{{- if ne $model "builtin:resnet18" -}}
{{- fail (printf "phase.model.source: %s with recipe resnet, which builds its network; set builtin:resnet18" $model) -}}
{{- end -}}
{{- if not (or (has $data $images) (hasPrefix "pvc:" $data)) -}}
{{- fail (printf "phase.data.source: %s with recipe resnet; set builtin:digits, torchvision:cifar10, or pvc:PATH of a folder that holds cifar-10-batches-py" $data) -}}
{{- end -}}
{{- if ne $metric "accuracy" -}}
{{- fail (printf "phase.gate.metric: %s with recipe resnet; set accuracy" $metric) -}}
{{- end -}}
{{- if ne $phase.serve.runtime "trainlab" -}}
{{- fail (printf "phase.serve.runtime: %s serves language models; set trainlab for recipe resnet" $phase.serve.runtime) -}}
{{- end -}}
{{- if $phase.train.cache_frozen_activations -}}
{{- fail "phase.train.cache_frozen_activations: true with recipe resnet, which has no frozen layers; set false" -}}
{{- end -}}
{{- if and $phase.vision.flip (eq $data "builtin:digits") -}}
{{- fail "phase.vision.flip: true with data.source builtin:digits; a mirrored digit is another sign: set false" -}}
{{- end -}}
{{- end -}}
{{- end -}}
