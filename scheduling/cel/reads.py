"""Which parts of a device an expression reads, as far as its text shows.

One walk answers two questions. The allocator asks which parts of a device the result can depend on, to evaluate equal
devices once. `explain` asks which selections the user wrote, to show their values. A name that `cel.bind` gives to a
part of the device means that part.

The first answer is careful: an expression that passes on the whole device, all attributes or all capacity, or that
computes the domain it looks up, may read anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scheduling.cel.device import CelDevice
from scheduling.cel.syntax import Call, Comprehension, Expr, Identifier, Literal, Select, children, is_bind
from scheduling.cel.values import Value

Path = tuple[str, ...]
"""Steps from the device: `("attributes", "gpu.example.com", "model")`; empty for the device itself."""

_SELECTIONS = ("_[_]", "_?._", "_[?_]")


@dataclass(frozen=True, slots=True)
class Selection:
    """A node that refers to a part of the device."""

    node: Expr
    path: Path


_Scope = dict[str, Path | None]
"""Names of loop variables: the part of the device to which a name is bound, None for any other value."""


def selections(root: Expr, device: CelDevice | None = None) -> Iterator[Selection]:
    """All longest selections from the device below a node, in the order of the text as far as macros keep it.

    With a device, keys that are themselves read from it (`device.attributes[device.driver]`) are known.
    """
    pending: list[tuple[Expr, _Scope]] = [(root, {})]
    while pending:
        node, scope = pending.pop()
        path, rest = _follow(node, scope, device)
        if path is not None:
            yield Selection(node, path)
        pending.extend(reversed(rest if path is not None else _below(node, scope)))


def _follow(
    node: Expr, scope: _Scope, device: CelDevice | None = None
) -> tuple[Path | None, list[tuple[Expr, _Scope]]]:
    """The path of a selection, and the nodes that only compute its keys; no path for anything else.

    A computed key ends the path: the expression reads something below it.
    """
    steps: list[str | None] = []
    computed: list[tuple[Expr, _Scope]] = []
    each = node
    while True:
        if isinstance(each, Select):
            steps.append(each.field)
            each = each.operand
        elif isinstance(each, Call) and each.target is None and each.function in _SELECTIONS:
            operand, key = each.arguments
            steps.append(_key(key, scope, device))
            if not isinstance(key, Literal):
                computed.append((key, scope))
            each = operand
        else:
            break
    if not isinstance(each, Identifier):
        return None, []
    start = scope[each.name] if each.name in scope else () if each.name.lstrip(".") == "device" else None
    if start is None:
        return None, []
    path = list(start)
    for step in reversed(steps):
        if step is None:
            break
        path.append(step)
    return tuple(path), computed


def _key(key: Expr, scope: _Scope, device: CelDevice | None) -> str | None:
    """The text of a key, None for one that only an evaluation can compute."""
    value: Value = None
    if isinstance(key, Literal):
        return key.value if isinstance(key.value, str) else None
    if device is not None:
        path, _ = _follow(key, scope, device)
        value = device.read(path) if path else None
    return value if isinstance(value, str) else None


def _below(node: Expr, scope: _Scope) -> list[tuple[Expr, _Scope]]:
    if isinstance(node, Comprehension):
        return _comprehension(node, scope)
    return [(each, scope) for each in children(node)]


def _comprehension(node: Comprehension, scope: _Scope) -> list[tuple[Expr, _Scope]]:
    inner: _Scope = {**scope, node.variable: None}
    if node.variable2:
        inner[node.variable2] = None
    bound, computed = _follow(node.initial, scope)
    if bound is not None and is_bind(node):
        return [*computed, (node.result, {**scope, node.accumulator: bound})]
    inner[node.accumulator] = None
    after: _Scope = {**scope, node.accumulator: None}
    return [
        (node.range, scope),
        (node.initial, scope),
        (node.condition, inner),
        (node.step, inner),
        (node.result, after),
    ]


def reads(root: Expr) -> frozenset[Path] | None:
    """The parts of a device that an evaluation can read; None if it can read anything.

    `("driver",)`, `("allowMultipleAllocations",)`, `("attributes", domain, id)`, `("capacity", domain, id)`, or only
    the first two steps of the latter for a whole domain.
    """
    found: set[Path] = set()
    for each in selections(root):
        if each.path[:1] in (("driver",), ("allowMultipleAllocations",)):
            found.add(each.path[:1])
        elif len(each.path) >= 2 and each.path[0] in ("attributes", "capacity"):
            found.add(each.path[:3])
        else:
            return None
    return frozenset(found)
