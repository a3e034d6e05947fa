{{/*
A policy and its binding for the writes of the agents' service account; call with
(dict "root" $ "name" "..." "groups" (list ...) "resource" "..." "operations" (list ...) "about" "CEL" "what" "...").

A role cannot say "of its own node". The token of a pod says which node the pod is on (Kubernetes 1.30 and later), so a
policy can. ``about`` is CEL for the name of the node that the variable ``written`` belongs to, and empty for none. The
new object and the stored one are both checked: an update cannot take an object over or give it away, and a delete has
the stored object alone. A token without a node, such as one made by hand, may write nothing.

``also``: CEL that must hold besides, of ``variables.written`` or of ``object`` and ``oldObject``; ``rule``: what it
demands, for people.
*/}}

{{- define "ostler.policies" -}}
{{- if and .Values.admissionPolicy.enabled (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1") (semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version) -}}true{{- end -}}
{{- end -}}

{{- define "ostler.policy" -}}
{{- $name := printf "%s-%s" (include "ostler.fullname" .root) .name -}}
{{- $user := printf "system:serviceaccount:%s:%s" .root.Release.Namespace (include "ostler.serviceAccountName" .root) -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ $name | quote }}
  labels:
    {{- include "ostler.labels" .root | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: {{ toJson .groups }}
        apiVersions: ["*"]
        resources: [{{ .resource }}]
        operations: {{ toJson .operations }}
  matchConditions:
    - name: is-ostler
      expression: request.userInfo.username == {{ $user | squote }}
  variables:
    - name: node
      expression: request.userInfo.extra[?'authentication.kubernetes.io/node-name'][0].orValue('')
    - name: written
      expression: >-
        (object == null ? [] : [object]) + (oldObject == null ? [] : [oldObject])
  validations:
    - expression: >-
        variables.node != '' && variables.written.all(written, {{ .about }} == variables.node)
      messageExpression: >-
        variables.node == '' ? 'ostler writes {{ .what }} only with the token of a pod that is on a node' :
        'the agent on node ' + variables.node + ' may write {{ .what }} of that node alone'
      reason: Forbidden
    {{- with .also }}
    - expression: >-
        {{ . }}
      message: {{ $.rule | quote }}
      reason: Forbidden
    {{- end }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name | quote }}
  labels:
    {{- include "ostler.labels" .root | nindent 4 }}
spec:
  policyName: {{ $name | quote }}
  validationActions: [Deny]
{{- end -}}

{{/*
CEL: the status of a pod is written that the scheduler made a claim for, and nothing differs but its DisruptionTarget.
*/}}
{{- define "ostler.onlyDisruptionTarget" -}}
oldObject.?status.?extendedResourceClaimStatus.hasValue() &&
        {{ range $part, $free := dict "metadata" (list "managedFields" "resourceVersion") "status" (list "conditions") -}}
dyn(object.{{ $part }}).all(key, key in {{ toJson $free }} || dyn(object.{{ $part }})[key] == dyn(oldObject.{{ $part }})[?key].orValue(null)) &&
        dyn(oldObject.{{ $part }}).all(key, key in {{ toJson $free }} || key in dyn(object.{{ $part }})) &&
        {{ end -}}
object.status.?conditions.orValue([]).all(each, each.type == 'DisruptionTarget' ||
        each in oldObject.status.?conditions.orValue([])) &&
        oldObject.status.?conditions.orValue([]).all(each, each.type == 'DisruptionTarget' ||
        each in object.status.?conditions.orValue([]))
{{- end -}}

{{/*
CEL: a pod is written that has one of the annotations ``had``, and nothing differs but the annotations ``written``; call
with (dict "had" (list ...) "written" (list ...)).
*/}}
{{- define "ostler.onlyAnnotations" -}}
oldObject.metadata.?annotations.orValue({}).exists(key, key in {{ toJson .had }}) &&
        {{ range $part, $free := dict "metadata" (list "annotations" "managedFields" "resourceVersion") "status" list -}}
dyn(object.{{ $part }}).all(key, key in {{ toJson $free }} || dyn(object.{{ $part }})[key] == dyn(oldObject.{{ $part }})[?key].orValue(null)) &&
        dyn(oldObject.{{ $part }}).all(key, key in {{ toJson $free }} || key in dyn(object.{{ $part }})) &&
        {{ end -}}
object.metadata.?annotations.orValue({}).all(key, key in {{ toJson .written }} ||
        (key in oldObject.metadata.annotations && object.metadata.annotations[key] == oldObject.metadata.annotations[key])) &&
        oldObject.metadata.annotations.all(key, key in object.metadata.?annotations.orValue({}))
{{- end -}}

{{/*
CEL: a pod is written that has devices recorded by a scheduler, and nothing differs but the annotations that say which.
An agent cannot make a pod one of those: it had a record before.
*/}}
{{- define "ostler.onlyRecordedDevices" -}}
{{- $recorded := list "hivedscheduler.microsoft.com/pod-leaf-cell-isolation" "ostler.dev/pod-devices" -}}
{{- include "ostler.onlyAnnotations" (dict "had" $recorded "written" (append $recorded "ostler.dev/pod-allocated-devices")) -}}
{{- end -}}

{{/*
CEL: a Node's status is written, and nothing differs from before but the allocatable of resources that agents serve: whole
numbers up to the capacity that the kubelet has reported. ``dyn``: fields that Kubernetes does not have yet count as well.
*/}}
{{- define "ostler.onlyAllocatable" -}}
{{- $names := list -}}
{{- $prefixes := list -}}
{{- range .Values.patchAllocatable.resources -}}
{{- if hasSuffix "*" . -}}
{{- $prefixes = append $prefixes (trimSuffix "*" .) -}}
{{- else -}}
{{- $names = append $names . -}}
{{- end -}}
{{- end -}}
{{- range $part, $free := dict "metadata" (list "managedFields" "resourceVersion") "status" (list "allocatable") -}}
dyn(object.{{ $part }}).all(key, key in {{ toJson $free }} || dyn(object.{{ $part }})[key] == dyn(oldObject.{{ $part }})[?key].orValue(null)) &&
        dyn(oldObject.{{ $part }}).all(key, key in {{ toJson $free }} || key in dyn(object.{{ $part }})) &&
        {{ end -}}
object.?spec == oldObject.?spec &&
        oldObject.status.?allocatable.orValue({}).all(name, name in object.status.?allocatable.orValue({})) &&
        object.status.?allocatable.orValue({}).all(name, name in oldObject.status.?allocatable.orValue({}) &&
        (object.status.allocatable[name] == oldObject.status.allocatable[name] ||
        ((name in {{ toJson $names }} || {{ toJson $prefixes }}.exists(prefix, name.startsWith(prefix))) &&
        name in object.status.?capacity.orValue({}) && quantity(object.status.allocatable[name]).isInteger() &&
        quantity(object.status.allocatable[name]).compareTo(quantity('0')) >= 0 &&
        quantity(object.status.allocatable[name]).compareTo(quantity(object.status.capacity[name])) <= 0)))
{{- end -}}
