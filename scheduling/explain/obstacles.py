"""What can stand between a claim and a node: one kind of fact for each reason.

An obstacle is a fact about one case and never a guess. ``devices`` are the devices that it concerns, in the order of
the pool; names of nodes, pools, devices and holders are marked, so that equal reasons on many nodes count as one (see
``alike.gist``). Numbers of lists (selectors, constraints, requests) count from 0, as in the paths of Kubernetes' own
messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

NAMES = {"names": True}
"""Marks a field that holds names which differ from node to node though the reason is the same."""


@dataclass(frozen=True, slots=True)
class ClaimHolder:
    """Who has a device: a claim as ``namespace/name``, and the pods that it is reserved for. Empty where unknown."""

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


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One reason."""

    kind: ClassVar[str] = ""


# Of the request and the classes: the same on every node.


@dataclass(frozen=True, slots=True)
class ClassMissing(Obstacle):
    """No DeviceClass has this name. ``near``: existing names that look like it, else all, up to five."""

    kind: ClassVar[str] = "class-missing"
    name: str
    near: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectorUnreadable(Obstacle):
    """An expression does not compile; ``line`` and ``column`` count from 1, 0 where no place is known."""

    kind: ClassVar[str] = "selector-unreadable"
    source: SelectorSource
    expression: str
    message: str
    line: int = 0
    column: int = 0


@dataclass(frozen=True, slots=True)
class SelectorBroken(Obstacle):
    """An expression ends with an error on a device: the scheduler then gives up the pod on all nodes.

    ``condition`` is the part of the expression in which it happens.
    """

    kind: ClassVar[str] = "selector-broken"
    source: SelectorSource
    expression: str
    condition: str
    message: str
    line: int = 0
    column: int = 0
    devices: tuple[str, ...] = field(default=(), metadata=NAMES)
    count: int = 0


@dataclass(frozen=True, slots=True)
class TooMany(Obstacle):
    """A claim gets at most ``limit`` devices and asks for more."""

    kind: ClassVar[str] = "too-many"
    wanted: int
    limit: int = 32


@dataclass(frozen=True, slots=True)
class FeatureOff(Obstacle):
    """The cluster's version lacks a feature that the request (at ``path``) or the devices need."""

    kind: ClassVar[str] = "feature-off"
    feature: str
    path: str
    devices: tuple[str, ...] = field(default=(), metadata=NAMES)


@dataclass(frozen=True, slots=True)
class ObjectRefused(Obstacle):
    """The allocator refuses the objects as they are: which object, which field of it, and the allocator's words."""

    kind: ClassVar[str] = "refused"
    object: str
    path: str
    message: str


@dataclass(frozen=True, slots=True)
class Waiting(Obstacle):
    """The pod waits for something that is neither a node nor a device; ``what`` is a sentence without its end."""

    kind: ClassVar[str] = "waiting"
    what: str


@dataclass(frozen=True, slots=True)
class AllNeedsPools(Obstacle):
    """A request for all devices must know them all, so that one pool that is not usable refuses it."""

    kind: ClassVar[str] = "all-needs-pools"
    requests: tuple[str, ...]


# Of the node.


@dataclass(frozen=True, slots=True)
class NodeRefused(Obstacle):
    """The pod itself does not go there: node selector, affinity, taints of the node, cordon."""

    kind: ClassVar[str] = "node-refused"
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeOutside(Obstacle):
    """A claim of the pod has its devices already, and they can be used on other nodes alone."""

    kind: ClassVar[str] = "allocated-elsewhere"
    claim: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoDevices(Obstacle):
    """No slice offers a device to this node. ``drivers``: those with devices elsewhere in the cluster."""

    kind: ClassVar[str] = "no-devices"
    drivers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolIncomplete(Obstacle):
    """Of the slices of a pool's newest generation only some are published; its devices are not used until all are."""

    kind: ClassVar[str] = "pool-incomplete"
    driver: str
    pool: str = field(metadata=NAMES)
    generation: int
    found: int
    wanted: int
    slices: tuple[str, ...] = field(default=(), metadata=NAMES)


