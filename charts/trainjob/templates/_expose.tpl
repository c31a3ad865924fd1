{{/* How others reach the server, and TensorBoard. Route and Ingress lead to the Service that KServe names after the release, so they outlive runs. */}}

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
{{- print (printf "site.expose.%s: %s, but OpenShift exposes by a Route, which has none; remove it" $key .) "\n" -}}
{{- end -}}
{{- end -}}
{{- else if and (eq .exposure "ingress") .site.auth -}}
{{- print "site.auth: true with an Ingress, which does not reach what checks tokens; set site.platform to openshift (a `helm template` for OpenShift), or false" "\n" -}}
{{- else if and (eq .exposure "ingress") (not $asked.host) -}}
{{- print "site.expose.host: empty; an Ingress needs the host name that its clients use: set it (a `helm template` for OpenShift: set site.platform to openshift)" "\n" -}}
{{- end -}}
{{- end -}}

{{- /* Not the InferenceService's own name: OpenShift AI's model controller deletes a Route of that name that it did not ask for
(odh-model-controller, kserve_raw_route_reconciler.go). */}}
{{- define "trainjob.exposed" -}}{{ .release }}-model{{- end -}}

{{- /* To the Service .service of .resolved, as .name at .host; .tokens: through what checks them. */}}
{{- define "trainjob.route" -}}
{{- $asked := .resolved.site.expose -}}
apiVersion: route.openshift.io/v1
kind: Route
metadata:
  name: {{ .name }}
  labels:
    {{- include "trainjob.labels" .resolved | nindent 4 }}
  # The router's 30 s are less than an answer may take.
  annotations: {{ merge (deepCopy $asked.annotations) (dict "haproxy.router.openshift.io/timeout" "5m") | toJson }}
spec:
  {{- with .host }}
  host: {{ . | quote }}
  {{- end }}
  to: {kind: Service, name: {{ .service }}, weight: 100}
  # The port of the pods, by number: it is the same whether the Service is headless or not.
  {{- if .tokens }}
  port: {targetPort: 8443}
  # Checked against OpenShift's service CA, which the router trusts.
  tls: {termination: reencrypt, insecureEdgeTerminationPolicy: Redirect}
  {{- else }}
  port: {targetPort: 8080}
  tls: {termination: edge, insecureEdgeTerminationPolicy: Redirect}
  {{- end }}
{{- end -}}

{{- define "trainjob.ingress" -}}
{{- $asked := .resolved.site.expose -}}
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {{ .name }}
  labels:
    {{- include "trainjob.labels" .resolved | nindent 4 }}
  {{- with $asked.annotations }}
  annotations: {{ toJson . }}
  {{- end }}
spec:
  {{- with $asked.ingressClass }}
  ingressClassName: {{ . | quote }}
  {{- end }}
  {{- with $asked.tlsSecret }}
  tls: [{hosts: [{{ $.host | quote }}], secretName: {{ . | quote }}}]
  {{- end }}
  rules:
    - host: {{ .host | quote }}
      http:
        paths:
          - path: /
            pathType: Prefix
            # The port that KServe gives the Service, headless or not; TensorBoard's has the same.
            backend: {service: {name: {{ .service }}, port: {number: 80}}}
{{- end -}}

{{- /* What the model's address leads to. */}}
{{- define "trainjob.exposedModel" -}}
{{- dict "resolved" . "name" (include "trainjob.exposed" .) "service" (printf "%s-predictor" .release) "host" .site.expose.host "tokens" .site.auth | toJson -}}
{{- end -}}

{{- /* What TensorBoard's leads to. */}}
{{- define "trainjob.exposedTensorboard" -}}
{{- $name := include "trainjob.tensorboard" . -}}
{{- dict "resolved" . "name" $name "service" $name "host" .site.tensorboard.host "tokens" false | toJson -}}
{{- end -}}

{{- /* Of the pods, as OpenShift AI's and KServe's Services differ in ports; it outlives runs. */}}
{{- define "trainjob.podMonitor" -}}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ .release | quote }}
  labels:
    {{- include "trainjob.labels" . | nindent 4 }}
    {{- with .site.monitoring.labels }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  selector:
    matchLabels:
      serving.kserve.io/inferenceservice: {{ .release | quote }}
  podMetricsEndpoints:
    - {port: http, path: /metrics}
{{- end -}}

{{- /* Where clients reach what `trainjob.exposedModel` or `trainjob.exposedTensorboard` says; a command where only the cluster knows. */}}
{{- define "trainjob.address" -}}
{{- $resolved := .resolved -}}
{{- if .host -}}
{{- or (eq $resolved.exposure "route") (ne $resolved.site.expose.tlsSecret "") | ternary "https" "http" }}://{{ .host }}
{{- else -}}
https://$(kubectl -n {{ $resolved.namespace }} get route {{ .name }} -o jsonpath='{.spec.host}')
{{- end -}}
{{- end -}}
