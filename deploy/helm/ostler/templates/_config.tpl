{{/* The agent's configuration: what the chart needs to know of it, and what it must not say. */}}

{{/* The rules' options and the options of all rules, as a list of mappings. */}}
{{- define "ostler.options" -}}
{{- $found := list (.Values.config.defaults | default dict) -}}
{{- range .Values.config.resources | default list -}}
{{- $found = append $found . -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- define "ostler.usesCdi" -}}
{{- $used := or .Values.dra.enabled (eq .Values.cdiAccess "always") -}}
{{- range include "ostler.options" . | fromJsonArray -}}
{{- range .deviceListStrategy | default list -}}
{{- if hasPrefix "cdi-" . -}}{{- $used = true -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if $used -}}true{{- end -}}
{{- end -}}

{{/* Whether some rule has this cdiMode; call with (list $ "full"). */}}
{{- define "ostler.usesMode" -}}
{{- $mode := index . 1 -}}
{{- $used := false -}}
{{- range include "ostler.options" (index . 0) | fromJsonArray -}}
{{- if eq (.cdiMode | default "") $mode -}}{{- $used = true -}}{{- end -}}
{{- end -}}
{{- if $used -}}true{{- end -}}
{{- end -}}

{{/* Whether the driver root is mounted: to load NVML from it, or to list the driver's files for CDI. */}}
{{- define "ostler.mountsDriver" -}}
{{- if or (eq .Values.nvidia.access "privileged") (include "ostler.usesMode" (list . "full")) -}}true{{- end -}}
{{- end -}}

{{/* Whether probes and metrics are on the loopback alone. */}}
{{- define "ostler.loopback" -}}
{{- if regexMatch "^(127[.]|\\[::1\\]$)" .Values.http.address -}}true{{- end -}}
{{- end -}}

{{/* The host that the kubelet's probes go to, where that is not the pod's address. */}}
{{- define "ostler.probedHost" -}}
{{- if include "ostler.loopback" . -}}
host: {{ .Values.http.address | trimPrefix "[" | trimSuffix "]" | quote }}
{{- end -}}
{{- end -}}

{{/* Contradictions, each with what to do about it. */}}
{{- define "ostler.check" -}}
{{- $config := .Values.config -}}
{{- if and .Values.configText (gt (len $config) 2) -}}
{{- fail "config and configText are both given: remove one of them" -}}
{{- end -}}
{{- $owned := dict
  "nodeName" "the chart gives each pod the name of its node: remove it"
  "instance" "the chart names its instances: remove it"
  "socket" "the agent's socket is inside its pod: remove it"
  "roots" "/sys and /proc are where a container has them: remove it"
  "state" "set stateDir"
  "http" "set http.port or http.address"
  "kubernetes" "set events.enabled, dra.doorByNode, patchAllocatable.enabled or recordedDevices.enabled"
  "dra" "set dra.driverName, dra.alsoPublishAs, dra.taintEffect, dra.deviceMetadata or dra.requireDeviceMetadata"
  "cdi" "set cdiRoot"
  "topology" "set topology, the text of the file" -}}
{{- range $key, $advice := $owned -}}
{{- if hasKey $config $key -}}
{{- fail (printf "config.%s: %s" $key $advice) -}}
{{- end -}}
{{- end -}}
{{- $inner := dict
  "kubelet" (dict "devicePluginDir" "set devicePluginDir" "pluginsRegistryDir" "set kubeletRoot")
  "nvidia" (dict "driverRoot" "set driverRoot" "devRoot" "set devRoot" "driverRootMount" "the chart decides it: remove it" "devRootMount" "the chart decides it: remove it" "library" "set driverRoot, or nvidia.access" "migConfigFile" "set nvidia.migLayouts, the text of the file") -}}
{{- range $section, $keys := $inner -}}
{{- range $key, $advice := $keys -}}
{{- if hasKey (get $config $section | default dict) $key -}}
{{- fail (printf "config.%s.%s: %s" $section $key $advice) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.recording (hasKey ($config.inventory | default dict) "recorded") -}}
{{- fail "config.inventory.recorded and recording are both given: remove one of them" -}}
{{- end -}}
{{- include "ostler.checkRules" . -}}
{{- include "ostler.checkDra" . -}}
{{- include "ostler.checkPatchAllocatable" . -}}
{{- include "ostler.checkEvictByName" . -}}
{{- include "ostler.checkRecordedDevices" . -}}
{{- include "ostler.checkLabels" . -}}
{{- if include "ostler.loopback" . -}}
{{- if not .Values.nics.enabled -}}
{{- fail "http.address is one of the machine's own alone, and the kubelet's probes come to the address of the pod: give that one, or leave it empty; networkPolicy.enabled keeps others from it" -}}
{{- end -}}
{{- if .Values.podMonitor.enabled -}}
{{- fail "http.address is the node's loopback, where podMonitor.enabled scrapes nothing: leave one of them out" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled .Values.nics.enabled -}}
{{- fail "networkPolicy.enabled has no effect on pods in the network of the node (nics.enabled): set http.address to 127.0.0.1 instead, or have the node's own firewall keep others from http.port" -}}
{{- end -}}
{{- if and .Values.nodeFeatureDiscovery (.Values.affinity | default dict).nodeAffinity -}}
{{- fail "affinity.nodeAffinity and nodeFeatureDiscovery are both given: remove one of them" -}}
{{- end -}}
{{- end -}}

