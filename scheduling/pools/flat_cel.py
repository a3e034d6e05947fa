"""Constraints of pools as selectors of Kubernetes: the flat `device.model` becomes `device.attributes["d"].model`.

The translation is sound or refused. For every device whose attributes stand where `NameResolver` says, the selector is
true, false or fails exactly as the constraint does. So only names of attributes are replaced, in place, and everything
else stays as it is written. What the two cannot say alike is refused with a sentence: the whole map `device` as a
value, versions beyond equality (pools compare them as texts, Kubernetes by their parts), and quantities, whose values
no constraint may use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from scheduling.cel.errors import InvalidExpression
from scheduling.cel.parser import parse
from scheduling.cel.syntax import Ast, Call, Comprehension, Expr, Identifier, Literal, Select, children, postorder

CEL_KEYWORDS: Final = frozenset({"in", "true", "false", "null"})
"""Words that cannot stand as a field behind a dot."""
INDEXES: Final = ("_[_]", "_?._", "_[?_]")
"""The operators that read an entry of a map by its key."""
_CANONICAL_VERSION: Final = re.compile(
    r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}"
    r"(-(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
)


class UntranslatableConstraint(Exception):
    """A constraint that Kubernetes cannot say; the message is a sentence about it."""


class AttributeKind(StrEnum):
    """What a slice holds for a name of the flat map."""

    PLAIN = "a text or number"
    FLAG = "true or false"
    """The flat map holds it as a text."""
    VERSION = "a version"
    QUANTITY = "a quantity"
    """A capacity."""


@dataclass(frozen=True, slots=True)
class SliceName:
    """Where a name of the flat map stands in a slice's device. `domain` empty: that of the device's driver.

    bare: the slice writes it without the domain.
    """

    domain: str
    identifier: str
    kind: AttributeKind = AttributeKind.PLAIN
    bare: bool = False

    @property
    def written(self) -> str:
        """The name as the slice writes it."""
        return self.identifier if self.bare or not self.domain else f"{self.domain}/{self.identifier}"

    @property
    def map(self) -> str:
        """The map of the domain, as CEL."""
        part = "capacity" if self.kind is AttributeKind.QUANTITY else "attributes"
        return f"device.{part}[{json.dumps(self.domain) if self.domain else 'device.driver'}]"

    @property
    def cel(self) -> str:
        """The value, as CEL."""
        if self.identifier in CEL_KEYWORDS:
            return f"{self.map}[{json.dumps(self.identifier)}]"
        return f"{self.map}.{self.identifier}"


NameResolver = Callable[[str], SliceName]
"""Says where a flat name stands; raises UntranslatableConstraint."""


def is_canonical_version(text: str) -> bool:
    """True if versions are equal to this one exactly when their texts are: semver.org 2.0.0 without build data."""
    return len(text) <= 64 and _CANONICAL_VERSION.fullmatch(text) is not None


def selector_of(constraint: str, resolve: NameResolver) -> str:
    """The selector that means the same as a constraint. Raises UntranslatableConstraint."""
    return _Translation(parsed(constraint), resolve).text()


def parsed(expression: str) -> Ast:
    """The tree of an expression whose every `device` is the variable. Raises UntranslatableConstraint."""
    try:
        ast = parse(expression)
    except InvalidExpression as error:
        raise UntranslatableConstraint(f"is no expression: {error.issues[0].message}") from error
    comprehensions = (each for each in postorder(ast.root) if isinstance(each, Comprehension))
    if any("device" in (each.variable, each.variable2) for each in comprehensions):
        raise UntranslatableConstraint("calls a variable of its own device; give it another name")
    return ast


class _Translation:
    """One pass over a tree; `_changes` maps spans of the source to what stands there instead."""

    def __init__(self, ast: Ast, resolve: NameResolver) -> None:
        self._ast = ast
        self._resolve = resolve
        self._changes: dict[tuple[int, int], str] = {}
        self._done: set[int] = set()

    def text(self) -> str:
        nodes = postorder(self._ast.root)
        if is_device(self._ast.root):
            raise UntranslatableConstraint(_WHOLE)
        for each in reversed(nodes):
            self._visit(each)
        found = self._ast.source
        for (start, end), new in sorted(self._changes.items(), reverse=True):
            found = found[:start] + new + found[end:]
        return found

    def _visit(self, node: Expr) -> None:
        if node.id in self._done:
            return
        if isinstance(node, Call) and node.function in ("_==_", "_!=_"):
            self._compare_version(node)
        if isinstance(node, Select) and is_device(node.operand):
            name = self._resolve(node.field)
            self._put(node, f"has({name.cel})" if node.test_only else self._value(name))
        elif isinstance(node, Call) and node.function in INDEXES and is_device(node.arguments[0]):
            self._index(node)
        elif isinstance(node, Call) and node.function == "@in" and is_device(node.arguments[1]):
            self._put(node.arguments[1], self._resolve(self._key(node.arguments[0])).map, done=node)
            key = json.dumps(self._resolve(self._key(node.arguments[0])).identifier)
            self._changes[self._ast.spans[node.arguments[0].id]] = key
        elif any(is_device(each) for each in children(node)) and node.id not in self._done:
            raise UntranslatableConstraint(_WHOLE)

    def _index(self, node: Call) -> None:
        name = self._resolve(self._key(node.arguments[1]))
        if node.function == "_[_]":
            self._put(node, self._value(name))
            return
        if name.kind is not AttributeKind.PLAIN:
            raise UntranslatableConstraint(f"reads {name.identifier} as an optional, which v1 holds as {name.kind}")
        field = f".?{name.identifier}" if node.function == "_?._" else f"[?{json.dumps(name.identifier)}]"
        self._put(node, name.map + field)

    def _key(self, node: Expr) -> str:
        if isinstance(node, Literal) and isinstance(node.value, str):
            return node.value
        raise UntranslatableConstraint("computes the name of an attribute; write the name")

    def _value(self, name: SliceName) -> str:
        if name.kind is AttributeKind.QUANTITY:
            raise UntranslatableConstraint(
                f"uses the value of {name.identifier}, which is a quantity; request an amount"
            )
        if name.kind is AttributeKind.VERSION:
            raise UntranslatableConstraint(
                f"uses the version {name.identifier} as a text; compare it by == or != with a version such as '1.2.3'"
            )
        return f"string({name.cel})" if name.kind is AttributeKind.FLAG else name.cel

    def _compare_version(self, node: Call) -> None:
        """A version beside a text that is one is compared by its parts, which is then the same."""
        for one, other in (node.arguments, node.arguments[::-1]):
            if not isinstance(one, Select) or one.test_only or not is_device(one.operand):
                continue
            name = self._resolve(one.field)
            if name.kind is not AttributeKind.VERSION:
                continue
            if not (isinstance(other, Literal) and isinstance(other.value, str) and is_canonical_version(other.value)):
                continue
            sign = "==" if node.function == "_==_" else "!="
            self._put(node, f"{name.cel}.compareTo(semver({json.dumps(other.value)})) {sign} 0")
            self._done.update((one.id, other.id, one.operand.id))
            return

    def _put(self, node: Expr, text: str, done: Expr | None = None) -> None:
        self._changes[self._ast.spans[node.id]] = text
        self._done.add((done or node).id)


_WHOLE: Final = "uses the whole map device; read its attributes by name"


def is_device(node: Expr) -> bool:
    """True for the variable `device`."""
    return isinstance(node, Identifier) and node.name.lstrip(".") == "device"
