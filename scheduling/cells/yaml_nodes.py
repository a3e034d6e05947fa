"""YAML texts as nodes with line numbers: the part that configuration files and pod annotations share.

The library is imported at the first text. Nothing is constructed by tags; readers take scalars by their resolved type.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import yaml

LARGEST_INT32: Final = 2**31 - 1
DEEPEST: Final = 64
"""Levels of maps and lists. libyaml's composer follows them on the stack of the process, and users write the pods'
annotations."""
_TRUE: Final = frozenset(("y", "yes", "true", "on"))


class YamlTextError(ValueError):
    """A text that is not YAML. `line` starts at 1; 0 means that it is unknown."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}" if line else problem)
        self.line = line
        self.problem = problem


@cache
def _loader() -> type[yaml.SafeLoader]:
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def first_document(text: str) -> yaml.Node | None:
    """The first document of a text, or None if the text is empty. Raises `YamlTextError`."""
    import yaml

    try:
        _check_depth(text)
        return next(iter(yaml.compose_all(text, _loader())), None)
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark or error.context_mark
        raise YamlTextError(mark.line + 1 if mark else 0, str(error.problem or error.context)) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise YamlTextError(0, str(error).splitlines()[0]) from error


def _check_depth(text: str) -> None:
    """Raise `YamlTextError` if the first document nests too deeply to be composed."""
    if sum(map(text.count, "[{-:?")) <= DEEPEST:
        # Each map and list has at least one of these of its own.
        return
    import yaml

    depth = 0
    for event in yaml.parse(text, _loader()):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                mark: Any = event.start_mark
                raise YamlTextError(int(mark.line) + 1, f"nested deeper than {DEEPEST} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.DocumentEndEvent):
            return


def line_of(node: yaml.Node) -> int:
    """The line on which a node starts, from 1."""
    mark: Any = node.start_mark
    return int(mark.line) + 1


def kind_of(node: yaml.Node) -> str:
    """The type of a node: map, list, null, or the scalar's resolved type (str, int, float, bool)."""
    tag = str(node.tag).rpartition(":")[2]
    return {"seq": "list"}.get(tag, tag)


def scalar_text(node: yaml.Node) -> str | None:
    """A scalar as it is written, whatever its type; None for maps, lists and null."""
    return None if kind_of(node) in {"map", "list", "null"} else str(node.value)


def boolean(node: yaml.Node) -> bool | None:
    """A boolean of YAML 1.1, or None if the node is none."""
    return str(node.value).lower() in _TRUE if kind_of(node) == "bool" else None


def number(node: yaml.Node) -> int | float | None:
    """A number within 32 bits, or None if the node is none. Texts in quotes are not numbers."""
    import yaml

    kind = kind_of(node)
    if not isinstance(node, yaml.ScalarNode) or kind not in {"int", "float"} or len(node.value) > 100:
        return None
    text = node.value
    if text.isascii() and text.isdigit() and (text[0] != "0" or text == "0"):
        value: float = int(text)
        return value if value <= LARGEST_INT32 else None
    loader = yaml.SafeLoader("")
    try:
        value = loader.construct_yaml_int(node) if kind == "int" else loader.construct_yaml_float(node)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) and abs(value) <= LARGEST_INT32 else None
