"""YAML texts of documents as data, by the rules of the decoder that Kubernetes uses.

YAML 1.1: `yes`, `off` and `n` are booleans, `010` and `0x10` are numbers. Strict reading refuses a key that a map has
twice. Depth, size and what aliases add are bounded before anything is built: documents come from others.

The library is imported at the first text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

from scheduling.pools.fields import DocumentError, Json

if TYPE_CHECKING:
    import yaml

DEEPEST: Final = 100
MOST_VALUES: Final = 1_000_000
"""Values in one text, those of aliases counted each time."""
_LONGEST_NUMBER: Final = 100

_TRUE: Final = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE: Final = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
_NULL: Final = frozenset(("", "~", "null", "Null", "NULL"))
_INTEGER: Final = re.compile(r"([-+]?)(0b[01]+|0x[0-9a-fA-F]+|0o?[0-7]+|0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BASES: Final = {"0b": 2, "0x": 16, "0o": 8}


class _Refused(Exception):
    """A text that is no data."""


def parse_documents(text: str, name: str = "document", *, strict: bool = True) -> list[Json]:
    """The documents of a YAML or JSON text; empty ones are None. `name` is the file's name for messages.

    Raises DocumentError.
    """
    import yaml

    loader = _loader()
    try:
        _check_depth(text, loader)
        return [_Values(strict).of(node) for node in yaml.compose_all(text, loader)]
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark or error.context_mark
        where = "" if not mark else f"line {mark.line + 1}: "
        raise DocumentError(name, (f"{where}not valid YAML: {error.problem or error.context}",)) from error
    except (yaml.YAMLError, _Refused) as error:
        raise DocumentError(name, (str(error),)) from error


@cache
def _loader() -> type[yaml.SafeLoader]:
    """The library's loader without its choice of tags, which is made here (`_scalar`) and costs as much as the rest."""
    import yaml

    base: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Untagged(base):  # type: ignore[valid-type, misc]  # which of the two is there is known only here
        def resolve(self, kind: object, value: object, implicit: object) -> str:
            return ""

    return Untagged


def _check_depth(text: str, loader: Any) -> None:
    import yaml

    depth = 0
    for event in yaml.parse(text, loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                mark: Any = event.start_mark
                raise _Refused(f"line {mark.line + 1}: nested deeper than {DEEPEST} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Values:
    """Builds the values of one document."""

    def __init__(self, strict: bool) -> None:
        self._strict = strict
        self._left = MOST_VALUES
        self._depth = 0

    def of(self, node: yaml.Node) -> Json:
        """The value of a node. Raises _Refused."""
        import yaml

        self._left -= 1
        if self._left < 0 or self._depth > DEEPEST:
            raise _Refused(f"line {node.start_mark.line + 1}: aliases make more than {MOST_VALUES} values or a loop")
        self._depth += 1
        try:
            if isinstance(node, yaml.MappingNode):
                return self._map(node)
            if isinstance(node, yaml.SequenceNode):
                return [self.of(each) for each in node.value]
            return _scalar(cast("yaml.ScalarNode", node))
        finally:
            self._depth -= 1

    def _map(self, node: yaml.MappingNode) -> dict[str, Json]:
        import yaml

        found: dict[str, Json] = {}
        for key, value in _merged(node):
            name = _scalar(key) if isinstance(key, yaml.ScalarNode) else None
            if name is None:
                raise _Refused(f"line {key.start_mark.line + 1}: the key of a map must be a text")
            text = str(name).lower() if isinstance(name, bool) else str(name)
            if self._strict and text in found:
                raise _Refused(f"line {key.start_mark.line + 1}: the map has the key {text} twice; keep one")
            found[text] = self.of(value)
        return found


def _merged(node: yaml.MappingNode) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    for key, value in node.value:
        if key.value == "<<":
            raise _Refused(f"line {key.start_mark.line + 1}: merge keys (<<) are not supported; write the fields out")
        yield key, value


def _scalar(node: yaml.ScalarNode) -> Json:
    """A plain scalar by YAML 1.1, any other as a text."""
    text: str = node.value
    if node.style:
        return text
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if len(text) > _LONGEST_NUMBER:
        return text
    whole = _INTEGER.fullmatch(text)
    if whole is not None:
        digits = whole[2]
        base = _BASES.get(digits[:2], 8 if len(digits) > 1 and digits[0] == "0" else 10)
        number = int(digits[2:] if digits[:2] in _BASES else digits, base)
        return -number if whole[1] == "-" else number
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
