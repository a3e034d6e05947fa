{{/* On which nodes the agent runs. */}}

{{/*
Labels of Node Feature Discovery: with its own settings they carry class and vendor, with those of NVIDIA's operator the
vendor alone. Classes: 0300 and 0302 VGA and 3D controllers, 0380 other displays, 1200 accelerators, 02xx network.
*/}}
{{- define "ostler.discoveryLabels" -}}
nvidia: [pci-10de, pci-0300_10de, pci-0302_10de]
amd: [pci-1002, pci-0300_1002, pci-0380_1002, pci-1200_1002]
intel: [pci-8086, pci-0300_8086, pci-0380_8086]
habana: [pci-1da3, pci-1200_1da3]
mellanox: [pci-15b3, pci-0200_15b3, pci-0207_15b3]
{{- end -}}

{{- define "ostler.affinity" -}}
{{- $affinity := deepCopy (.Values.affinity | default dict) -}}
{{- if .Values.nodeFeatureDiscovery -}}
{{- $labels := include "ostler.discoveryLabels" . | fromYaml -}}
{{- $terms := list -}}
{{- range .Values.nodeFeatureDiscovery -}}
{{- range get $labels . -}}
{{- $term := dict "key" (printf "feature.node.kubernetes.io/%s.present" .) "operator" "In" "values" (list "true") -}}
{{- $terms = append $terms (dict "matchExpressions" (list $term)) -}}
{{- end -}}
{{- end -}}
{{- $required := dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) -}}
{{- $_ := set $affinity "nodeAffinity" $required -}}
{{- end -}}
{{- toYaml $affinity -}}
{{- end -}}
