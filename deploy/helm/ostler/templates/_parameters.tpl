{{/*
CEL about the parameters of a claim, for the policy that checks them when a claim is created. The agent checks them again
when it prepares the claim, and more strictly: what this refuses the agent would refuse as well.

Every expression asks for the type of a value before it uses it, because an expression that fails refuses the claim
without saying why. A problem is a text with the field, the value and what to write.
*/}}

{{/* A value as it is written, for messages; call with its name in CEL. */}}
{{- define "ostler.shown" -}}
(type({{ . }}) == string ? '"' + {{ . }} + '"' : type({{ . }}) == int || type({{ . }}) == double || type({{ . }}) == bool ? string({{ . }}) : 'the value')
{{- end -}}

{{/*
A problem unless a field is absent or fits; call with (dict "in" "CEL of its object" "at" "CEL of its path" "field" "..."
"fits" "CEL with VALUE in the place of the value" "fix" "...").
*/}}
{{- define "ostler.problem" -}}
{{- $value := printf "%s.%s" .in .field -}}
(!{{ .in }}.?{{ .field }}.hasValue() || ({{ replace "VALUE" $value .fits }}) ? '' :
{{ .at }} + '.{{ .field }}: ' + {{ include "ostler.shown" $value }} + ' cannot be used; {{ .fix }}')
{{- end -}}

{{/*
The problems of a list's items, or that it is too long; call with (dict "in" "..." "at" "..." "field" "..." "most" 16 "fits"
"CEL with ITEM in the place of the item" "fix" "..."). ITEM is the name of a variable of CEL.
*/}}
{{- define "ostler.problemsOfList" -}}
{{- $list := printf "%s.%s" .in .field -}}
(!{{ .in }}.?{{ .field }}.hasValue() ? [] :
type({{ $list }}) != list || {{ $list }}.size() > {{ .most }} ?
[{{ .at }} + '.{{ .field }}: it must be a list of at most {{ .most }} {{ .field }}; {{ .fix }}'] :
{{ $list }}.filter(ITEM, !({{ .fits }})).map(ITEM,
{{ .at }} + '.{{ .field }}[' + string({{ $list }}.indexOf(ITEM)) + ']: ' + {{ include "ostler.shown" "ITEM" }} + ' cannot be used; {{ .fix }}'))
{{- end -}}

{{/* CEL: an optional field of ITEM is absent or fits; call with (list "field" "CEL with VALUE"). */}}
{{- define "ostler.optional" -}}
{{- $value := printf "ITEM.%s" (first .) -}}
(!ITEM.?{{ first . }}.hasValue() || ({{ replace "VALUE" $value (last .) }}))
{{- end -}}

{{- define "ostler.isText" -}}type(VALUE) == string{{- end -}}
{{- define "ostler.isTruth" -}}type(VALUE) == bool{{- end -}}
{{- define "ostler.isNetwork" -}}type(VALUE) == string && isCIDR(VALUE){{- end -}}
{{- define "ostler.isHost" -}}type(VALUE) == string && isIP(VALUE){{- end -}}
{{- define "ostler.isAddress" -}}type(VALUE) == string && isCIDR(VALUE) && (cidr(VALUE).ip().isGlobalUnicast() || cidr(VALUE).ip().isLinkLocalUnicast()){{- end -}}
{{- define "ostler.isStation" -}}type(VALUE) == string && VALUE.matches('^[0-9A-Fa-f][02468ACEace](:[0-9A-Fa-f]{2}){5}$') && !VALUE.matches('^[0:]+$'){{- end -}}
{{/* Call with (list least most). */}}
{{- define "ostler.isNumber" -}}type(VALUE) == int && VALUE >= {{ first . }} && VALUE <= {{ last . }}{{- end -}}
{{- define "ostler.isTable" -}}{{ include "ostler.isNumber" (list 1 4294967295) }} && VALUE != 255{{- end -}}

{{/* Fields of each kind of parameters; those that only a DeviceClass may have are among them. */}}
{{- define "ostler.parameterFields" -}}
{"GpuConfig": ["gdrcopy", "gds", "mofed", "imexChannels", "imexRequired", "sharing"],
"MigConfig": ["gdrcopy", "gds", "mofed", "sharing"],
"NicConfig": ["rdma", "vhostNet", "nccl", "interface"]}
{{- end -}}

{{/* Settings of an interface that a claim may have, by their values; other settings are a class's. */}}
{{- define "ostler.sysctlValues" -}}
{"ipv4.accept_local": [0, 1], "ipv4.arp_announce": [0, 1, 2], "ipv4.arp_filter": [0, 1],
"ipv4.arp_ignore": [0, 1, 2, 3, 8], "ipv4.rp_filter": [0, 1, 2], "ipv4.src_valid_mark": [0, 1],
"ipv6.accept_ra": [0, 1, 2], "ipv6.autoconf": [0, 1], "ipv6.disable_ipv6": [0, 1]}
{{- end -}}

{{/* The offloads that a claim may switch, as a regular expression. */}}
{{- define "ostler.offloads" -}}
^(rx|tx|sg|tso|gso|gro|lro|rxvlan|txvlan|rxhash|(rx|tx)-checksumming|scatter-gather|receive-hashing|(tcp|generic)-segmentation-offload|(generic|large)-receive-offload|(rx|tx)-vlan-offload|rx-checksum|rx-hashing|rx-lro|rx-gro(-hw|-list)?|rx-udp-gro-forwarding|rx-vlan-hw-parse|tx-checksum-[a-z0-9-]+|tx-scatter-gather(-fraglist)?|tx-[a-z0-9-]*segmentation|tx-vlan-hw-insert|tx-nocache-copy)$
{{- end -}}
