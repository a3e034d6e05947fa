"""A fact about a device as a slice has it: an attribute or a capacity, and which are left out where there are too many.

Pure. The API takes at most 32 of both together for a device, names of at most 32 characters below a domain, and texts
of at most 64 bytes. A text that is longer is left out and not cut: two devices must not become equal by it.
"""

from __future__ import annotations

from collections.abc import Iterable

from kube.bodies import Json, JsonObject
from node.inventory.model import AttributeValue, Version
from node.values import Value, value

LIMIT = 32
"""Attributes and capacities of one device (resource.k8s.io/v1)."""
TEXT_BYTES = 64

_BINARY = tuple((f"{prefix}i", 1 << 10 * power) for power, prefix in reversed([*enumerate("KMGTPE", 1)]))
_DECIMAL = tuple((prefix, 1000**power) for power, prefix in reversed([*enumerate("kMGTPE", 1)]))


@value
class Fact(Value):
    """``name`` with its domain where that is not the driver's; ``amount``: a capacity and not an attribute.

    ``bytes``: whether an amount is one of bytes, which people want to read in binary units.
    """

    name: str
    value: AttributeValue
    amount: bool = False
    bytes: bool = False


def fits(fact: Fact) -> bool:
    """Whether the API takes such a fact at all."""
    return not isinstance(fact.value, str) or 0 < len(fact.value.encode(errors="replace")) <= TEXT_BYTES


def sections(facts: Iterable[Fact]) -> tuple[JsonObject, JsonObject]:
    """Attributes and capacity as resource.k8s.io/v1 has them, from the most important facts; sorted by name.

    Of facts with one name the first counts; of more than ``LIMIT`` facts the last ones are left out.
    """
    chosen: dict[tuple[bool, str], Fact] = {}
    for fact in facts:
        if fits(fact):
            chosen.setdefault((fact.amount, fact.name), fact)
    kept = sorted(list(chosen.values())[:LIMIT], key=lambda fact: fact.name)
    attributes: JsonObject = {fact.name: _typed(fact.value) for fact in kept if not fact.amount}
    capacity: JsonObject = {fact.name: {"value": quantity(fact)} for fact in kept if fact.amount}
    return attributes, capacity


def quantity(fact: Fact) -> str:
    """An amount as the API server would write it: ``80Gi`` for bytes, ``132`` for a count."""
    number = int(str(fact.value))
    units = (*_BINARY, *_DECIMAL) if fact.bytes else _DECIMAL
    unit, size = next(((unit, size) for unit, size in units if number and number % size == 0), ("", 1))
    return f"{number // size}{unit}"


def _typed(found: AttributeValue) -> Json:
    # bool before int: Python's True is one.
    if isinstance(found, bool):
        return {"bool": found}
    if isinstance(found, int):
        return {"int": found}
    return {"version": found.text} if isinstance(found, Version) else {"string": found}
