"""ResourceClaims and DeviceClasses as the allocator reads them, and which taints a request tolerates.

Tolerations match as those of pods and nodes do: an empty key or effect matches any, the operator Exists any value.
Effects other than NoSchedule and NoExecute (None, and what later versions may add) keep nobody away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from scheduling.allocator.reading import FatalError, Object, Part
from scheduling.allocator.slices import Taint
from scheduling.api.quantities import Quantity

RESULTS_MAX = 32
"""The most devices that one claim can hold (AllocationResultsMaxSize of the API)."""
TOLERATION_PARTS = ("key", "operator", "value", "effect")


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of device taints. `operator` empty is Equal; `key` and `effect` empty match any."""

    key: str
    operator: str
    value: str
    effect: str


@dataclass(frozen=True)
class DeviceRequest:
    """One way to satisfy a request: the request itself, or one entry of its `firstAvailable`.

    `selectors` are expressions, None for one that is not CEL. `capacities` is what is requested of each capacity.
    `object` is the part of the claim that it was read from, `path` where it stands.
    """

    name: str  # as results name it: "gpu", or "gpu/large" for an alternative
    parent: str  # the request's name if this is an alternative, else empty
    path: str
    object: Object
    class_name: str
    mode: str
    count: int
    admin_access: bool
    asks_admin_access: bool  # the field is present, whatever its value
    selectors: tuple[str | None, ...]
    tolerations: tuple[Toleration, ...]
    capacities: Mapping[str, Quantity]
    asks_capacity: bool
    derives_attributes: bool


@dataclass(frozen=True, slots=True)
class RequestChoice:
    """A request of a claim: one alternative, or several in order of preference (`prioritized`)."""

    name: str
    path: str
    alternatives: tuple[DeviceRequest, ...]
    prioritized: bool


@dataclass(frozen=True, slots=True)
class ConstraintFacts:
    """A constraint of a claim. An empty `requests` covers all; exactly one of the attributes should be set."""

    requests: frozenset[str]
    match_attribute: str | None
    distinct_attribute: str | None

    @property
    def rule(self) -> str:
        """The field that is set."""
        return "matchAttribute" if self.match_attribute is not None else "distinctAttribute"

    @property
    def attribute(self) -> str:
        """The attribute that the devices are compared by; empty if the constraint has none."""
        return self.match_attribute or self.distinct_attribute or ""

    def covers(self, request: DeviceRequest) -> bool:
        """Whether the constraint is about devices of this request; naming a request names all of its alternatives."""
        return not self.requests or request.name in self.requests or request.parent in self.requests


class Claim:
    """One ResourceClaim (v1). Raises `InvalidObject` where a field is not of its type."""

    def __init__(self, obj: Object) -> None:
        """Read the claim's `spec.devices`."""
        whole = Part.whole("ResourceClaim", obj)
        self.reference = whole.owner
        self._devices = whole.part("spec").part("devices")
        self.config = self._devices.parts("config")

    @cached_property
    def requests(self) -> tuple[RequestChoice, ...]:
        """The requests, in the claim's order."""
        return tuple(_choice(entry) for entry in self._devices.parts("requests"))

    @cached_property
    def constraints(self) -> tuple[ConstraintFacts, ...]:
        """The constraints, in the claim's order."""
        return tuple(
            ConstraintFacts(
                requests=frozenset(entry.strings("requests")),
                match_attribute=entry.string("matchAttribute") if entry.has("matchAttribute") else None,
                distinct_attribute=entry.string("distinctAttribute") if entry.has("distinctAttribute") else None,
            )
            for entry in self._devices.parts("constraints")
        )


def _choice(entry: Part) -> RequestChoice:
    name = entry.string("name")
    alternatives = tuple(_request(each, name, each.string("name")) for each in entry.parts("firstAvailable"))
    if alternatives:
        return RequestChoice(name, entry.path, alternatives, prioritized=True)
    if not entry.has("exactly"):
        message = "neither exactly nor firstAvailable is set: there is nothing to allocate"
        raise FatalError(entry.owner, entry.path, message)
    return RequestChoice(name, entry.path, (_request(entry.part("exactly"), "", name),), prioritized=False)


def _request(entry: Part, parent: str, name: str) -> DeviceRequest:
    # An alternative cannot ask for admin access; the API has no such field there.
    asks_admin = not parent and entry.has("adminAccess")
    return DeviceRequest(
        name=f"{parent}/{name}" if parent else name,
        parent=parent,
        path=entry.path,
        object=entry.object,
        class_name=entry.string("deviceClassName"),
        mode=entry.string("allocationMode"),
        count=entry.integer("count"),
        admin_access=asks_admin and entry.boolean("adminAccess"),
        asks_admin_access=asks_admin,
        selectors=selector_expressions(entry),
        tolerations=tuple(
            Toleration(*(each.string(field) for field in TOLERATION_PARTS)) for each in entry.parts("tolerations")
        ),
        capacities=entry.part("capacity").quantities("requests"),
        asks_capacity=entry.has("capacity"),
        derives_attributes=bool(entry.object.get("derivedAttributes")),
    )


def selector_expressions(part: Part) -> tuple[str | None, ...]:
    """The `selectors` of a request or a class: their CEL expressions, None for a selector of another kind."""
    return tuple(
        entry.part("cel").string("expression") if entry.has("cel") else None for entry in part.parts("selectors")
    )


class ClassLister(Protocol):
    """Finds the DeviceClasses of a cluster. A mapping from names to objects is one."""

    def get(self, name: str, /) -> Object | None:
        """The class of that name (v1 object), or None."""


class DeviceClass:
    """One DeviceClass (v1). Raises `InvalidObject` where a field is not of its type."""

    def __init__(self, obj: Object) -> None:
        """Read selectors and configuration."""
        whole = Part.whole("DeviceClass", obj)
        self.reference = whole.owner
        self.name = self.reference.name
        spec = whole.part("spec")
        self.selectors = selector_expressions(spec)
        self.config = spec.parts("config")


_PREVENTING = ("NoSchedule", "NoExecute")


def prevents(taint: Taint) -> bool:
    """Whether an allocation needs a toleration for this taint."""
    return taint.effect in _PREVENTING


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether the toleration is for this taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case _:
            return False


def untolerated(taints: Iterable[Taint], tolerations: tuple[Toleration, ...]) -> tuple[Taint, ...]:
    """The taints that keep a request with these tolerations away."""
    return tuple(
        taint for taint in taints if prevents(taint) and not any(tolerates(each, taint) for each in tolerations)
    )
