{{- define "tailspan.labels" -}}
app.kubernetes.io/name: tailspan
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* Arguments: root, component. */ -}}
{{- define "tailspan.selector" -}}
app.kubernetes.io/name: tailspan
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- /* With SQLite, the explorer reads the collector's file, so it runs in the same pod. */ -}}
{{- define "tailspan.explorerComponent" -}}
{{ if eq .Values.database.type "sqlite" }}collector{{ else }}explorer{{ end }}
{{- end }}

{{- define "tailspan.explorerUrl" -}}
{{- if .Values.explorer.url -}}
{{ .Values.explorer.url | trimSuffix "/" }}
{{- else if .Values.ingress.host -}}
{{ ternary "https" "http" (ne .Values.ingress.tlsSecret "") }}://{{ .Values.ingress.host }}{{ .Values.ingress.path | trimSuffix "/" }}
{{- else -}}
http://127.0.0.1:8501
{{- end -}}
{{- end }}

{{- define "tailspan.basePath" -}}
{{ (include "tailspan.explorerUrl" . | urlParse).path | trimSuffix "/" }}
{{- end }}

{{- /* Combinations of values that cannot work. */ -}}
{{- define "tailspan.check" -}}
{{- with .Values }}
{{- if and (gt (int .collectors) 1) (eq .database.type "sqlite") }}
{{- fail (printf "collectors is %d, but database.type is sqlite, which allows one collector. Set collectors: 1, or database.type: postgresql with database.existingSecret." (int .collectors)) }}
{{- end }}
{{- if and (gt (int .collectors) 1) (eq .database.type "clickhouse") (not .stateDatabase.existingSecret) }}
{{- fail (printf "collectors is %d, but without stateDatabase.existingSecret, database.type clickhouse allows one collector. Set collectors: 1, or stateDatabase.existingSecret to the name of a Secret with the URL of PostgreSQL." (int .collectors)) }}
{{- end }}
{{- if and .stateDatabase.existingSecret (eq .database.type "sqlite") }}
{{- fail (printf "stateDatabase.existingSecret is %q, but database.type is sqlite, whose file also has the state. Remove stateDatabase.existingSecret, or set database.type: postgresql or clickhouse." .stateDatabase.existingSecret) }}
{{- end }}
{{- if and (ne .database.type "sqlite") (not .database.existingSecret) }}
{{- fail (printf "database.type is %s, but database.existingSecret is empty. Set it to the name of a Secret whose key %q holds the database URL." .database.type .database.key) }}
{{- end }}
{{- if and (eq .database.type "sqlite") .database.existingSecret }}
{{- fail (printf "database.existingSecret is %q, but database.type is sqlite, whose file is on the chart's volume. Set database.type: postgresql or clickhouse, or remove database.existingSecret." .database.existingSecret) }}
{{- end }}
{{- if and .signIn.issuer (not (and .ingress.host .signIn.existingSecret .signIn.allow)) }}
{{- fail "signIn.issuer is set: also set ingress.host, signIn.existingSecret and signIn.allow." }}
{{- end }}
{{- if and .signIn.issuer (not .ingress.tlsSecret) (not (hasPrefix "https://" .explorer.url)) }}
{{- fail "signIn.issuer is set, but the explorer's address is not https. Set ingress.tlsSecret, or explorer.url if another proxy provides TLS." }}
{{- end }}
{{- if and .ingress.host (not .signIn.issuer) (not .ingress.withoutSignIn) }}
{{- fail (printf "ingress.host is %q, so everyone who reaches the Ingress could read the explorer. Set signIn.issuer, or ingress.withoutSignIn: true if the proxy has its own login." .ingress.host) }}
{{- end }}
{{- if and .ingress.host (ne (include "tailspan.basePath" $) (trimSuffix "/" .ingress.path)) }}
{{- fail (printf "ingress.path is %q, but the path of explorer.url %q differs. Use the same path in both." .ingress.path .explorer.url) }}
{{- end }}
{{- if and .monitoring.enabled .settings.objectives (not .monitoring.rules.tailspan) }}
{{- fail "monitoring.enabled and settings.objectives are set, but monitoring.rules.tailspan is empty. Prometheus would page, because it would find no counters of the built-in objectives. Set monitoring.rules.tailspan to the output of tailspan slo rules for your objectives." }}
{{- end }}
{{- range $name, $_ := .files }}
{{- if has $name (list "tailspan.toml" "sign-in.yaml") }}
{{- fail (printf "files contains %q, which the chart writes. Use another name." $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The settings that follow from other values. They cannot be set in .Values.settings. */ -}}
{{- define "tailspan.settings" -}}
host: 0.0.0.0
insecure-bind: {{ not (and .Values.tls.existingSecret .Values.tokens.existingSecret .Values.signIn.issuer) }}
no-explorer: {{ ne .Values.database.type "sqlite" }}
allowed-host:
  - {{ .Release.Name }}.{{ .Release.Namespace }}
  - {{ .Release.Name }}-explorer.{{ .Release.Namespace }}
  {{- range list .Values.ingress.host (urlParse .Values.explorer.url).hostname | compact | uniq }}
  - {{ . | quote }}
  {{- end }}
{{- if .Values.tokens.existingSecret }}
token-file: /etc/tailspan-secrets/{{ .Values.tokens.existingSecret }}/tokens
{{- end }}
{{- with .Values.tls.existingSecret }}
tls-cert: /etc/tailspan-secrets/{{ . }}/tls.crt
tls-key: /etc/tailspan-secrets/{{ . }}/tls.key
{{- end }}
{{- if .Values.signIn.issuer }}
sign-in: sign-in.yaml
{{- else if include "tailspan.basePath" . }}
base-path: {{ include "tailspan.basePath" . }}
{{- end }}
{{- end }}

{{- /* The part of a container's specification that the collector and the explorer share. Arguments: root. */ -}}
{{- define "tailspan.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
env:
  - {name: TAILSPAN_CONFIG, value: /etc/tailspan/tailspan.toml}
  - {name: TAILSPAN_EXPLORER_URL, value: {{ include "tailspan.explorerUrl" . | quote }}}
  {{- with .Values.database }}
  {{- if .existingSecret }}
  - name: TAILSPAN_DATABASE_URL
    valueFrom: {secretKeyRef: {name: {{ .existingSecret }}, key: {{ .key }}}}
  {{- end }}
  {{- end }}
  {{- with .Values.stateDatabase }}
  {{- if .existingSecret }}
  - name: TAILSPAN_STATE_URL
    valueFrom: {secretKeyRef: {name: {{ .existingSecret }}, key: {{ .key }}}}
  {{- end }}
  {{- end }}
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "tailspan.mounts" -}}
- {name: data, mountPath: /var/lib/tailspan}
- {name: tmp, mountPath: /tmp}
- {name: configuration, mountPath: /etc/tailspan, readOnly: true}
{{- range include "tailspan.secrets" . | fromYamlArray }}
- {name: {{ printf "secret-%s" . | quote }}, mountPath: /etc/tailspan-secrets/{{ . }}, readOnly: true}
{{- end }}
{{- end }}

{{- define "tailspan.volumes" -}}
- {name: tmp, emptyDir: {}}
- {name: configuration, configMap: {name: {{ .Release.Name }}-configuration}}
{{- range include "tailspan.secrets" . | fromYamlArray }}
- {name: {{ printf "secret-%s" . | quote }}, secret: {secretName: {{ . | quote }}}}
{{- end }}
{{- end }}

{{- define "tailspan.secrets" -}}
{{- with .Values }}
{{- concat .secrets (list .tokens.existingSecret .tls.existingSecret .signIn.existingSecret) | compact | uniq | toYaml }}
{{- end }}
{{- end }}

{{- /* A pod's security, placement and labels. Arguments: root, component. */ -}}
{{- define "tailspan.podMetadata" -}}
labels:
  {{- include "tailspan.selector" . | nindent 2 }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  checksum/configuration: {{ include (print .root.Template.BasePath "/configuration.yaml") .root | sha256sum }}
  {{- with .root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "tailspan.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}
