"""What can be written in a device's CEL, as templates by type: the words of the expression generator.

``{type}`` stands for an expression of that type, ``<x:type>`` for a fresh variable of it that the rest of the template
may use. Types are those of the language, lists and maps by the type they hold (``ints``, ``map_string_int``); ``any``
is every one of them. What ``b`` names is
not known in the next hole, its own value.
"""

from __future__ import annotations

# fmt: off
LEAVES: dict[str, tuple[str, ...]] = {
    "bool": (
        "true", "false", "device.allowMultipleAllocations",
    ),
    "int": (
        "0", "1", "-1", "2", "3", "5", "7", "8", "48", "64", "0x1F", "-0x8", "9223372036854775807",
        "-9223372036854775808", "9007199254740993", "1234567890",
    ),
    "uint": (
        "0u", "1u", "3U", "8u", "0xFFu", "18446744073709551615u",
    ),
    "double": (
        "0.0", "1.0", "-1.5", ".5", "2.5e3", "1e-3", "1E+2", "1e308", "9007199254740993.0",
        "9.223372036854776e18", 'double("NaN")', 'double("Infinity")', 'double("-Infinity")', "0.1",
    ),
    "string": (
        '""', '"a"', '"b"', "'abc'", '"H200-SXM"', '"gpu.example.com"', "device.driver", '"größe"', '"日本"',
        '"\\u00e9\\n"', '"\\x41\\101"', 'r"\\d+"', '"""x"y"""', "'''\nz'''", '"1.2.3"', '"10"', '"-5"', '"1.5"',
        '"true"', '"10.1.2.3"', '"10.0.0.0/8"', '"%s"', '"%d-%s"', '"a,b,,c"', '" trim\\t"', '"^[A-Z]+[0-9]*$"',
        '"(a|b)*c"', '"\\U0001F600x"', '"H200.*"', '"1Gi"', '"https://u@example.com:80/p%20q?x=1&x=2#f"',
        '"2023-01-02T03:04:05Z"', '"1h30m"', '"İstanbul"',
    ),
    "bytes": (
        'b""', 'b"abc"', "b'\\xff\\x00'", 'b"é"', 'br"\\x"', 'B"""q"""',
    ),
    "null": (
        "null",
    ),
    "quantity": (
        'quantity("1Gi")', 'quantity("0")', 'quantity("1500m")', 'quantity("-2k")', 'quantity("141Gi")',
        'quantity("1e3")', 'quantity("9223372036854775807")', 'quantity("1E")', 'quantity("0.5")',
        'quantity("1.25Mi")', 'quantity("1n")', 'quantity("+8")', 'device.capacity["gpu.example.com"].memory',
        'device.capacity[device.driver]["sm"]', 'device.capacity["gpu.example.com"].frac',
        'device.capacity["other.example.com"].links',
    ),
    "semver": (
        'semver("1.2.3")', 'semver("2.1.3-rc.1+build5")', 'semver("1.0.0-alpha.2")', 'semver("1.0.0-alpha.10")',
        'semver("v1.2", true)', 'semver("01.2.3", true)', 'semver("570.86.10")',
    ),
    "ip": (
        'ip("10.1.2.3")', 'ip("::1")', 'ip("224.0.0.1")', 'ip("0.0.0.0")', 'ip("FE80::A")', 'ip("8.8.8.8")',
    ),
    "cidr": (
        'cidr("10.0.0.0/8")', 'cidr("10.1.2.3/16")', 'cidr("fe80::/10")', 'cidr("::/0")',
    ),
    "url": (
        'url("https://u@example.com:80/p%20q?x=1&x=2#f")', 'url("/only/path")', 'url("http://[::1]:8080/")',
    ),
    "duration": (
        'duration("1h30m")', 'duration("-1.5s")', 'duration("1ms")', 'duration("9223372036s")',
    ),
    "timestamp": (
        'timestamp("2023-01-02T03:04:05Z")', 'timestamp("2024-02-29T23:59:59.123+02:00")', "timestamp(0)",
        'timestamp("9999-12-31T23:59:59Z")',
    ),
    "type": (
        "int", "string", "bool", "list", "map", "type", "double", "null_type", "uint", "bytes", "optional_type",
    ),
    "ints": (
        "[]", "[1]", "[3, 1, 2]", "[1, 1, 2]",
    ),
    "uints": (
        "[1u, 2u]",
    ),
    "doubles": (
        "[1.0, 2.5]", "[0.0]",
    ),
    "strings": (
        "[]", '["a"]', '["b", "a", "b"]', '["a", "é", ""]',
    ),
    "bools": (
        "[true]", "[false, true]",
    ),
    "quantities": (
        '[quantity("1"), quantity("1Ki")]',
    ),
    "semvers": (
        '[semver("1.0.0"), semver("2.0.0")]',
    ),
    "lists": (
        "[[1, 2], [], [3]]", "[[[1]], [[2, 3]]]",
    ),
    "mixed": (
        '[1, "a"]', "[dyn(1), dyn(2.0)]", "[1, 1u]", '[dyn("x"), dyn(null)]',
    ),
    "map_string_int": (
        "{}", '{"a": 1}', '{"a": 1, "b": 2}',
    ),
    "map_int_string": (
        '{1: "a", 2: "b"}',
    ),
    "map_mixed": (
        '{"a": 1, "b": "x"}', "{1: true, 2u: false}", '{dyn("k"): dyn(1)}',
    ),
    "dyn": (
        'device.attributes["gpu.example.com"].model', 'device.attributes["gpu.example.com"].slots',
        'device.attributes["gpu.example.com"].ecc', 'device.attributes["gpu.example.com"].fw',
        'device.attributes["gpu.example.com"].drv', 'device.attributes["gpu.example.com"].ip',
        'device.attributes["gpu.example.com"]["ints"]', 'device.attributes["gpu.example.com"].strs',
        "device.attributes[device.driver].vers", 'device.attributes["gpu.example.com"].bools',
        'device.attributes["other.example.com"].zone', 'device.attributes["gpu.example.com"].empty', "dyn(1)",
        'dyn("a")', "dyn(null)", "dyn([1, 2])", 'dyn({"a": 1})',
    ),
    "opt": (
        "optional.none()", "optional.of(1)", 'device.attributes["gpu.example.com"].?model',
        'device.attributes[?"no.such"]', 'device.attributes["gpu.example.com"].?nosuch',
        'device.?attributes["gpu.example.com"].?slots', 'device.attributes["gpu.example.com"][?"ecc"]',
        "[1, 2][?5]", '{"a": 1}.?a', "optional.ofNonZeroValue(0)", 'device.capacity["gpu.example.com"].?memory',
    ),
    "attributes": (
        'device.attributes["gpu.example.com"]', 'device.attributes["no.such"]',
        "device.attributes[device.driver]",
    ),
    "format": (
        "format.dns1123Label()", 'format.named("date").value()', "format.uuid()", "format.uri()",
        "format.labelValue()", "format.qualifiedName()", "format.byte()", "format.datetime()",
    ),
    "wrapper": (
        "google.protobuf.Int64Value{value: 1}", "google.protobuf.Int64Value{}", "google.protobuf.Int32Value{value: 3}",
        "google.protobuf.UInt64Value{value: 2u}", "google.protobuf.UInt32Value{}",
        'google.protobuf.StringValue{value: "a"}', "google.protobuf.StringValue{}",
        "google.protobuf.BoolValue{value: true}", "google.protobuf.BoolValue{}",
        "google.protobuf.DoubleValue{value: 1.5}", "google.protobuf.FloatValue{value: 1.0}",
        'google.protobuf.BytesValue{value: b"a"}',
    ),
    "ident": (
        "device", "x", "nosuch", ".device", "as", "__result__", "in", "int",
    ),
}
"""Where nesting ends."""

