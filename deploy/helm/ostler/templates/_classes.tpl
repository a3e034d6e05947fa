{{/*
A DeviceClass: call with (dict "root" $ "name" "..." "expression" "CEL" "extended" "resource name, or nothing").

Other people's devices have none of our attributes, so the driver is asked for first; what a device may lack is asked for
with .? because an expression that fails stops the scheduler's search.
*/}}
{{- define "ostler.deviceClass" -}}
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: {{ .name | quote }}
  labels:
    {{- include "ostler.labels" .root | nindent 4 }}
spec:
  selectors:
    - cel:
        expression: >-
          device.driver == {{ .root.Values.dra.driverName | squote }} &&
          {{ .expression }}
  {{- with .extended }}
  extendedResourceName: {{ . | quote }}
  {{- end }}
{{- end -}}

{{/* Names of classes and what is asked of a device, as a mapping. */}}
{{- define "ostler.deviceClasses" -}}
{{- $classes := dict -}}
{{- $own := .Values.dra.driverName -}}
{{- $attributes := printf "device.attributes['%s']" $own -}}
{{- if .Values.dra.deviceClasses -}}
{{- range list "gpu" "mig" "partition" -}}
{{- $_ := set $classes (printf "%s.%s" . $own) (printf "%s.type == '%s'" $attributes .) -}}
{{- end -}}
{{- $_ := set $classes (printf "nic.%s" $own) (printf "%s.type in ['nic', 'rdma']" $attributes) -}}
{{- $_ := set $classes (printf "rdma.%s" $own) (printf "(%s.type == 'rdma' || %s.?rdma.orValue(false))" $attributes $attributes) -}}
{{- end -}}
{{- if .Values.dra.peerClasses -}}
{{- if has "gpu.nvidia.com" .Values.dra.alsoPublishAs -}}
{{- $_ := set $classes "gpu.nvidia.com" "device.attributes['gpu.nvidia.com'].?type.orValue('') == 'gpu'" -}}
{{- $_ := set $classes "mig.nvidia.com" "device.attributes['gpu.nvidia.com'].?type.orValue('') == 'mig'" -}}
{{- end -}}
{{- if has "dra.net" .Values.dra.alsoPublishAs -}}
{{- $_ := set $classes "dra.net" (printf "%s.type in ['nic', 'rdma']" $attributes) -}}
{{- end -}}
{{- if has "sriovnetwork.k8snetworkplumbingwg.io" .Values.dra.alsoPublishAs -}}
{{- $_ := set $classes "sriovnetwork.k8snetworkplumbingwg.io" "device.attributes['sriovnetwork.k8snetworkplumbingwg.io'].?vfID.hasValue()" -}}
{{- end -}}
{{- end -}}
{{- toJson $classes -}}
{{- end -}}
