{{/*
Files of /etc/ostler, as the data of a ConfigMap. Text of users is quoted: as a block its own indentation would count.
*/}}
{{- define "ostler.files" -}}
{{- if .Values.configText -}}
config.yaml: {{ toJson .Values.configText }}
{{- else -}}
config.yaml: |
  {{- toYaml .Values.config | nindent 2 }}
{{- end }}
{{- with .Values.topology }}
topology: {{ toJson . }}
{{- end }}
{{- with .Values.recording }}
recording.yaml: {{ toJson . }}
{{- end }}
{{- end -}}
