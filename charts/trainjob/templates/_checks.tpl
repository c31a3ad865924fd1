{{/*
Everything that is refused before an object is made. Types and bounds of single keys are in values.schema.json, which Helm
checks earlier; what else there is comes from keys.json and rules.json, so that the sentences are those of `trainlab check`.
Each check prints a line for each refusal, which begins with the key; `trainjob.refuse` makes one failure of all of them.
*/}}

{{- define "trainjob.refuse" -}}
{{- with trim . -}}{{- fail (splitList "\n" . | uniq | join "\n") -}}{{- end -}}
{{- end -}}

{{- define "trainjob.checkKeys" -}}
{{- $keys := .Files.Get "keys.json" | fromJson -}}
{{- $recipe := .Values.phase.recipe | default "" -}}
{{- if not $recipe -}}{{- fail "phase.recipe: missing; add it" -}}{{- end -}}
{{- if not (hasKey $keys.phase $recipe) -}}
{{- fail (printf "phase.recipe is '%s': must be one of %s; set one of these" $recipe (keys $keys.phase | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $known := dict "phase" (index $keys.phase $recipe) "preset" $keys.preset "site" $keys.site -}}
{{- include "trainjob.walk" (dict "given" (omit .Values "global") "known" $known "at" "" "keys" $keys "recipe" $recipe) -}}
{{- $required := index (.Files.Get "rules.json" | fromJson).required $recipe -}}
{{- range $at, $names := $required -}}
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
{{- include "trainjob.computed" $values -}}
{{- if not .root.Values.site.images.trainer -}}{{- print (include "trainjob.noImage" .) "\n" -}}{{- end -}}
{{- end -}}
