{{/*
What the agent sees of the node, and nothing else of it: each mount is a row of the table in README.md.

Folders and never single sockets: a socket that is made anew would not be seen. Where the kubelet makes a folder, it must
be there, so that a wrong path is an event of the pod and not an agent that waits in an empty folder.
*/}}

{{- define "ostler.mounts" -}}
{{- $privileged := eq .Values.nvidia.access "privileged" -}}
- name: device-plugins
  mountPath: /var/lib/kubelet/device-plugins
- name: plugins-registry
  mountPath: /var/lib/kubelet/plugins_registry
- name: pod-resources
  mountPath: /var/lib/kubelet/pod-resources
  readOnly: true
- name: state
  mountPath: /var/lib/ostler
# Anybody may write to such a volume itself, so the agent makes its folder in it.
- name: run
  mountPath: /run
- name: config
  mountPath: /etc/ostler
  readOnly: true
# Whether a pod has processes left is read from its cgroup: a container of its own sees none but its own.
- name: cgroup
  mountPath: /sys/fs/cgroup
  readOnly: true
  {{- include "ostler.recursively" . | nindent 2 }}
- name: dev
  mountPath: {{ ternary "/dev" "/host/dev" $privileged }}
  readOnly: true
  {{- include "ostler.recursively" . | nindent 2 }}
{{- if .Values.dra.enabled }}
# The kubelet is told where the driver's socket is, so it must be at one path here and on the node.
- name: dra
  mountPath: {{ include "ostler.driverData" . | quote }}
# What the kubelet knows of claims: for damaged records, and for claims that nobody has any more. The kubelet replaces
# the file, and a container sees the one that was there when it began, which still counts for claims of before.
- name: dra-manager-state
  mountPath: /var/lib/kubelet/dra_manager_state
  readOnly: true
{{- end }}
{{- if .Values.machineIdFile }}
- name: machine-id
  mountPath: /etc/machine-id
  readOnly: true
{{- end }}
{{- if include "ostler.usesCdi" . }}
- name: cdi
  mountPath: /var/run/cdi
{{- end }}
{{- if include "ostler.usesMode" (list . "delegate") }}
- name: etc-cdi
  mountPath: /etc/cdi
  readOnly: true
{{- end }}
{{- if include "ostler.mountsDriver" . }}
- name: driver
  mountPath: /driver-root{{ include "ostler.driverFolder" . }}
  readOnly: true
  {{- if ne .Values.driverRoot "/" }}
  # A driver container mounts its root there, perhaps later than now. Only where it is needed: it takes shared mounts.
  mountPropagation: HostToContainer
  {{- else }}
  {{- include "ostler.recursively" . | nindent 2 }}
  {{- end }}
{{- end }}
{{- if and .Values.nics.enabled .Values.nics.udev }}
- name: udev
  mountPath: /run/udev
  readOnly: true
{{- end }}
{{- if and .Values.nics.virtualFunctions (not $privileged) }}
# A container's own /sys is read-only; the files by which virtual functions are made are below this folder.
- name: sys-devices
  mountPath: /sys/devices
{{- end }}
{{- if .Values.nics.moveInterfaces }}
- name: nri
  mountPath: /var/run/nri
  readOnly: true
# The runtime mounts the network namespace of each pod there, most of them later than now.
- name: netns
  mountPath: /var/run/netns
  readOnly: true
  mountPropagation: HostToContainer
{{- end }}
{{- if .Values.nvidia.mps }}
# Pods get the daemons' folders from the node, so they must be at one path here and there. Each daemon has a file system
# with limits there: the agent mounts it, and the node must see it.
- name: mps
  mountPath: {{ include "ostler.mpsRoot" . | quote }}
  mountPropagation: Bidirectional
{{- end }}
{{- end -}}

{{/* What is mounted below a folder (/dev/shm below /dev) is else as writable as it is on the node. */}}
{{- define "ostler.recursively" -}}
{{- if semverCompare ">=1.33-0" .Capabilities.KubeVersion.Version -}}recursiveReadOnly: IfPossible{{- end -}}
{{- end -}}