ODD_LEAVES: dict[str, tuple[str, ...]] = {
    "int": (
        "9223372036854775808", "00", "1e", "0x",
    ),
    "uint": (
        "18446744073709551616u",
    ),
    "double": (
        "-1e309", "1.",
    ),
    "string": (
        '"\\0"', '"\\ud800"', '"\\q"', '"x', '"("',
    ),
    "quantity": (
        'quantity("")', 'quantity("1gi")', 'device.capacity["gpu.example.com"].nosuch',
        'quantity("12345678901234567890123")',
    ),
    "semver": (
        'semver("1.2")', 'semver("x", true)', 'semver("01.2.3")',
    ),
    "ip": (
        'ip("010.0.0.1")', 'ip("fe80::1%eth0")', 'ip("::ffff:1.2.3.4")',
    ),
    "cidr": (
        'cidr("10.0.0.0/33")',
    ),
    "url": (
        'url("x y")', 'url("")',
    ),
    "duration": (
        'duration("1d")', 'duration("999999999999h")',
    ),
    "timestamp": (
        'timestamp("x")', 'timestamp("2023-02-30T00:00:00Z")',
    ),
    "ints": (
        "[9223372036854775807, 1]",
    ),
    "map_int_string": (
        '{1: "a", 1: "b"}',
    ),
    "dyn": (
        'device.attributes["gpu.example.com"].nosuch', 'device.attributes["no.such"].x',
    ),
    "format": (
        "format.nosuch()",
    ),
}
"""Literals that do not compile or fail when they are evaluated."""

