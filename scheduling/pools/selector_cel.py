"""Selectors of Kubernetes as constraints of pools: the way back of `flat_cel`, sound or refused like it.

`device.driver == "gpu.example.com"` is no constraint but the driver of a class. It may stand alone or be joined to the
rest by `&&`; anywhere else the driver cannot be read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from scheduling.cel.syntax import Ast, Call, Expr, Literal, Select, children
from scheduling.pools.flat_cel import CEL_KEYWORDS, INDEXES, UntranslatableConstraint, is_device, parsed

FlatName = Callable[[str, str], str]
"""The flat name of an attribute by its domain and name; raises UntranslatableConstraint where values differ."""
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WIDE: Final = ("_||_", "_?_:_")


@dataclass(frozen=True, slots=True)
class FlatSelector:
    """A selector for pools: the driver that it names, and the constraint beside that; each may be empty."""

    driver: str
    constraint: str


def flat_selector(expression: str, flat: FlatName) -> FlatSelector:
    """What a selector means for pools. Raises UntranslatableConstraint."""
    ast = parsed(expression)
    drivers: set[str] = set()
    rest: list[str] = []
    for each in _conjuncts(ast.root):
        driver = _driver_of(each)
        if driver:
            drivers.add(driver)
        else:
            text = _Translation(ast, flat).text(each)
            rest.append(f"({text})" if isinstance(each, Call) and each.function in _WIDE else text)
    if len(drivers) > 1:
        raise UntranslatableConstraint(f"names several drivers: {', '.join(sorted(drivers))}")
    if len(rest) == 1 and rest[0].startswith("(") and isinstance(ast.root, Call) and ast.root.function in _WIDE:
        rest = [rest[0][1:-1]]
    return FlatSelector(next(iter(drivers), ""), " && ".join(rest))


def _conjuncts(node: Expr) -> Iterator[Expr]:
    if isinstance(node, Call) and node.function == "_&&_":
        for each in node.arguments:
            yield from _conjuncts(each)
    else:
        yield node


def _driver_of(node: Expr) -> str:
    """The driver of `device.driver == "..."`, empty for anything else."""
    if isinstance(node, Call) and node.function == "_==_":
        for one, other in (node.arguments, node.arguments[::-1]):
            if _is_entry(one, "driver") and isinstance(other, Literal) and isinstance(other.value, str):
                return other.value
    return ""


def _is_entry(node: Expr, name: str) -> bool:
    return isinstance(node, Select) and not node.test_only and node.field == name and is_device(node.operand)


def _domain_of(node: Expr) -> str | None:
    """The domain of `device.attributes["..."]`, None for anything else."""
    if isinstance(node, Call) and node.function == "_[_]" and _is_entry(node.arguments[0], "attributes"):
        return _text_of(node.arguments[1])
    return None


def _text_of(node: Expr) -> str | None:
    return node.value if isinstance(node, Literal) and isinstance(node.value, str) else None


class _Translation:
    def __init__(self, ast: Ast, flat: FlatName) -> None:
        self._ast = ast
        self._flat = flat
        self._changes: dict[tuple[int, int], str] = {}

    def text(self, root: Expr) -> str:
        """The text of a part of the expression, with flat names."""
        pending = [root]
        while pending:
            node = pending.pop()
            if self._replaced(node):
                continue
            if is_device(node):
                raise UntranslatableConstraint(
                    'reads more of the device than attributes by name, as device.attributes["domain"].name'
                )
            pending.extend(children(node))
        start, end = self._ast.spans[root.id]
        found = self._ast.source
        for (first, last), new in sorted(self._changes.items(), reverse=True):
            if start <= first and last <= end:
                found, end = found[:first] + new + found[last:], end + len(new) - (last - first)
        return found[start:end]

    def _replaced(self, node: Expr) -> bool:
        domain = key = None
        form = ""
        if isinstance(node, Select):
            domain, key = _domain_of(node.operand), node.field
            form = "has" if node.test_only else ""
        elif isinstance(node, Call) and node.function in INDEXES:
            domain, key = _domain_of(node.arguments[0]), _text_of(node.arguments[1])
            form = "" if node.function == "_[_]" else "optional"
        elif isinstance(node, Call) and node.function == "@in":
            domain, key, form = _domain_of(node.arguments[1]), _text_of(node.arguments[0]), "in"
        if domain is None or key is None:
            return False
        self._changes[self._ast.spans[node.id]] = _written(self._flat(domain, key), form)
        return True


def _written(name: str, form: str) -> str:
    plain = _PLAIN.fullmatch(name) is not None and name not in CEL_KEYWORDS
    if form == "in" or (form == "has" and not plain):
        return f"{json.dumps(name)} in device"
    if form == "optional":
        return f"device.?{name}" if plain else f"device[?{json.dumps(name)}]"
    value = f"device.{name}" if plain else f"device[{json.dumps(name)}]"
    return f"has({value})" if form == "has" else value