@dataclass(frozen=True, slots=True)
class PoolOutdated(Obstacle):
    """The slices for this node are of an older generation than others of their pool, and do not count any more."""

    kind: ClassVar[str] = "pool-outdated"
    driver: str
    pool: str = field(metadata=NAMES)
    generation: int
    newest: int


@dataclass(frozen=True, slots=True)
class PoolInvalid(Obstacle):
    """The slices of a pool contradict each other; its devices are not used."""

    kind: ClassVar[str] = "pool-invalid"
    driver: str
    pool: str = field(metadata=NAMES)
    reason: str


@dataclass(frozen=True, slots=True)
class SearchEnded(Obstacle):
    """The search for this node was ended by its limit; nothing is known."""

    kind: ClassVar[str] = "gave-up"
    message: str


# Of devices.


@dataclass(frozen=True, slots=True)
class OfDevices(Obstacle):
    """A reason that concerns ``count`` devices, by name in ``devices``."""

    devices: tuple[str, ...] = field(metadata=NAMES)
    count: int


@dataclass(frozen=True, slots=True)
class ConditionFalse(OfDevices):
    """A condition of a selector is false. ``others``: how many further conditions are false on the same devices."""

    kind: ClassVar[str] = "selector-false"
    source: SelectorSource
    condition: str
    values: tuple[ReadValue, ...] = ()
    others: int = 0


@dataclass(frozen=True, slots=True)
class Held(OfDevices):
    """Allocated to other claims: ``holders`` are in the order of ``devices``."""

    kind: ClassVar[str] = "held"
    holders: tuple[ClaimHolder, ...] = field(metadata=NAMES)


@dataclass(frozen=True, slots=True)
class Tainted(OfDevices):
    """A taint that the request does not tolerate. ``rule``: the DeviceTaintRule that set it, or "" for the driver."""

    kind: ClassVar[str] = "tainted"
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


@dataclass(frozen=True, slots=True)
class CounterExhausted(OfDevices):
    """Too little is left of a counter that devices of a pool share; amounts are Kubernetes quantities."""

    kind: ClassVar[str] = "counter-exhausted"
    pool: str = field(metadata=NAMES)
    set: str
    counter: str
    needed: str
    free: str
    total: str
    users: tuple[Usage, ...] = field(default=(), metadata=NAMES)


@dataclass(frozen=True, slots=True)
class CapacityExhausted(OfDevices):
    """Too little is left of a capacity of a device that claims share."""

    kind: ClassVar[str] = "capacity-exhausted"
    capacity: str
    needed: str
    free: str
    total: str
    users: tuple[Usage, ...] = field(default=(), metadata=NAMES)


@dataclass(frozen=True, slots=True)
class CapacityUnfit(OfDevices):
    """A device can never give the capacity that is asked for; ``reason`` says which rule of the device forbids it."""

    kind: ClassVar[str] = "capacity-unfit"
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


@dataclass(frozen=True, slots=True)
class ConstraintUnsatisfiable(Obstacle):
    """No choice of devices keeps a constraint. ``rule`` is ``matchAttribute`` or ``distinctAttribute``.

    ``wanted``: devices of these requests together. ``best``: the most that can be found together (devices with one
    value, or different values), None where that is not known. ``values``: the most frequent first.
    """

    kind: ClassVar[str] = "constraint"
    claim: str
    index: int
    rule: str
    attribute: str
    requests: tuple[str, ...]
    wanted: int
    best: int | None
    values: tuple[Bearers, ...] = ()


@dataclass(frozen=True, slots=True)
class Competing(Obstacle):
    """Requests that could each be met alone, and not together; all of them and all constraints named are needed for it.

    ``requests`` are ``claim request`` pairs; ``constraints`` are texts such as ``matchAttribute x``.
    """

    kind: ClassVar[str] = "competing"
    requests: tuple[tuple[str, str], ...]
    constraints: tuple[str, ...] = ()
    minimal: bool = True


@dataclass(frozen=True, slots=True)
class NotTogether(Obstacle):
    """Enough devices suit one by one, but at most ``possible`` of them can be had at the same time.

    ``counters``: what they share and have too little of; ``users``: who has taken a part of that already.
    """

    kind: ClassVar[str] = "not-together"
    wanted: int
    possible: int
    counters: tuple[str, ...] = ()
    users: tuple[Usage, ...] = field(default=(), metadata=NAMES)
