{{- define "codeforge.name" -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{- end -}}
{{- define "codeforge.sandboxes" -}}{{ .Values.sandbox.namespace | default (printf "%s-sandboxes" .Release.Namespace) }}{{- end -}}
{{- define "codeforge.image" -}}{{ .root.Values.image.registry }}/{{ .name }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}{{- end -}}
{{- define "codeforge.labels" -}}
app.kubernetes.io/name: codeforge
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end -}}
{{- define "codeforge.selector" -}}
app.kubernetes.io/name: codeforge
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}
{{- define "codeforge.settings" -}}
{{- if eq .Values.egress.mode "shared" -}}
- {name: SANDBOX_SLOTS, value: "1"}
- {name: SANDBOX_WARM, value: {{ min 1 .Values.sandbox.warm | quote }}}
- {name: SANDBOX_WARM_PYTHON, value: {{ min 1 .Values.sandbox.warmPython | quote }}}
{{- else -}}
- {name: SANDBOX_SLOTS, value: {{ .Values.sandbox.slots | quote }}}
- {name: SANDBOX_WARM, value: {{ .Values.sandbox.warm | quote }}}
- {name: SANDBOX_WARM_PYTHON, value: {{ .Values.sandbox.warmPython | quote }}}
{{- end }}
- {name: SANDBOX_MEMORY, value: {{ .Values.sandbox.memory | quote }}}
- {name: SANDBOX_SERVERS, value: {{ .Values.sandbox.servers | quote }}}
- {name: SANDBOX_SUBNET, value: {{ .Values.sandbox.subnet | quote }}}
- {name: TIMEOUT_DEFAULT, value: {{ .Values.sandbox.timeoutDefault | default "" | quote }}}
- {name: TIMEOUT_MAX, value: {{ .Values.sandbox.timeoutMax | quote }}}
{{- /* The ledger: less than its volume, because a pod whose volume is full is ended. */}}
{{- range $name, $value := merge (dict) .Values.settings (dict "AUDIT_SIZE" "1800m") }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end -}}
{{- define "codeforge.proxyDatabaseSettings" -}}
{{- with .Values.egress.database }}
{{- if .secret }}
- {name: PROXY_DATABASE_URL_FILE, value: /etc/codeforge/database/url}
{{- if .caConfigMap }}
- {name: DATABASE_CA_FILE, value: /etc/codeforge/database-ca/ca.crt}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
{{- define "codeforge.proxyDatabaseMounts" -}}
{{- with .Values.egress.database }}
{{- if .secret }}
- {name: database, mountPath: /etc/codeforge/database, readOnly: true}
{{- if .caConfigMap }}
- {name: database-ca, mountPath: /etc/codeforge/database-ca, readOnly: true}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
{{- define "codeforge.proxyDatabaseVolumes" -}}
{{- with .Values.egress.database }}
{{- if .secret }}
- name: database
  secret: {secretName: {{ .secret | quote }}, defaultMode: 0440}
{{- if .caConfigMap }}
- name: database-ca
  configMap: {name: {{ .caConfigMap | quote }}}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
{{- define "codeforge.apiMounts" -}}
{{- range $api := keys .Values.apis | sortAlpha }}
- {name: api-{{ $api | sha256sum | trunc 12 }}, mountPath: /apis/{{ $api }}, readOnly: true}
{{- end }}
{{- if .Values.sandbox.packages }}
- {name: packages-of-code, mountPath: /apis/packages.json, subPath: packages.json, readOnly: true}
{{- end }}
{{- end -}}
{{- define "codeforge.apiVolumes" -}}
{{- range $api := keys .root.Values.apis | sortAlpha }}
- name: api-{{ $api | sha256sum | trunc 12 }}
  secret: {secretName: {{ get $.root.Values.apis $api | quote }}, defaultMode: {{ $.mode }}}
{{- end }}
{{- if .root.Values.sandbox.packages }}
- name: packages-of-code
  configMap: {name: {{ include "codeforge.name" .root }}-packages}
{{- end }}
{{- end -}}
{{- define "codeforge.packagesAnnotation" -}}
{{- with .Values.sandbox.packages }}
# A mounted file does not follow the ConfigMap, so another list starts other pods.
annotations: {codeforge/packages: {{ . | sha256sum | trunc 12 }}}
{{- end }}
{{- end -}}
{{- define "codeforge.tokenSecret" -}}{{ .Values.mcp.tokenSecret | default (printf "%s-mcp-token" (include "codeforge.name" .)) }}{{- end -}}
{{- define "codeforge.pull" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}
{{- define "codeforge.inside" -}}
# What sandboxes reach of the proxy: names, APIs, and the authority's certificate.
- {port: 53, protocol: UDP}
- {port: 53, protocol: TCP}
{{- range concat (list 80 443 8445) .Values.egress.ports }}
- {port: {{ . }}}
{{- end }}
{{- end -}}
