{{/*
Files of /etc/ostler, as the data of a ConfigMap. Text of users is quoted: as a block its own indentation would count.
*/}}
{{- define "ostler.files" -}}
{{- if .Values.configText -}}
config.yaml: {{ toJson .Values.configText }}
{{- else -}}
{{- $config := deepCopy .Values.config -}}
{{- if .Values.nvidia.migLayouts -}}
{{- $_ := set $config "nvidia" (merge (dict "migConfigFile" "/etc/ostler/mig-layouts.yaml") ($config.nvidia | default dict)) -}}
{{- end -}}
config.yaml: |
  {{- toYaml $config | nindent 2 }}
{{- end }}
{{- with .Values.nvidia.migLayouts }}
mig-layouts.yaml: {{ toJson . }}
{{- end }}
{{- with .Values.topology }}
topology: {{ toJson . }}
{{- end }}
{{- with .Values.recording }}
recording.yaml: {{ toJson . }}
{{- end }}
{{- end -}}
