"""What can stand between a need and the pools of a node: one kind of fact for each reason.

An obstacle is a fact about one node and never a guess. Names of devices, pools and users are marked: equal reasons on
many nodes differ in them alone, so that these nodes can be shown as one (`gist`). Amounts are texts of quantities.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, fields, is_dataclass
from typing import ClassVar, dataclass_transform

from scheduling.pools.published import DeviceUser

PER_NODE = {"per_node": True}
"""Marks a field with names that differ from node to node though the reason is the same."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
@dataclass(frozen=True)
class PoolObstacle:
    """One reason. `kind` is its name for programs, "" for a common base."""

    kind: ClassVar[str] = ""

    def __init_subclass__(cls, kind: str = "") -> None:
        cls.kind = kind
        dataclass(frozen=True)(cls)


@dataclass(frozen=True, slots=True)
class AttributeRead:
    """An attribute that a constraint reads, and its value as a constraint writes it; None: the device lacks it."""

    name: str
    value: str | None


# Of a need: the same on every node.


class NeedInvalid(PoolObstacle, kind="invalid"):
    """The need cannot be judged: its class or type is unknown, or contradicts it."""

    message: str


# Of devices.


class OfPoolDevices(PoolObstacle):
    """A reason that concerns some devices, by name."""

    devices: tuple[str, ...] = field(metadata=PER_NODE)
    count: int


class DriverElsewhere(PoolObstacle, kind="no-devices"):
    """No pool of the node is of a driver of the need's classes. `present`: the drivers that have pools here."""

    drivers: tuple[str, ...]
    present: tuple[str, ...] = ()


class ConstraintUnmet(OfPoolDevices, kind="constraint-false"):
    """A condition of a constraint is false; `owner` is whose constraint it is. `others`: further false conditions."""

    owner: str
    condition: str
    reads: tuple[AttributeRead, ...] = ()
    others: int = 0


class ConstraintBroken(OfPoolDevices, kind="constraint-error"):
    """A constraint fails with an error, which is an error of the claim."""

    owner: str
    constraint: str
    message: str


class DevicesTaken(OfPoolDevices, kind="in-use"):
    """Claims have these devices, and share them with nobody or have nothing that this need can draw."""

    users: tuple[tuple[DeviceUser, ...], ...] = field(metadata=PER_NODE)


class PoolDevicesTainted(OfPoolDevices, kind="tainted"):
    """A taint keeps claims away; documents cannot tolerate it. `value` may be empty."""

    key: str
    value: str
    effect: str


class PoolUnusable(OfPoolDevices, kind="pool-unusable"):
    """None of the devices of a pool can be allocated; `fault` is a sentence without its end."""

    pool: str = field(metadata=PER_NODE)
    fault: str


class AmountUsedUp(OfPoolDevices, kind="amount-used-up"):
    """Less than one block of an amount is left on each of these devices; `left` is what the first has."""

    resource: str
    left: str
    capacity: str
    block: str = ""
    users: tuple[DeviceUser, ...] = field(default=(), metadata=PER_NODE)


class PoolResourceShort(OfPoolDevices, kind="pool-resource-short"):
    """The pool has less of a resource left than each of these devices takes of it."""

    pool: str = field(metadata=PER_NODE)
    resource: str
    taken: str
    left: str
    capacity: str
    users: tuple[DeviceUser, ...] = field(default=(), metadata=PER_NODE)


# Of several devices together.


@dataclass(frozen=True, slots=True)
class EqualDevices:
    """How many available devices have these values of the attributes; None for one that a device lacks."""

    values: tuple[str | None, ...] = field(metadata=PER_NODE)
    count: int


class AttributesDiffer(PoolObstacle, kind="match"):
    """Too few devices agree in attributes that must match. `best`: the most that do."""

    attributes: tuple[str, ...]
    wanted: int
    best: int
    values: tuple[EqualDevices, ...] = ()


@dataclass(frozen=True, slots=True)
class AmountGoal:
    """A requested amount, and the most that the devices reach while they meet everything else that is named."""

    resource: str
    wanted: str
    best: str


class AmountShort(PoolObstacle, kind="amount-short"):
    """At most `devices` devices, equal in `matching`, cannot give these amounts (together, if there are several).

    `in_all`: what all available devices have of the first one.
    """

    goals: tuple[AmountGoal, ...]
    devices: int
    in_all: str
    matching: tuple[str, ...] = ()


class TooFewDevices(PoolObstacle, kind="too-few"):
    """The node has fewer devices of the need's drivers than it must have."""

    wanted: int
    there: int


class NotAtOnce(PoolObstacle, kind="not-together"):
    """Enough devices are available one by one, but at most `best` of them can be used at the same time."""

    wanted: int
    best: int
    resources: tuple[str, ...] = ()


class NeedsCompete(PoolObstacle, kind="competing"):
    """Needs (claim and path) that can each be met alone, but not together; leave any of them out, and the rest can.

    `attributes`: those that must match across a whole claim. `minimal` False: some may not be required.
    """

    needs: tuple[tuple[str, str], ...]
    attributes: tuple[str, ...] = ()
    minimal: bool = True


class StepsSpent(PoolObstacle, kind="gave-up"):
    """The search took too many steps, so that nothing is known."""

    message: str


def gist(fact: object) -> Hashable:
    """What a fact says apart from names; equal for facts that are shown as one."""
    if isinstance(fact, tuple):
        return tuple(map(gist, fact))
    if not is_dataclass(fact):
        assert isinstance(fact, Hashable)
        return fact
    kept = (gist(getattr(fact, each.name)) for each in fields(fact) if not each.metadata.get("per_node"))
    return (type(fact).__name__, *kept)
