"""A tree that passed the checker, as values: what evaluation, costs and validators read.

The checker alone makes them; nothing here knows how.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scheduling.cel.syntax import Ast
from scheduling.cel.types import Type


@dataclass(frozen=True, slots=True)
class Reference:
    """The meaning of a node of a checked tree.

    For a name (an identifier, or a selection that is a qualified name): `name` in full and no overloads. For a call:
    the identifiers of the overloads that are possible by the static types of the arguments, in declaration order;
    `name` is empty, except for a function that was written with a namespace (`optional.of`): there the full name.
    """

    name: str = ""
    overloads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """A tree that passed the checker. `types` has every node, by number; `result` is the type of the root."""

    ast: Ast
    types: Mapping[int, Type]
    references: Mapping[int, Reference]
    result: Type
