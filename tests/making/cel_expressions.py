"""Expressions of all sorts from a seed: well-typed, ill-typed, misused macros, odd names, damaged text.

Where tests/judge generates what mostly evaluates, this generates what mostly must be refused: for the compiler.
"""

from __future__ import annotations

import random

# fmt: off
_ATOMS = (
    "a", "x", "device", "device.driver", "device.attributes", 'device.attributes["d"].k', 'device.capacity["d"].m',
    "device.allowMultipleAllocations", "1", "1u", "1.5", "-1", '"s"', "b'x'", "true", "null", "[]", "{}", "[1]", "[[]]",
    '{"a": 1}', "optional.none()", "optional.of([1])", "dyn(1)", 'quantity("1")', 'semver("1.0.0")', 'ip("1.2.3.4")',
    'cidr("1.0.0.0/8")', 'url("http://a/")', "int", "list", "type", "dyn", "duration", "net.IP", "kubernetes.Quantity",
    "kubernetes.DRADevice", "google.protobuf.Timestamp", "google.protobuf.NullValue.NULL_VALUE", ".device", ".x", "cel",
    "google.protobuf.Timestamp{seconds: 1}", 'kubernetes.DRADevice{driver: "a"}', "int{}", "list{}", "foo.Bar{}",
)
_OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "&&", "||", "in")
_METHODS = (
    "size", "trim", "hasValue", "value", "first", "sum", "max", "sort", "flatten", "isSorted", "sign", "asInteger",
    "family", "masked", "getHost", "getHours", "unwrapOpt", "join", "check", "includes", "nothing",
)
_METHODS_OF_ONE = (
    "contains", "matches", "indexOf", "split", "join", "includes", "or", "orValue", "compareTo", "isGreaterThan", "add",
    "containsIP", "substring", "find", "flatten", "format", "getHours", "check", "validate", "nothing", "exists",
)
_MACROS = (
    "all", "exists", "exists_one", "existsOne", "map", "filter", "optMap", "optFlatMap", "sortBy", "transformList",
    "transformMap", "transformMapEntry",
)
_FUNCTIONS = (
    "size", "type", "int", "uint", "string", "bytes", "bool", "dyn", "duration", "timestamp", "quantity", "isIP", "has",
    "optional.of", "optional.unwrap", "lists.range", "format.named", "strings.quote", "sign", "nothing", ".size",
    "matches", "sets.contains", "cel.bind",
)
_DAMAGE = (
    "", " ", "(", ")", ".", '"', "'", "?", ":", ",", "[", "]", "{", "}", "-", "!", "&", "|", "=", "\\", "\n", "//", "1",
    "u", "r", "b", "`", "é", "\t", "#", "0x", "e", "..", '"""', "in", "\ud800", "\u0000",
)
# fmt: on
_VARIABLES = ("x", "y", "x", "a.b", "1", "device", "__result__", ".x", "int")
_WRAPPERS = ("({}) == true", "type({}) == int", "dyn({}) == 1", "[{}] == []", "({}) != null", "{}")


def expression(seed: int) -> str:
    """The expression of a seed."""
    source = random.Random(seed)
    text = source.choice(_WRAPPERS).format(_part(source, source.randrange(1, 5)))
    if source.random() < 0.2:
        at = source.randrange(len(text) + 1)
        text = text[:at] + source.choice(_DAMAGE) + text[at + source.randrange(3) :]
    return text


def _part(source: random.Random, depth: int) -> str:
    if depth == 0 or source.random() < 0.12:
        return source.choice(_ATOMS)

    def part() -> str:
        return _part(source, depth - 1)

    def several(most: int) -> str:
        return ", ".join(source.choice(("", "", "?")) + part() for _ in range(source.randrange(most)))

    match source.randrange(12):
        case 0 | 1:
            return f"{part()} {source.choice(_OPERATORS)} {part()}"
        case 2:
            return f"{source.choice(('(', '!(', '-(', '--('))}{part()})"
        case 3:
            return f"{part()}.{source.choice(_METHODS)}()"
        case 4:
            return f"{part()}.{source.choice(_METHODS_OF_ONE)}({part()})"
        case 5:
            variables = ", ".join(source.choice(_VARIABLES) for _ in range(source.randrange(1, 3)))
            return f"{part()}.{source.choice(_MACROS)}({variables}, {part()})"
        case 6:
            return f"{source.choice(_FUNCTIONS)}({several(3)})"
        case 7:
            return f"cel.bind({source.choice(_VARIABLES)}, {part()}, {part()})"
        case 8:
            return f"{part()} ? {part()} : {part()}"
        case 9:
            return part() + source.choice((".foo", ".?foo", "[0]", '["a"]', "[?0]", ".driver", ".`a b`", ".in", ".for"))
        case 10:
            return f"[{several(4)}]"
        case _:
            return f"{{{source.choice(('', '?'))}{part()}: {part()}}}"
