{{- define "gpu-scheduler.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- /* The number of the map's lines that are neither blank nor comment. */ -}}
{{- define "gpu-scheduler.checkReplicas" -}}
{{- $map := get .Values.podAnnotations "gpu-scheduling-map" | default "" -}}
{{- if kindIs "invalid" .Values.replicaCount }}{{ regexFindAll "(?m)^[ \\t]*[^#\\s]" $map -1 | len }}{{ else }}{{ .Values.replicaCount }}{{ end }}
{{- end }}

{{- /* What the pods of hooks have in common. */ -}}
{{- define "gpu-scheduler.checkPod" -}}
enableServiceLinks: false
imagePullSecrets: {{ .Values.imagePullSecrets | toJson }}
tolerations: {{ .Values.tolerations | toJson }}
securityContext:
  runAsNonRoot: true
  {{- if not .Values.openshift }}
  runAsUser: 1000
  runAsGroup: 1000
  {{- end }}
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "gpu-scheduler.checkContainer" -}}
image: {{ include "gpu-scheduler.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
resources: {requests: {cpu: 5m, memory: 24Mi}, limits: {memory: 64Mi}}
securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end }}
