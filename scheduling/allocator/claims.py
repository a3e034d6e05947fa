"""ResourceClaims and DeviceClasses as the allocator reads them, and which taints a request tolerates.

Tolerations match as those of pods and nodes do: an empty key or effect matches any, the operator Exists any value.
Effects other than NoSchedule and NoExecute (None, and what later versions may add) keep nobody away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from scheduling.allocator import reading
from scheduling.allocator.reading import FatalError, Object, ObjectReference
from scheduling.allocator.slices import Taint
from scheduling.api.quantities import Quantity

RESULTS_MAX = 32
"""Devices that one claim can hold (AllocationResultsMaxSize of the API)."""
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

    def covers(self, request: DeviceRequest) -> bool:
        """Whether the constraint is about devices of this request; naming a request names all of its alternatives."""
        return not self.requests or request.name in self.requests or request.parent in self.requests


class Claim:
    """One ResourceClaim (v1). Raises `InvalidObject` where a field is not of its type."""

    def __init__(self, obj: Object) -> None:
        """Read the claim's `spec.devices`."""
        self.object = obj
        self.reference = owner = reading.reference("ResourceClaim", obj)
        spec = reading.mapping(owner, obj, "spec", "spec")
        self._devices = reading.mapping(owner, spec, "devices", "spec.devices")
        self.config = reading.objects(owner, self._devices, "config", "spec.devices.config")

    @cached_property
    def requests(self) -> tuple[RequestChoice, ...]:
        """The requests, in the claim's order."""
        path = "spec.devices.requests"
        entries = reading.objects(self.reference, self._devices, "requests", path)
        return tuple(_choice(self.reference, entry, f"{path}[{index}]") for index, entry in enumerate(entries))

    @cached_property
    def constraints(self) -> tuple[ConstraintFacts, ...]:
        """The constraints, in the claim's order."""
        path = "spec.devices.constraints"
        entries = reading.objects(self.reference, self._devices, "constraints", path)
        return tuple(
            ConstraintFacts(
                requests=frozenset(reading.strings(self.reference, entry, "requests", f"{path}[{index}].requests")),
                match_attribute=_attribute(self.reference, entry, "matchAttribute", f"{path}[{index}]"),
                distinct_attribute=_attribute(self.reference, entry, "distinctAttribute", f"{path}[{index}]"),
            )
            for index, entry in enumerate(entries)
        )


def _attribute(owner: ObjectReference, constraint: Object, name: str, path: str) -> str | None:
    return None if constraint.get(name) is None else reading.string(owner, constraint, name, f"{path}.{name}")


def _choice(owner: ObjectReference, entry: Object, path: str) -> RequestChoice:
    name = reading.string(owner, entry, "name", f"{path}.name")
    subrequests = reading.objects(owner, entry, "firstAvailable", f"{path}.firstAvailable")
    if subrequests:
        alternatives = tuple(
            _request(owner, each, f"{path}.firstAvailable[{index}]", name) for index, each in enumerate(subrequests)
        )
        return RequestChoice(name, path, alternatives, prioritized=True)
    if entry.get("exactly") is None:
        raise FatalError(owner, path, "neither exactly nor firstAvailable is set: there is nothing to allocate")
    exactly = reading.mapping(owner, entry, "exactly", f"{path}.exactly")
    request = _request(owner, exactly, f"{path}.exactly", "", name)
    return RequestChoice(name, path, (request,), prioritized=False)


def _request(owner: ObjectReference, entry: Object, path: str, parent: str, name: str = "") -> DeviceRequest:
    own_name = name or reading.string(owner, entry, "name", f"{path}.name")
    capacity = reading.mapping(owner, entry, "capacity", f"{path}.capacity")
    requested = reading.mapping(owner, capacity, "requests", f"{path}.capacity.requests")
    # An alternative cannot ask for admin access; the API has no such field there.
    asks_admin = not parent and entry.get("adminAccess") is not None
    return DeviceRequest(
        name=f"{parent}/{own_name}" if parent else own_name,
        parent=parent,
        path=path,
        object=entry,
        class_name=reading.string(owner, entry, "deviceClassName", f"{path}.deviceClassName"),
        mode=reading.string(owner, entry, "allocationMode", f"{path}.allocationMode"),
        count=reading.integer(owner, entry, "count", f"{path}.count"),
        admin_access=asks_admin and reading.boolean(owner, entry, "adminAccess", f"{path}.adminAccess"),
        asks_admin_access=asks_admin,
        selectors=selector_expressions(owner, entry, path),
        tolerations=_tolerations(owner, entry, path),
        capacities={
            key: reading.quantity(owner, value, f"{path}.capacity.requests[{key}]") for key, value in requested.items()
        },
        asks_capacity=entry.get("capacity") is not None,
        derives_attributes=bool(entry.get("derivedAttributes")),
    )


def selector_expressions(owner: ObjectReference, part: Object, path: str) -> tuple[str | None, ...]:
    """The `selectors` of a request or a class: their CEL expressions, None for a selector of another kind."""
    expressions: list[str | None] = []
    for index, entry in enumerate(reading.objects(owner, part, "selectors", f"{path}.selectors")):
        field = f"{path}.selectors[{index}].cel"
        if entry.get("cel") is None:
            expressions.append(None)
            continue
        cel = reading.mapping(owner, entry, "cel", field)
        expressions.append(reading.string(owner, cel, "expression", f"{field}.expression"))
    return tuple(expressions)


class ClassLister(Protocol):
    """Knows the DeviceClasses of a cluster. A mapping from names to objects is one."""

    def get(self, name: str, /) -> Object | None:
        """The class of that name (v1 object), or None."""


class DeviceClass:
    """One DeviceClass (v1). Raises `InvalidObject` where a field is not of its type."""

    def __init__(self, obj: Object) -> None:
        """Read selectors and configuration."""
        self.object = obj
        self.reference = owner = reading.reference("DeviceClass", obj)
        self.name = owner.name
        spec = reading.mapping(owner, obj, "spec", "spec")
        self.selectors = selector_expressions(owner, spec, "spec")
        self.config = reading.objects(owner, spec, "config", "spec.config")


def _tolerations(owner: ObjectReference, entry: Object, path: str) -> tuple[Toleration, ...]:
    field = f"{path}.tolerations"
    return tuple(
        Toleration(*(reading.string(owner, each, part, f"{field}[{index}].{part}") for part in TOLERATION_PARTS))
        for index, each in enumerate(reading.objects(owner, entry, "tolerations", field))
    )


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
