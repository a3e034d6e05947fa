{{/*
The pod, as a function of the values and the name of the instance: call with (dict "root" $ "instance" "...").

The name is a hash of the pod without it and of the configuration, so that agents are replaced exactly when something
changes that they would have to be restarted for, and an old and a new one on a node never have the same name.
*/}}

{{- define "ostler.instance" -}}
{{- $pod := include "ostler.pod" (dict "root" . "instance" "") -}}
{{- $files := include "ostler.files" . -}}
{{- printf "%s\n%s" $pod $files | sha256sum | trunc 10 -}}
{{- end -}}

{{- define "ostler.pod" -}}
{{- $ := .root -}}
{{- $values := $.Values -}}
{{- $privileged := eq $values.nvidia.access "privileged" -}}
{{- $devRoot := $values.devRoot | default $values.driverRoot -}}
{{- $showsMig := and $values.nvidia.mig (eq $values.nvidia.access "runtime") -}}
{{- $moves := $values.nics.moveInterfaces -}}
metadata:
  labels:
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- include "ostler.selectorLabels" $ | nindent 4 }}
  {{- with $values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "ostler.serviceAccountName" $ | quote }}
  automountServiceAccountToken: {{ include "ostler.apiServer" $ | eq "true" }}
  # The agent ends within a second, or within four when it hands over; what is left is for the container runtime.
  terminationGracePeriodSeconds: 10
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with $values.runtimeClassName }}
  runtimeClassName: {{ . | quote }}
  {{- end }}
  {{- with $values.imagePullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . | quote }}
    {{- end }}
  {{- end }}
  {{- if $values.hostPID }}
  # A driver tells of processes by the ids that they have in the namespace of whoever asks.
  hostPID: true
  {{- end }}
  # Folders of the kubelet are root's, and uevents are sent to the first user namespace alone.
  hostUsers: true
  {{- if $values.nics.enabled }}
  # Interfaces, their events and their addresses are those of a network namespace. No port is declared below, because
  # the scheduler would keep two pods with the same one off a node, and an update needs two.
  hostNetwork: true
  {{- end }}
  # The API server is found by its address, so nothing is looked up in the cluster.
  dnsPolicy: Default
  enableServiceLinks: false
  securityContext:
    # In the kubelet's folders only root may write. It has none of root's capabilities.
    runAsUser: 0
    runAsGroup: 0
    seccompProfile:
      type: RuntimeDefault
    {{- with $values.seLinuxOptions }}
    seLinuxOptions:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  containers:
    - name: ostler
      image: {{ include "ostler.image" $ | quote }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      args:
        - run
        - --config=/etc/ostler/config.yaml
        - --instance={{ .instance }}
        - --http={{ $values.http.address | default (ternary "$(POD_IP)" "0.0.0.0" $values.nics.enabled) }}:{{ $values.http.port }}
        - --kubernetes-events={{ ternary "on" "off" $values.events.enabled }}
        {{- if $values.patchAllocatable.enabled }}
        - --kubernetes-patch-allocatable=on
        {{- end }}
        {{- if $values.recordedDevices.enabled }}
        - --kubernetes-recorded-devices=on
        {{- end }}
        - {{ printf "--nvidia-driver-root=%s" $values.driverRoot | quote }}
        - --nvidia-driver-root-mount={{ include "ostler.mountsDriver" $ | eq "true" | ternary "/driver-root" "/" }}
        - {{ printf "--nvidia-dev-root=%s" $devRoot | quote }}
        - --nvidia-dev-root-mount={{ ternary "/" "/host" $privileged }}
        {{- if $values.dra.enabled }}
        - {{ printf "--dra-driver-name=%s" $values.dra.driverName | quote }}
        - {{ printf "--dra-plugins-dir=%s/plugins" ($values.kubeletRoot | trimSuffix "/") | quote }}
        {{- with $values.dra.alsoPublishAs }}
        - --dra-also-publish-as={{ join "," . }}
        {{- end }}
        - --dra-taint-effect={{ $values.dra.taintEffect }}
        {{- with $values.dra.deviceMetadata }}
        - --dra-device-metadata={{ join "," . }}
        - --dra-require-device-metadata={{ $values.dra.requireDeviceMetadata }}
        {{- end }}
        - --kubernetes-door-by-node={{ ternary "on" "off" $values.dra.doorByNode }}
        {{- end }}
        {{- if $values.topology }}
        - --topology-file=/etc/ostler/topology
        {{- end }}
        {{- if $values.recording }}
        - --recorded=/etc/ostler/recording.yaml
        {{- end }}
      env:
        - name: OSTLER_NODE_NAME
          valueFrom:
            fieldRef:
              fieldPath: spec.nodeName
        - name: POD_IP
          valueFrom:
            fieldRef:
              fieldPath: status.podIP
        {{- if eq $values.nvidia.access "runtime" }}
        # Words to NVIDIA's container runtime; no other one knows them.
        - name: NVIDIA_VISIBLE_DEVICES
          value: {{ $values.nvidia.visibleDevices | quote }}
        - name: NVIDIA_DRIVER_CAPABILITIES
          value: utility
        {{- if $values.nvidia.mig }}
        - name: NVIDIA_MIG_MONITOR_DEVICES
          value: all
        {{- end }}
        {{- end }}
      # Where it is can be written to, and in privileged pods /dev is the node's.
      terminationMessagePath: /run/termination-log
      terminationMessagePolicy: FallbackToLogsOnError
      securityContext:
        readOnlyRootFilesystem: true
        {{- if and (or $values.nics.virtualFunctions $moves) (not $privileged) }}
        # The runtimes' default profile forbids every write below /sys and to sysctls, also where they are writable.
        appArmorProfile:
          type: Unconfined
        {{- end }}
        {{- if $privileged }}
        # NVML opens /dev/nvidia*, which the device cgroup of an ordinary container forbids.
        privileged: true
        {{- else if or $showsMig $moves }}
        {{- if $showsMig }}
        # NVIDIA's container runtime gives the state of MIG devices to nobody without SYS_ADMIN, which implies escalation.
        {{- end }}
        {{- if $moves }}
        # The kernel lets nobody without them enter another network namespace, move interfaces, and hear of their links there.
        {{- end }}
        capabilities:
          drop: [ALL]
          add: [{{ $moves | ternary "NET_ADMIN, NET_BROADCAST, SYS_ADMIN" "SYS_ADMIN" }}]
        {{- else }}
        privileged: false
        allowPrivilegeEscalation: false
        capabilities:
          drop: [ALL]
        {{- end }}
      startupProbe:
        httpGet:
          path: /livez/{{ .instance }}
          port: {{ $values.http.port }}
          {{- with include "ostler.probedHost" $ }}
          {{- . | nindent 10 }}
          {{- end }}
        # An agent answers after a second; a probe before that only leaves a warning.
        initialDelaySeconds: 2
        periodSeconds: 1
        timeoutSeconds: 5
        failureThreshold: 60
      livenessProbe:
        httpGet:
          path: /livez/{{ .instance }}
          port: {{ $values.http.port }}
          {{- with include "ostler.probedHost" $ }}
          {{- . | nindent 10 }}
          {{- end }}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet:
          path: /readyz/{{ .instance }}
          port: {{ $values.http.port }}
          {{- with include "ostler.probedHost" $ }}
          {{- . | nindent 10 }}
          {{- end }}
        periodSeconds: 2
        timeoutSeconds: 5
        failureThreshold: 3
      resources:
        {{- toYaml ($values.resources | default dict) | nindent 8 }}
      volumeMounts:
        {{- include "ostler.mounts" $ | nindent 8 }}
  volumes:
    {{- include "ostler.volumes" $ | nindent 4 }}
  nodeSelector:
    {{- toYaml ($values.nodeSelector | default dict) | nindent 4 }}
  {{- with include "ostler.affinity" $ | fromYaml }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