CALLS: dict[str, tuple[str, ...]] = {
    "bool": (
        "{bool} && {bool}", "{bool} || {bool}", "!{bool}", "{bool} ? {bool} : {bool}", "({bool})",
        "{bool} == {bool}", "{int} == {int}", "{int} < {int}", "{int} >= {int}", "{int} != {uint}",
        "{double} <= {double}", "{int} > {double}", "{uint} < {double}", "{string} == {string}",
        "{string} < {string}", "{bytes} == {bytes}", "{bytes} < {bytes}", "{dyn} == {any}", "{dyn} == {dyn}",
        "{dyn} < {dyn}", "{dyn} > {int}", "{dyn} >= {string}", "{any} == {any}", "{dyn}",
        "{string}.startsWith({string})", "{string}.endsWith({string})", "{string}.contains({string})",
        "{string}.matches({string})", "matches({string}, {string})", "{int} in {ints}", "{string} in {strings}",
        "{any} in {mixed}", "{dyn} in {dyn}", "{string} in {map_string_int}", "{string} in device.attributes",
        "{string} in {attributes}", "{dyn} in [{any}, {any}]", "has({attributes}.model)",
        "has({attributes}.nosuch)", "has(device.driver)", "has(device.nosuch)", "has({map_string_int}.a)",
        "{ints}.all(<x:int>, {bool})", "{ints}.exists(<x:int>, {bool})",
        "{strings}.exists_one(<x:string>, {bool})", "{strings}.all(<x:string>, {bool})",
        "{dyn}.exists(<x:dyn>, {bool})", "{dyn}.all(<x:dyn>, {bool})",
        "{attributes}.exists(<k:string>, {bool})", "device.attributes.all(<k:string>, {bool})",
        "{map_string_int}.exists(<k:string>, <v:int>, {bool})", "{ints}.all(<i:int>, <v:int>, {bool})",
        "{attributes}.all(<k:string>, <v:dyn>, {bool})", "{ints}.existsOne(<i:int>, <v:int>, {bool})",
        "{lists}.exists(<x:ints>, {bool})", "cel.bind(<b:attributes>, {attributes}, {bool})",
        "cel.bind(<b:int>, {int}, {bool})", "cel.bind(<b:dyn>, {dyn}, {bool})", "{opt}.hasValue()",
        "{opt} == {opt}", "{opt}.optMap(<x:dyn>, {bool}).orValue({bool})", "{opt}.or({opt}).hasValue()",
        "{quantity} == {quantity}", "{quantity}.isGreaterThan({quantity})", "{quantity}.isLessThan({quantity})",
        "{quantity}.isInteger()", "isQuantity({string})", "{semver} == {semver}",
        "{semver}.isLessThan({semver})", "{semver}.isGreaterThan({semver})", "{dyn}.isGreaterThan({semver})",
        "isSemver({string})", "isSemver({string}, {bool})", "{dyn}.includes({any})", "{any}.includes({any})",
        "{ints}.includes({int})", "{ints}.isSorted()", "{strings}.isSorted()", "{mixed}.isSorted()",
        "{dyn}.isSorted()", "{semvers}.isSorted()", "sets.contains({ints}, {ints})",
        "sets.intersects({strings}, {strings})", "sets.equivalent({ints}, {ints})",
        "sets.contains({dyn}, {strings})", "isIP({string})", "ip.isCanonical({string})", "{ip}.isLoopback()",
        "{ip}.isUnspecified()", "{ip}.isLinkLocalUnicast()", "{ip}.isGlobalUnicast()",
        "{ip}.isLinkLocalMulticast()", "{ip} == {ip}", "isCIDR({string})", "{cidr}.containsIP({ip})",
        "{cidr}.containsIP({string})", "{cidr}.containsCIDR({cidr})", "{cidr}.containsCIDR({string})",
        "{cidr} == {cidr}", "isURL({string})", "{url} == {url}", "{format}.validate({string}).hasValue()",
        "bool({string})", "{duration} < {duration}", "{timestamp} == {timestamp}", "{timestamp} > {timestamp}",
        "type({any}) == {type}", "{null} == {dyn}", "{ints} == {ints}", "{map_string_int} == {map_string_int}",
        "{attributes} == {map_mixed}", "{double} in {ints}", "{any}", "{ident} == {int}",
        "device.nosuch == {int}", "nosuch({int})", "dyn({bool})", "{doubles} == {ints}", "{type} == {type}",
        "google.protobuf.Int64Value{value: {int}} == {int}", "{map_int_string} == {map_mixed}",
        "{wrapper} == {null}", "{null} != {wrapper}", "{wrapper} == {wrapper}", "{wrapper} == {any}",
        "{wrapper} in [{null}]", "{null} in [{wrapper}]", "type({wrapper}) == {type}", "{wrapper} < {wrapper}",
        "{bool} ? {wrapper} == {null} : {bool}", "[{wrapper}] == [{null}]",
        "has(({bool} ? {attributes} : {attributes}).model)", "has(({bool} ? device : device).driver)",
        "has(({bool} ? {map_string_int} : {map_string_int}).a)", "has(({bool} ? {attributes} : {map_mixed}).a)",
        "has(({bool} ? ({bool} ? {attributes} : {attributes}) : {attributes}).model)",
        "has(({bool} ? device : device).attributes[{string}].model)", "has({map_mixed}[{string}].a)",
        "({bool} ? device : device).attributes[{string}].model == {dyn}", "has({dyn}.a)", "has({opt}.a)",
        "has(device.attributes[({bool} ? {string} : {string})].model)", "has(({bool} ? {opt} : {opt}).a)",
        "{dyn}.allowed()", "{dyn}.errored()", "{dyn}.error() == {string}", "{dyn}.reason() == {string}",
        "{dyn}.path({string}).check({string}).allowed()", "{any}.allowed()", "{dyn}.check({string}) == {dyn}",
        "{dyn}.group({string}).resource({string}).namespace({string}).name({string}).check({string}).allowed()",
        "{dyn}.serviceAccount({string}, {string}) == {dyn}", "{dyn}.subresource({string}) == {any}",
        "{dyn}.fieldSelector({string}) == {dyn}", "{dyn}.labelSelector({string}) == {dyn}",
        "{dyn}.name({string}) == {dyn}", "{dyn}.namespace({string}) == {dyn}", "{dyn}.resource({string}) == {dyn}",
        "sets.contains({mixed}, {mixed})", "sets.contains({dyn}, {dyn})", "sets.contains([{any}], [{any}])",
        "sets.intersects({mixed}, {dyn})", "sets.equivalent({dyn}, {mixed})", "sets.contains({mixed}, {ints})",
        "sets.contains({lists}, {lists})", "sets.contains({strings}, [{string}.substring({int})])",
        "sets.intersects([{int} / {int}], {ints})", "sets.equivalent({ints}, [{int} % {int}])",
        "{bools}.all(<x:bool>, {bool})", "{dyn}.matches({string})", "{dyn}.startsWith({string})",
        "{dyn}.size() == {int}", "{dyn}.lowerAscii() == {string}",
    ),
    "int": (
        "{int} + {int}", "{int} - {int}", "{int} * {int}", "{int} / {int}", "{int} % {int}", "-{int}",
        "(-{int})", "size({string})", "{string}.size()", "size({ints})", "{map_string_int}.size()",
        "size({bytes})", "{dyn}.size()", "int({string})", "int({double})", "int({uint})", "int({timestamp})",
        "int({dyn})", "{ints}[{int}]", "{ints}[0]", "{map_string_int}[{string}]", "{map_string_int}.a",
        "{string}.indexOf({string})", "{string}.indexOf({string}, {int})", "{string}.lastIndexOf({string})",
        "{string}.lastIndexOf({string}, {int})", "{ints}.sum()", "{ints}.min()", "{ints}.max()",
        "{ints}.indexOf({int})", "{strings}.lastIndexOf({string})", "{quantity}.sign()",
        "{quantity}.asInteger()", "{quantity}.compareTo({quantity})", "{semver}.major()", "{semver}.minor()",
        "{semver}.patch()", "{semver}.compareTo({semver})", "{ip}.family()", "{cidr}.prefixLength()",
        "{timestamp}.getFullYear()", "{timestamp}.getDayOfWeek()", "{timestamp}.getHours({string})",
        '{timestamp}.getMinutes("+02:30")', "{duration}.getSeconds()", "{duration}.getMilliseconds()",
        "{bool} ? {int} : {int}", "cel.bind(<b:int>, {int}, {int})", "{opt}.orValue({int})",
        "{ints}.map(<x:int>, {int})[0]", "{dyn} + {int}", "{dyn}", "{ints}.filter(<x:int>, {bool}).size()",
    ),
    "uint": (
        "{uint} + {uint}", "{uint} - {uint}", "{uint} * {uint}", "{uint} / {uint}", "{uint} % {uint}",
        "uint({int})", "uint({double})", "uint({string})", "{uints}[0]", "{uints}.max()",
    ),
    "double": (
        "{double} + {double}", "{double} - {double}", "{double} * {double}", "{double} / {double}", "-{double}",
        "double({int})", "double({string})", "double({uint})", "{quantity}.asApproximateFloat()",
        "{doubles}.sum()",
    ),
    "string": (
        "{string} + {string}", "{string}.lowerAscii()", "{string}.upperAscii()", "{string}.trim()",
        "string({int})", "string({double})", "string({bool})", "string({dyn})", "string({bytes})",
        "string({uint})", "string({semver})", "string({ip})", "string({cidr})", "string({duration})",
        "string({timestamp})", "string({quantity})", "{string}.charAt({int})", "{string}.substring({int})",
        "{string}.substring({int}, {int})", "{string}.replace({string}, {string})",
        "{string}.replace({string}, {string}, {int})", "{strings}.join()", "{strings}.join({string})",
        "{strings}[0]", "{string}.find({string})", "{string}.findAll({string})[0]",
        '"%s|%d".format([{any}, {int}])', "{string}.format([{any}])", '"%.3f %e".format([{double}, {double}])',
        '"%x%X%o%b".format([{int}, {string}, {int}, {int}])', "{url}.getHost()", "{url}.getHostname()",
        "{url}.getScheme()", "{url}.getPort()", "{url}.getEscapedPath()", "{opt}.orValue({string})",
        "{bool} ? {string} : {string}", "{map_int_string}[{int}]", "{dyn}",
        "cel.bind(<b:string>, {string}, {string})", "{strings}.max()", "{string}.reverse()",
        "strings.quote({string})", "jsonpatch.escapeKey({string})",
    ),
    "bytes": (
        "bytes({string})", "{bytes} + {bytes}",
    ),
    "quantity": (
        "quantity({string})", "{quantity}.add({quantity})", "{quantity}.sub({quantity})",
        "{quantity}.add({int})", "{quantity}.sub({int})", "{bool} ? {quantity} : {quantity}", "{quantities}[0]",
    ),
    "semver": (
        "semver({string})", "semver({string}, {bool})", "{bool} ? {semver} : {semver}", "{semvers}[{int}]",
    ),
    "ip": (
        "ip({string})", "{cidr}.ip()",
    ),
    "cidr": (
        "cidr({string})", "{cidr}.masked()",
    ),
    "url": (
        "url({string})",
    ),
    "duration": (
        "duration({string})", "{timestamp} - {timestamp}", "{duration} + {duration}", "{duration} - {duration}",
    ),
    "timestamp": (
        "timestamp({string})", "{timestamp} + {duration}", "{timestamp} - {duration}", "timestamp({int})",
    ),
    "type": (
        "type({any})",
    ),
    "wrapper": (
        "google.protobuf.Int64Value{value: {int}}", "google.protobuf.StringValue{value: {string}}",
        "google.protobuf.BoolValue{value: {bool}}", "google.protobuf.DoubleValue{value: {double}}",
        "google.protobuf.UInt64Value{value: {uint}}", "google.protobuf.BytesValue{value: {bytes}}",
        "google.protobuf.Int32Value{value: {int}}", "{bool} ? {wrapper} : {wrapper}", "[{wrapper}, {wrapper}][0]",
    ),
    "ints": (
        "[{int}, {int}]", "[{int}]", "{ints} + {ints}", "{ints}.map(<x:int>, {int})",
        "{ints}.map(<x:int>, {bool}, {int})", "{ints}.filter(<x:int>, {bool})",
        "{ints}.transformList(<i:int>, <v:int>, {int})", "lists.range({int})", "lists.range(4)",
        "{ints}.transformList(<i:int>, <v:int>, {bool}, {int})", "{ints}.sort()", "{ints}.distinct()",
        "{ints}.reverse()", "{ints}.slice({int}, {int})", "{ints}.slice(0, 1)", "{lists}.flatten()",
        "{lists}.flatten(2)", "{lists}[0]", "{ints}.sortBy(<x:int>, {int})", "{bool} ? {ints} : {ints}",
        "[?{opt}, {int}]", "{strings}.map(<x:string>, {int})",
    ),
    "uints": (
        "[{uint}, {uint}]",
    ),
    "doubles": (
        "[{double}, {double}]",
    ),
    "bools": (
        "[{bool}, {bool}]", "{ints}.map(<x:int>, {bool})",
    ),
    "strings": (
        "[{string}, {string}]", "{strings} + {strings}", "{string}.split({string})",
        "{string}.split({string}, {int})", "{string}.findAll({string})", "{string}.findAll({string}, {int})",
        "{strings}.map(<x:string>, {string})", "{strings}.sort()", "{strings}.filter(<x:string>, {bool})",
        "{strings}.distinct()", "{attributes}.map(<k:string>, {string})", "{dyn}",
        "{strings}.sortBy(<x:string>, {int})", '{url}.getQuery()["x"]',
    ),
    "quantities": (
        "[{quantity}, {quantity}]",
    ),
    "semvers": (
        "[{semver}, {semver}]",
    ),
    "lists": (
        "[{ints}, {ints}]", "{ints}.map(<x:int>, [{int}])",
    ),
    "mixed": (
        "[{any}, {any}]", "[dyn({any}), {any}]",
    ),
    "map_string_int": (
        "{{string}: {int}}", "{{string}: {int}, {string}: {int}}", "{?{string}: {opt}}",
        "{map_string_int}.transformMap(<k:string>, <v:int>, {int})",
        "{map_string_int}.transformMap(<k:string>, <v:int>, {bool}, {int})",
        "{strings}.transformMapEntry(<i:int>, <v:string>, {v: i})",
    ),
    "map_int_string": (
        "{{int}: {string}, {int}: {string}}",
    ),
    "map_mixed": (
        "{{any}: {any}}", "{{string}: {any}, {int}: {any}}",
    ),
    "dyn": (
        "dyn({any})", "{attributes}.model", "{attributes}.slots", "{attributes}[{string}]", "{dyn}[{any}]",
        "{dyn}.a", "{opt}.value()", "{opt}.orValue({any})", "{dyn} + {dyn}", "-{dyn}", "{bool} ? {dyn} : {any}",
        "{mixed}[0]", "device.attributes[{string}][{string}]",
    ),
    "opt": (
        "optional.of({any})", "optional.ofNonZeroValue({any})", "{attributes}.?model",
        "{attributes}[?{string}]", "{dyn}.?a", "{ints}[?{int}]", "{opt}.or({opt})",
        "{opt}.optMap(<x:dyn>, {any})", "{opt}.optFlatMap(<x:dyn>, {opt})", "{opt}.?a",
        # What `validate` complains of has other words here, and costs show it: only their number is asked for.
        "format.named({string})", "optional.of({format}.validate({string}).orValue([]).size())",
    ),
    "attributes": (
        "device.attributes[{string}]",
    ),
    "null": (),
    "format": (),
    "ident": (),
}
"""Everything else."""

# fmt: on
