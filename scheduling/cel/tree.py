"""Walking trees without recursion.

A tree may be some thousand nodes deep (every parenthesis may hold a macro, and a macro becomes several nodes), more
than Python's stack is sure to have left. What walks a tree of unknown depth walks it with these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from scheduling.cel.syntax import (
    Call,
    Comprehension,
    Expr,
    Identifier,
    ListLiteral,
    Literal,
    MapLiteral,
    MessageLiteral,
    Select,
)


def children(node: Expr) -> tuple[Expr, ...]:
    """The nodes directly below, left to right (comprehension: range, initial, condition, step, result)."""
    if isinstance(node, (Literal, Identifier)):
        return ()
    if isinstance(node, Select):
        return (node.operand,)
    if isinstance(node, Call):
        return node.arguments if node.target is None else (node.target, *node.arguments)
    if isinstance(node, ListLiteral):
        return node.elements
    if isinstance(node, MapLiteral):
        return tuple(each for entry in node.entries for each in (entry.key, entry.value))
    if isinstance(node, MessageLiteral):
        return tuple(field.value for field in node.fields)
    return (node.range, node.initial, node.condition, node.step, node.result)


def walk(root: Expr) -> Iterator[Expr]:
    """Every node of a tree, each before the nodes below it, left to right."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(children(node)))


def postorder(root: Expr) -> list[Expr]:
    """Every node of a tree, each after the nodes below it, left to right."""
    found: list[Expr] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting.extend(children(node))
    found.reverse()
    return found


def depth_of(root: Expr) -> int:
    """The number of levels of a tree."""
    deepest = 0
    pending = [(root, 1)]
    while pending:
        node, depth = pending.pop()
        deepest = max(deepest, depth)
        pending.extend((each, depth + 1) for each in children(node))
    return deepest


def qualified_name(node: Expr) -> str | None:
    """`a.b.c` as a name, or None for anything else."""
    parts: list[str] = []
    while isinstance(node, Select) and not node.test_only:
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, Identifier):
        return None
    parts.append(node.name)
    return ".".join(reversed(parts))


def is_bind(node: Expr) -> bool:
    """Whether this is what `cel.bind` becomes: a fold over nothing that gives its start a name."""
    return (
        isinstance(node, Comprehension)
        and isinstance(node.range, ListLiteral)
        and not node.range.elements
        and isinstance(node.condition, Literal)
        and node.condition.value is False
    )


def copy(root: Expr, renumber: Callable[[int], int]) -> Expr:
    """The same tree with other numbers: `renumber` is given the number of a node (or entry) and answers a new one."""
    done: list[Expr] = []
    for node in postorder(root):
        count = len(children(node))
        parts = tuple(done[len(done) - count :])
        del done[len(done) - count :]
        done.append(_rebuilt(node, parts, renumber))
    return done[0]


def _rebuilt(node: Expr, parts: tuple[Expr, ...], renumber: Callable[[int], int]) -> Expr:
    number = renumber(node.id)
    if isinstance(node, (Literal, Identifier)):
        return replace(node, id=number)
    if isinstance(node, Select):
        return replace(node, id=number, operand=parts[0])
    if isinstance(node, Call):
        if node.target is None:
            return Call(number, node.function, None, parts)
        return Call(number, node.function, parts[0], parts[1:])
    if isinstance(node, ListLiteral):
        return ListLiteral(number, parts, node.optional)
    if isinstance(node, MapLiteral):
        entries = tuple(
            replace(entry, id=renumber(entry.id), key=parts[2 * place], value=parts[2 * place + 1])
            for place, entry in enumerate(node.entries)
        )
        return MapLiteral(number, entries)
    if isinstance(node, MessageLiteral):
        fields = tuple(
            replace(field, id=renumber(field.id), value=value) for field, value in zip(node.fields, parts, strict=True)
        )
        return MessageLiteral(number, node.type_name, fields)
    scope = (node.variable, node.variable2, node.accumulator)
    return Comprehension(number, parts[0], *scope, parts[1], parts[2], parts[3], parts[4])
