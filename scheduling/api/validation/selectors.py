"""Rules for CEL selectors: they compile, and their worst cost stays within the bound of the API (KEP-4381)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from scheduling.api.labels import size
from scheduling.api.validation.bounds import listed
from scheduling.api.validation.cause import INTERNAL, Cause, forbidden, invalid, required, too_long
from scheduling.api.validation.gates import Gates

if TYPE_CHECKING:
    from scheduling.cel.environment import Features

_SELECTORS: Final = 32
_EXPRESSION_BYTES: Final = 10 * 1024
_COST: Final = 1_000_000


def selectors(entries: Sequence[Mapping[str, Any]], path: str, gates: Gates, *, stored: bool) -> Iterator[Cause]:
    """A list of selectors. `stored`: they were accepted before, perhaps by a later version."""
    # Whoever judges slices alone must not pay for CEL.
    from scheduling.cel.environment import Features

    features = Features(
        consumable_capacity=gates.consumable_capacity, list_attributes=gates.list_attributes, stored=stored
    )

    def selector(entry: Mapping[str, Any], at: str) -> Iterator[Cause]:
        if "cel" not in entry:
            yield required(f"{at}.cel", "must hold an expression")
        else:
            yield from _expression(entry["cel"].get("expression", ""), f"{at}.cel.expression", features)

    yield from listed(entries, _SELECTORS, path, selector)


def _expression(text: str, path: str, features: Features) -> Iterator[Cause]:
    if size(text) > _EXPRESSION_BYTES:
        yield too_long(path, size(text), _EXPRESSION_BYTES)
        return
    from scheduling.cel.compiler import compile as compile_expression
    from scheduling.cel.errors import CompileError

    try:
        cost = compile_expression(text, features).max_cost
    except CompileError as error:
        if error.kind == "Internal":
            yield Cause(path, INTERNAL, str(error))
        else:
            yield invalid(path, text, f"does not compile: {error}")
        return
    if cost > _COST:
        yield forbidden(path, f"may cost {cost}, at most {_COST} are allowed; test fewer or shorter values")
