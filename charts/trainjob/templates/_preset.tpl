{{/*
A phase that the chart carries, chosen with `preset: {phase, scale}`. Helm reads no file outside of a chart's folder, so `make
gen` copies values/*.yaml and values/local/*.yaml into presets.json. What is given under `phase:` lies over it, as a further -f
would. training/src/trainlab/config/preset.py does the same and says the same.
*/}}

{{- /* Sets .Values.phase. */}}
{{- define "trainjob.preset" -}}
{{- $presets := .Files.Get "presets.json" | fromJson -}}
{{- $names := keys $presets | sortAlpha -}}
{{- $asked := .Values.preset | default dict -}}
{{- $keys := include "trainjob.keys" . | fromJson -}}
{{- include "trainjob.walk" (dict "given" $asked "known" $keys.preset "at" "preset." "keys" $keys "recipe" "") | include "trainjob.refuse" -}}
{{- $name := $asked.phase | default "" -}}
{{- $scale := $asked.scale | default "full" -}}
{{- if and $name (not (hasKey $presets $name)) -}}
{{- fail (printf "preset.phase is '%s': must be one of %s; set one of these" $name (join ", " $names)) -}}
{{- else if and $name (not (hasKey (index $presets $name) $scale)) -}}
{{- fail (printf "preset.scale: %s, which %s does not have; set full" $scale $name) -}}
{{- else if and (not $name) (ne $scale "full") -}}
{{- fail (printf "preset.scale: %s without preset.phase; name the phase there" $scale) -}}
{{- else if not (or $name .Values.phase) -}}
{{- fail (printf "phase: missing; give one of your own with -f values/<phase>.yaml, or set preset.phase to one of %s" (join ", " $names)) -}}
{{- /* Only `helm lint` goes on after that; it needs something to render. */ -}}
{{- $name = first $names -}}
{{- end -}}
{{- if $name -}}
{{- $phase := (index $presets $name).full -}}
{{- if ne $scale "full" -}}
{{- include "trainjob.over" (dict "base" $phase "given" (index $presets $name $scale)) -}}
{{- end -}}
{{- include "trainjob.over" (dict "base" $phase "given" (.Values.phase | default dict)) -}}
{{- $_ := set .Values "phase" $phase -}}
{{- end -}}
{{- end -}}

{{- /* Lays .given over .base, as Helm lays one values file over another: a list is replaced, null removes a key. Sprig's
mergeOverwrite would keep what is null. */}}
{{- define "trainjob.over" -}}
{{- range $key, $value := .given -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := unset $.base $key -}}
{{- else if and (kindIs "map" $value) (kindIs "map" (index $.base $key)) -}}
{{- include "trainjob.over" (dict "base" (index $.base $key) "given" $value) -}}
{{- else -}}
{{- $_ := set $.base $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}
