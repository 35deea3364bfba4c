{{- define "gpu-scheduler.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- /* The names alone: the roles' inputs are names. */ -}}
{{- define "gpu-scheduler.pullSecrets" -}}
{{- $names := list }}{{ range .Values.imagePullSecrets }}{{ $names = append $names .name }}{{ end }}{{ $names | toJson }}
{{- end }}

{{- /* A list of texts as JSON with a space behind each comma: it stands in CEL, which the roles write so too. */ -}}
{{- define "gpu-scheduler.jsonList" -}}
[{{ range $index, $each := . }}{{ if $index }}, {{ end }}{{ $each | toJson }}{{ end }}]
{{- end }}

{{- /* What the containers of `helm test` have in common. */ -}}
{{- define "gpu-scheduler.testContainer" -}}
image: {{ include "gpu-scheduler.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
resources: {requests: {cpu: 5m, memory: 32Mi}, limits: {memory: 64Mi}}
securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end }}