{{- define "ostler.volumes" -}}
{{- $devRoot := .Values.devRoot | default .Values.driverRoot -}}
- name: device-plugins
  hostPath:
    path: {{ .Values.devicePluginDir | quote }}
    type: Directory
- name: plugins-registry
  hostPath:
    path: {{ printf "%s/plugins_registry" (.Values.kubeletRoot | trimSuffix "/") | quote }}
    type: Directory
- name: pod-resources
  hostPath:
    path: {{ printf "%s/pod-resources" (.Values.kubeletRoot | trimSuffix "/") | quote }}
    type: Directory
- name: state
  hostPath:
    path: {{ .Values.stateDir | quote }}
    type: DirectoryOrCreate
- name: run
  emptyDir:
    medium: Memory
    sizeLimit: 1Mi
- name: config
  configMap:
    name: {{ include "ostler.fullname" . | quote }}
- name: cgroup
  hostPath:
    path: /sys/fs/cgroup
    type: Directory
- name: dev
  hostPath:
    path: {{ printf "%s/dev" ($devRoot | trimSuffix "/") | quote }}
    type: Directory
{{- if .Values.dra.enabled }}
- name: dra
  hostPath:
    path: {{ include "ostler.driverData" . | quote }}
    type: DirectoryOrCreate
- name: dra-manager-state
  hostPath:
    path: {{ printf "%s/dra_manager_state" (.Values.kubeletRoot | trimSuffix "/") | quote }}
    type: File
{{- end }}
{{- if .Values.machineIdFile }}
- name: machine-id
  hostPath:
    path: {{ .Values.machineIdFile | quote }}
    type: File
{{- end }}
{{- if include "ostler.usesCdi" . }}
- name: cdi
  hostPath:
    path: {{ .Values.cdiRoot | quote }}
    type: DirectoryOrCreate
{{- end }}
{{- if include "ostler.usesMode" (list . "delegate") }}
- name: etc-cdi
  hostPath:
    path: /etc/cdi
    type: DirectoryOrCreate
{{- end }}
{{- if include "ostler.mountsDriver" . }}
- name: driver
  hostPath:
    path: {{ printf "%s%s" (.Values.driverRoot | trimSuffix "/") (include "ostler.driverFolder" .) | default "/" | quote }}
    type: Directory
{{- end }}
{{- if and .Values.nics.enabled .Values.nics.udev }}
- name: udev
  hostPath:
    path: /run/udev
    type: Directory
{{- end }}
{{- if and .Values.nics.virtualFunctions (ne .Values.nvidia.access "privileged") }}
- name: sys-devices
  hostPath:
    path: /sys/devices
    type: Directory
{{- end }}
{{- if .Values.nics.moveInterfaces }}
# Either may be missing: the doctor and an event say so if NRI is off, and the runtime makes the other with the first pod.
- name: nri
  hostPath:
    path: /var/run/nri
    type: DirectoryOrCreate
- name: netns
  hostPath:
    path: /var/run/netns
    type: DirectoryOrCreate
{{- end }}
{{- if .Values.nvidia.mps }}
- name: mps
  hostPath:
    path: {{ include "ostler.mpsRoot" . | quote }}
    type: DirectoryOrCreate
{{- end }}
{{- end -}}

{{/* Of the node's own root only /usr, where libraries are; all of it where every file of the driver has to be listed. */}}
{{- define "ostler.driverFolder" -}}
{{- if and (eq .Values.driverRoot "/") (not (include "ostler.usesMode" (list . "full"))) -}}/usr{{- end -}}
{{- end -}}

{{/* The folder of MPS, as the agent's configuration has it. */}}
{{- define "ostler.mpsRoot" -}}
{{- (.Values.config.nvidia | default dict).mpsRoot | default "/run/nvidia/mps" -}}
{{- end -}}

{{/* The DRA driver's own folder among those of the kubelet's plugins. */}}
{{- define "ostler.driverData" -}}
{{- printf "%s/plugins/%s" (.Values.kubeletRoot | trimSuffix "/") .Values.dra.driverName -}}
{{- end -}}
