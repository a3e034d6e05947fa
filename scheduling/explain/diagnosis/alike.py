"""When facts of several devices or nodes are told as one: what a fact says apart from names, coarser on demand."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from enum import Enum

from scheduling.explain.diagnosis.obstacles import (
    CapacityExhausted,
    CapacityUnfit,
    Competing,
    ConditionFalse,
    CounterExhausted,
    GaveUp,
    NodeOutside,
    NodeRefused,
    NoDevices,
    NotTogether,
    Obstacle,
    Value,
)


class Grain(Enum):
    """How alike facts must be to be told as one, the finest first."""

    FINE = "all but names"
    NO_VALUES = "all but names and the values that were read"
    KINDS = "what stands in the way, whatever the names, values and numbers"


def gist(fact: object, grain: Grain = Grain.FINE) -> Hashable:
    """What a fact says at a grain; equal for facts that are told as one."""
    if isinstance(fact, tuple):
        items = [gist(item, grain) for item in fact]
        return tuple(dict.fromkeys(items)) if grain is Grain.KINDS else tuple(items)
    if isinstance(fact, int) and not isinstance(fact, bool) and grain is Grain.KINDS:
        return "number"
    if not is_dataclass(fact):
        assert isinstance(fact, Hashable)
        return fact
    if grain is not Grain.FINE and isinstance(fact, Value):
        return fact.path
    if grain is Grain.KINDS and isinstance(fact, CounterExhausted | CapacityExhausted):
        return fact.kind
    kept = [gist(getattr(fact, each.name), grain) for each in fields(fact) if not each.metadata.get("names")]
    return (type(fact).__name__, *kept)


def shows_names(fact: Obstacle) -> bool:
    """Whether its words hold names or values that differ from node to node."""
    return not isinstance(fact, _WITHOUT_NAMES) or (isinstance(fact, NotTogether) and bool(fact.users))


_WITHOUT_NAMES = (
    ConditionFalse,
    CapacityUnfit,
    NoDevices,
    NodeRefused,
    NodeOutside,
    NotTogether,
    Competing,
    GaveUp,
)