{{/* Labels that the chart gives itself: one of them given again would either be lost or keep objects from being found. */}}
{{- define "ostler.checkLabels" -}}
{{- $ofObjects := include "ostler.labels" (dict "Values" dict "Release" .Release "Chart" .Chart) | fromYaml -}}
{{- $ofPods := include "ostler.selectorLabels" . | fromYaml -}}
{{- range $value, $labels := dict "commonLabels" .Values.commonLabels "podLabels" .Values.podLabels "podMonitor.labels" .Values.podMonitor.labels "prometheusRule.labels" .Values.prometheusRule.labels -}}
{{- range $key, $_ := $labels -}}
{{- if hasKey (ternary $ofPods $ofObjects (eq $value "podLabels")) $key -}}
{{- fail (printf "%s: the chart gives the label %s itself: remove it" $value $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Rules for devices that the pods would not see. */}}
{{- define "ostler.checkRules" -}}
{{- $config := .Values.config -}}
{{- $nicFacts := list "pciVendors" "pciDevices" "functions" "interfaces" "rootDevices" "linkTypes" "rdma" "acpiIndexes" "pKeys" -}}
{{- $mig := has (($config.nvidia | default dict).migStrategy | default "none") (list "single" "mixed") -}}
{{- range $index, $rule := $config.resources | default list -}}
{{- $devices := $rule.devices | default dict -}}
{{- $kinds := kindIs "slice" $devices.kind | ternary $devices.kind (list $devices.kind) -}}
{{- if has "mig" $kinds -}}{{- $mig = true -}}{{- end -}}
{{- $nic := or (has "nic" $kinds) (has "rdma" $kinds) -}}
{{- range $nicFacts -}}
{{- if hasKey $devices . -}}{{- $nic = true -}}{{- end -}}
{{- end -}}
{{- if and $nic (not $.Values.nics.enabled) (not $.Values.recording) -}}
{{- fail (printf "config.resources[%d] selects NICs, which a pod sees only in the network namespace of the node: set nics.enabled=true" $index) -}}
{{- end -}}
{{- end -}}
{{- if and (regexMatch "\"?resourceList\"?\\s*:" .Values.configText) (not .Values.nics.enabled) (not .Values.recording) -}}
{{- fail "configText is a file of the SR-IOV network device plugin, whose NICs a pod sees only in the network namespace of the node: set nics.enabled=true" -}}
{{- end -}}
{{- if and $config.virtualFunctions (not .Values.nics.virtualFunctions) (ne .Values.nvidia.access "privileged") (not .Values.recording) -}}
{{- fail "config.virtualFunctions makes virtual functions, for which the agent writes to the node's /sys: set nics.virtualFunctions=true" -}}
{{- end -}}
{{- $moves := false -}}
{{- range $config.resources | default list -}}
{{- if .moveInterface -}}{{- $moves = true -}}{{- end -}}
{{- end -}}
{{- if and $moves (not .Values.nics.moveInterfaces) (not .Values.recording) -}}
{{- fail "config moves interfaces into pods (moveInterface), for which the agent needs more rights: set nics.moveInterfaces=true" -}}
{{- end -}}
{{- if and .Values.nics.moveInterfaces (not .Values.nics.enabled) -}}
{{- fail "nics.moveInterfaces is true, but nics.enabled is false: set it to true" -}}
{{- end -}}
{{- if and .Values.nics.moveInterfaces (not .Values.dra.enabled) -}}
{{- fail "nics.moveInterfaces is true, but dra.enabled is false: interfaces move into the pods of claims, so set it to true" -}}
{{- end -}}
{{- if and .Values.nics.virtualFunctions (not .Values.nics.enabled) -}}
{{- fail "nics.virtualFunctions is true, but nics.enabled is false: set it to true" -}}
{{- end -}}
{{- include "ostler.checkDivided" . -}}
{{- $mps := false -}}
{{- range $config.resources | default list -}}
{{- if eq ((.sharing | default dict).strategy | default "") "mps" -}}{{- $mps = true -}}{{- end -}}
{{- end -}}
{{- if and $mps (not .Values.nvidia.mps) (not .Values.recording) -}}
{{- fail "config shares GPUs by MPS, whose daemons the agent runs only with more rights: set nvidia.mps=true and nvidia.access=privileged" -}}
{{- end -}}
{{- if and .Values.nvidia.mps (ne .Values.nvidia.access "privileged") -}}
{{- fail (printf "nvidia.mps is true, but nvidia.access is %s: set it to privileged" .Values.nvidia.access) -}}
{{- end -}}
{{- if and $mig (eq .Values.nvidia.access "runtime") (not .Values.nvidia.mig) (not .Values.recording) -}}
{{- fail "config offers MIG devices, whose state NVIDIA's container runtime shows only to a container with SYS_ADMIN: set nvidia.mig=true, or nvidia.access=privileged" -}}
{{- end -}}
{{- end -}}

{{/* GPUs that the agent divides by MIG: the driver lets a privileged container do it, and no other. */}}
{{- define "ostler.checkDivided" -}}
{{- $layouts := .Values.nvidia.migLayouts -}}
{{- $named := (.Values.config.nvidia | default dict).migConfig | default "" -}}
{{- if and $layouts .Values.configText -}}
{{- fail "nvidia.migLayouts and configText are both given: write the resources into config, or divide the GPUs yourself" -}}
{{- end -}}
{{- if and $layouts (not $named) -}}
{{- fail "nvidia.migLayouts is given, but not which of its configurations to use: set config.nvidia.migConfig" -}}
{{- end -}}
{{- if and $named (not $layouts) -}}
{{- fail (printf "config.nvidia.migConfig is %s, but no file has it: set nvidia.migLayouts, the text of the file" $named) -}}
{{- end -}}
{{- $divided := ternary "config.nvidia.migConfig divides" "" (ne $named "") -}}
{{- range $index, $rule := .Values.config.resources | default list -}}
{{- if or (eq ($rule.partitions | default "none") "onDemand") ($rule.mig | default dict).layout -}}
{{- $divided = printf "config.resources[%d] divides" $index -}}
{{- end -}}
{{- end -}}
{{- if and $divided (ne .Values.nvidia.access "privileged") (not .Values.recording) -}}
{{- fail (printf "%s GPUs by MIG, which the driver lets only a privileged container do: set nvidia.access=privileged" $divided) -}}
{{- end -}}
{{- end -}}

{{/* What the second door needs, and names that a class would take from the first one. */}}
{{- define "ostler.checkDra" -}}
{{- if and .Values.dra.enabled (semverCompare "<1.34-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "dra.enabled needs Kubernetes 1.34, and this cluster has %s: set it to false" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and .Values.dra.extendedResources (not .Values.dra.enabled) -}}
{{- fail "dra.extendedResources has names, but dra.enabled is false: set it to true" -}}
{{- end -}}
{{- if and .Values.dra.doorByNode (not .Values.dra.enabled) -}}
{{- fail "dra.doorByNode is true, but dra.enabled is false: set it to true" -}}
{{- end -}}
{{- if and .Values.dra.alsoPublishAs (not .Values.dra.enabled) -}}
{{- fail "dra.alsoPublishAs has names, but dra.enabled is false: set it to true" -}}
{{- end -}}
{{- $names := dict -}}
{{- range .Values.dra.extendedResources | default list -}}
{{- $name := include "ostler.extendedClass" . -}}
{{- if hasKey $names $name -}}
{{- fail (printf "dra.extendedResources: %s and %s would have one class: leave one out" (get $names $name) .) -}}
{{- end -}}
{{- $_ := set $names $name . -}}
{{- end -}}
{{- range $index, $rule := .Values.config.resources | default list -}}
{{- if and (has $rule.door (list "dra" "both")) (not $.Values.dra.enabled) -}}
{{- fail (printf "config.resources[%d] has door %s: set dra.enabled=true" $index $rule.door) -}}
{{- end -}}
{{- end -}}
{{- include "ostler.checkExtended" . -}}
{{- end -}}

{{/* The right to write Nodes' status is given with a policy alone: a role cannot say "its own" or "allocatable". */}}
{{- define "ostler.checkPatchAllocatable" -}}
{{- if .Values.patchAllocatable.enabled -}}
{{- if not (include "ostler.policies" .) -}}
{{- fail "patchAllocatable.enabled is true, but without an admission policy every agent could write the status of every Node: set admissionPolicy.enabled=true (Kubernetes 1.30 and later), or patchAllocatable.enabled=false" -}}
{{- end -}}
{{- if not .Values.patchAllocatable.resources -}}
{{- fail "patchAllocatable.enabled is true, but patchAllocatable.resources is empty: give the resources that the agents serve" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The right to write pods' status is given with a policy alone: a role cannot say "of its own node". */}}
{{- define "ostler.checkRecordedDevices" -}}
{{- if and .Values.recordedDevices.enabled (not (include "ostler.policies" .)) -}}
{{- fail "recordedDevices.enabled is true, but without an admission policy every agent could write the status of every pod: set admissionPolicy.enabled=true (Kubernetes 1.30 and later), or recordedDevices.enabled=false" -}}
{{- end -}}
{{- end -}}

{{/* The right to delete pods is given with a policy alone: a role cannot say "of its own node". */}}
{{- define "ostler.checkEvictByName" -}}
{{- if and .Values.dra.evictByName (not .Values.dra.enabled) -}}
{{- fail "dra.evictByName is true, but dra.enabled is false: set it to true, or leave dra.evictByName out" -}}
{{- end -}}
{{- if and .Values.dra.evictByName (not (include "ostler.policies" .)) -}}
{{- fail "dra.evictByName is true, but without an admission policy every agent could delete every pod: set admissionPolicy.enabled=true (Kubernetes 1.30 and later), or dra.evictByName=false" -}}
{{- end -}}
{{- end -}}

{{/* Names that pods ask for as before: some rule must offer each by claims, and none through the first door alone. */}}
{{- define "ostler.checkExtended" -}}
{{- range $name := .Values.dra.extendedResources | default list -}}
{{- $served := ne $.Values.configText "" -}}
{{- range $index, $rule := $.Values.config.resources | default list -}}
{{- if regexMatch (printf "^%s$" (regexQuoteMeta $rule.name | replace "\\{profile\\}" "[0-9a-z.-]+")) $name -}}
{{- if and (eq ($rule.door | default "plugin") "plugin") (not $.Values.dra.doorByNode) -}}
{{- fail (printf "dra.extendedResources has %s, which config.resources[%d] offers through the door plugin: give that one door dra or both, or leave the name out" $name $index) -}}
{{- end -}}
{{- $served = true -}}
{{- end -}}
{{- end -}}
{{- if not $served -}}
{{- fail (printf "dra.extendedResources has %s, which no rule of config.resources offers through the door dra: add one, or leave the name out" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Name of the class that serves an extended resource; call with the resource's name. */}}
{{- define "ostler.extendedClass" -}}
{{- . | lower | replace "/" "-" | replace "_" "-" -}}
{{- end -}}
