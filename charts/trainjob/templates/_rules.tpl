{{/* A rule of rules.json, and whether these values break it; training/src/trainlab/config/rule.py does the same and names the tests. */}}

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
