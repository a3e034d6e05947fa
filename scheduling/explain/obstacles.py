"""What can stand between a claim and a node: one kind of fact for each reason.

An obstacle is a fact about one case and never a guess. ``devices`` are the devices that it concerns, in the order of
the pool; names of nodes, pools, devices and holders are marked, so that equal reasons on many nodes count as one (see
``verdict.gist``). Numbers of lists (selectors, constraints, requests) count from 0, as in the paths of Kubernetes' own
messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, dataclass_transform

NAMES = {"names": True}
"""Marks a field that holds names which differ from node to node though the reason is the same."""


@dataclass(frozen=True, slots=True)
class ClaimHolder:
    """The holder of a device: a claim as ``namespace/name``, and the pods that it is reserved for; empty if unknown."""

    claim: str
    pods: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectorSource:
    """Where a selector stands: ``kind`` is ``class`` or ``request``, then its name and its number in the list.

    ``claim``: the request's, where several claims were to be allocated and nothing else says whose it is.
    """

    kind: str
    name: str
    index: int
    claim: str = ""


@dataclass(frozen=True, slots=True)
class ReadValue:
    """What an expression read: the path as it is written, and the value as a person would write it, None if absent."""

    path: str
    value: str | None


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
@dataclass(frozen=True)
class Obstacle:
    """One reason; every kind of it is a frozen dataclass. ``kind`` is its name for programs, "" for a common base."""

    kind: ClassVar[str] = ""

    def __init_subclass__(cls, kind: str = "") -> None:
        cls.kind = kind
        dataclass(frozen=True)(cls)


# Of the request and the classes: the same on every node.


class ClassMissing(Obstacle, kind="class-missing"):
    """No DeviceClass has this name. ``near``: existing names that look like it, else all, up to five."""

    name: str
    near: tuple[str, ...] = ()


class SelectorUnreadable(Obstacle, kind="selector-unreadable"):
    """An expression does not compile; ``line`` and ``column`` count from 1, 0 where no place is known."""

    source: SelectorSource
    expression: str
    message: str
    line: int = 0
    column: int = 0


class SelectorBroken(Obstacle, kind="selector-broken"):
    """An expression fails with an error on a device: the scheduler then gives up the pod on all nodes.

    ``condition`` is the part of the expression in which it happens.
    """

    source: SelectorSource
    expression: str
    condition: str
    message: str
    line: int = 0
    column: int = 0
    devices: tuple[str, ...] = field(default=(), metadata=NAMES)
    count: int = 0


class TooMany(Obstacle, kind="too-many"):
    """A claim gets at most ``limit`` devices and asks for more."""

    wanted: int
    limit: int = 32


class FeatureOff(Obstacle, kind="feature-off"):
    """The cluster's version lacks a feature that the request (at ``path``) or the devices need."""

    feature: str
    path: str
    devices: tuple[str, ...] = field(default=(), metadata=NAMES)


class ObjectRefused(Obstacle, kind="refused"):
    """The allocator refuses the objects as they are: which object, which field of it, and the allocator's words."""

    object: str
    path: str
    message: str


class Waiting(Obstacle, kind="waiting"):
    """The pod waits for something that is neither a node nor a device; ``what`` is a sentence without its end."""

    what: str


class AllNeedsPools(Obstacle, kind="all-needs-pools"):
    """A request for all devices must know them all, so that one pool that is not usable refuses it."""

    requests: tuple[str, ...]


# Of the node.


class NodeRefused(Obstacle, kind="node-refused"):
    """The pod itself does not go there: node selector, affinity, taints of the node, cordon."""

    reasons: tuple[str, ...]


class NodeOutside(Obstacle, kind="allocated-elsewhere"):
    """A claim of the pod already has its devices, and they can be used on other nodes alone."""

    claim: str
    nodes: tuple[str, ...]


class NoDevices(Obstacle, kind="no-devices"):
    """No slice offers a device to this node. ``drivers``: those with devices elsewhere in the cluster."""

    drivers: tuple[str, ...] = ()


class PoolIncomplete(Obstacle, kind="pool-incomplete"):
    """Of the slices of a pool's newest generation only some are published; its devices are not used until all are."""

    driver: str
    pool: str = field(metadata=NAMES)
    generation: int
    found: int
    wanted: int
    slices: tuple[str, ...] = field(default=(), metadata=NAMES)


