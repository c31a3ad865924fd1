{{/* An address outside of the cluster. Route and Ingress lead to the Service that KServe names after the release, so they outlive runs. */}}

{{- /* `route`, `ingress`, or empty for none; of .root, .real (a cluster is there) and its .platform. */}}
{{- define "trainjob.exposure" -}}
{{- if .root.Values.site.expose.enabled -}}
{{- $routes := .root.Capabilities.APIVersions.Has "route.openshift.io/v1" -}}
{{- or $routes (and (not .real) (eq .platform "openshift")) | ternary "route" "ingress" -}}
{{- end -}}
{{- end -}}

{{- define "trainjob.checkExposure" -}}
{{- $asked := .site.expose -}}
{{- if eq .exposure "route" -}}
{{- range $key := list "ingressClass" "tlsSecret" -}}
{{- with index $asked $key -}}
{{- fail (printf "site.expose.%s: %s, but OpenShift exposes by a Route, which has none; remove it" $key .) -}}
{{- end -}}
{{- end -}}
{{- else if and (eq .exposure "ingress") .site.auth -}}
{{- fail "site.auth: true with an Ingress, which does not reach what checks tokens; set site.platform to openshift (a `helm template` for OpenShift), or false" -}}
{{- else if and (eq .exposure "ingress") (not $asked.host) -}}
{{- fail "site.expose.host: empty; an Ingress needs the host name that its clients use: set it (a `helm template` for OpenShift: set site.platform to openshift)" -}}
{{- end -}}
{{- end -}}

{{- /* Not the InferenceService's own name: OpenShift AI's model controller deletes a Route of that name that it did not ask for
(odh-model-controller, kserve_raw_route_reconciler.go). */}}
{{- define "trainjob.exposed" -}}{{ .release }}-model{{- end -}}

{{- /* Where clients reach it; a command where only the cluster knows. */}}
{{- define "trainjob.address" -}}
{{- $host := .site.expose.host -}}
{{- if $host -}}
{{- or (eq .exposure "route") (ne .site.expose.tlsSecret "") | ternary "https" "http" }}://{{ $host }}
{{- else -}}
https://$(kubectl -n {{ .namespace }} get route {{ include "trainjob.exposed" . }} -o jsonpath='{.spec.host}')
{{- end -}}
{{- end -}}