class PoolOutdated(Obstacle, kind="pool-outdated"):
    """The slices for this node are of an older generation than others of their pool, and do not count any more."""

    driver: str
    pool: str = field(metadata=NAMES)
    generation: int
    newest: int


class PoolInvalid(Obstacle, kind="pool-invalid"):
    """The slices of a pool contradict each other; its devices are not used."""

    driver: str
    pool: str = field(metadata=NAMES)
    reason: str


class SearchEnded(Obstacle, kind="gave-up"):
    """The search for this node was ended by its limit; nothing is known."""

    message: str


# Of devices.


class OfDevices(Obstacle):
    """A reason that concerns ``count`` devices, by name in ``devices``."""

    devices: tuple[str, ...] = field(metadata=NAMES)
    count: int


class ConditionFalse(OfDevices, kind="selector-false"):
    """A condition of a selector is false. ``others``: how many further conditions are false on the same devices."""

    source: SelectorSource
    condition: str
    values: tuple[ReadValue, ...] = ()
    others: int = 0


class Held(OfDevices, kind="held"):
    """Allocated to other claims: ``holders`` are in the order of ``devices``."""

    holders: tuple[ClaimHolder, ...] = field(metadata=NAMES)


class Tainted(OfDevices, kind="tainted"):
    """A taint that the request does not tolerate. ``rule``: the DeviceTaintRule that set it, or "" for the driver."""

    key: str
    value: str
    effect: str
    rule: str = ""

    @property
    def toleration(self) -> dict[str, str]:
        """The narrowest toleration that lets a request have the devices in spite of it."""
        if not self.value:
            return {"key": self.key, "operator": "Exists", "effect": self.effect}
        return {"key": self.key, "operator": "Equal", "value": self.value, "effect": self.effect}


@dataclass(frozen=True, slots=True)
class Usage:
    """What one device in use takes of something shared, and who holds it."""

    device: str = field(metadata=NAMES)
    amount: str
    holder: ClaimHolder = field(metadata=NAMES)


class CounterExhausted(OfDevices, kind="counter-exhausted"):
    """Too little is left of a counter that devices of a pool share; amounts are Kubernetes quantities."""

    pool: str = field(metadata=NAMES)
    set: str
    counter: str
    needed: str
    free: str
    total: str
    users: tuple[Usage, ...] = field(default=(), metadata=NAMES)


class CapacityExhausted(OfDevices, kind="capacity-exhausted"):
    """Too little is left of a capacity of a device that claims share."""

    capacity: str
    needed: str
    free: str
    total: str
    users: tuple[Usage, ...] = field(default=(), metadata=NAMES)


class CapacityUnfit(OfDevices, kind="capacity-unfit"):
    """A device can never give the capacity that is asked for; ``reason`` says which rule of the device forbids it."""

    capacity: str
    asked: str
    reason: str


# Of several devices or requests together.


@dataclass(frozen=True, slots=True)
class Bearers:
    """How many devices that suit have one value of an attribute; ``value`` None: those without the attribute.

    ``requests``: how many of them each request could have.
    """

    value: str | None = field(metadata=NAMES)
    count: int
    requests: tuple[tuple[str, int], ...] = ()


class ConstraintUnsatisfiable(Obstacle, kind="constraint"):
    """No choice of devices keeps a constraint. ``rule`` is ``matchAttribute`` or ``distinctAttribute``.

    ``wanted``: devices of these requests together. ``best``: the most that can be found together (devices with one
    value, or different values), None where that is not known. ``values``: the most frequent first.
    """

    claim: str
    index: int
    rule: str
    attribute: str
    requests: tuple[str, ...]
    wanted: int
    best: int | None
    values: tuple[Bearers, ...] = ()


class Competing(Obstacle, kind="competing"):
    """Requests that could each be met alone, and not together; all of them and all constraints named are needed for it.

    ``requests`` are ``claim request`` pairs; ``constraints`` are texts such as ``matchAttribute x``.
    """

    requests: tuple[tuple[str, str], ...]
    constraints: tuple[str, ...] = ()
    minimal: bool = True


class NotTogether(Obstacle, kind="not-together"):
    """Enough devices suit one by one, but at most ``possible`` of them are available at the same time.

    ``counters``: what they share and have too little of; ``users``: who has taken a part of that already.
    """

    wanted: int
    possible: int
    counters: tuple[str, ...] = ()
    users: tuple[Usage, ...] = field(default=(), metadata=NAMES)
