"""DeviceClaims as Kubernetes' ResourceClaims and ResourceClaimTemplates (resource.k8s.io/v1).

A claim of v1 never gets devices that its document would not allow. Where v1 cannot say something exactly, it is said
more narrowly and named as lost; where that cannot be either, the claim is left out.

Each need becomes a request. A need that v1 can meet in one way is `exactly`; others are `firstAvailable`, in the order
in which pools prefer them: entries of `oneOf`, then fewer devices, then classes by name. A sum over n devices is asked
as an n-th of it from each, once for every number of devices that the need allows.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from scheduling.api.labels import label_faults, subdomain_faults
from scheduling.api.quantities import Quantity, of_json
from scheduling.api.validation.parts import qualified_name
from scheduling.pools.capacity import quantity_of, round_up
from scheduling.pools.claim_documents import DeviceAllocation, DeviceClaim, DeviceClaimDetail, DeviceClaimInstance
from scheduling.pools.documents import COUNT, PoolDeviceClass
from scheduling.pools.flat_cel import AttributeKind, UntranslatableConstraint
from scheduling.pools.lost import LeftOut, Losses
from scheduling.pools.matching import MatchingError, candidate_classes, has_admin_access
from scheduling.pools.resource_slices import V1, Object, PublishedNames, constraint_of, first_fault
from scheduling.pools.search import occupying

ADMIN_WITH_COUNTERS: Final = "v1 gives it only to devices whose shared counters are left"
ADMIN_ONCE: Final = "v1 gives a device to one request of a claim only, also with admin access"
NO_PART: Final = "v1 has no part of 0"
MOST_OPTIONS: Final = 8
"""Entries of firstAvailable."""
MOST_DEVICES: Final = 32
"""Devices of one claim."""
_UNIT: Final = 10**9
_MEBI: Final = _UNIT << 20
_SHARES: Final = uuid.UUID("9d4b1d4c-9b0e-5c0e-8f3a-6a1c4d0f2b7e")


@dataclass(frozen=True, slots=True)
class RequestOption:
    """One way to meet a need: that many devices of one class. `capacity`: what each device gives.

    `matches`: full names of the attributes that are equal on its devices. `driver` is empty where it is not known.
    """

    class_name: str
    driver: str
    count: int
    selectors: tuple[Object, ...] = ()
    capacity: Mapping[str, str] = field(default_factory=dict)
    admin: bool = False
    matches: tuple[str, ...] = ()

    def body(self) -> Object:
        """The fields that `exactly` and an entry of `firstAvailable` have in common."""
        found: Object = {"deviceClassName": self.class_name, "allocationMode": "ExactCount", "count": self.count}
        if self.selectors:
            found["selectors"] = list(self.selectors)
        if self.capacity:
            found["capacity"] = {"requests": dict(self.capacity)}
        return found


@dataclass(frozen=True, slots=True)
class NamedRequest:
    """A request with its options, the preferred first."""

    name: str
    options: tuple[RequestOption, ...]

    def body(self) -> Object:
        """The entry of `spec.devices.requests`."""
        if len(self.options) == 1:
            (only,) = self.options
            admin: Object = {"adminAccess": True} if only.admin else {}
            return {"name": self.name, "exactly": {**only.body(), **admin}}
        entries = [{"name": option_name(number), **each.body()} for number, each in enumerate(self.options)]
        return {"name": self.name, "firstAvailable": entries}

    def constraints(self) -> Iterator[Object]:
        """What must match within the request; once for all options where they agree."""
        matches = {each.matches for each in self.options}
        if len(matches) == 1:
            yield from ({"requests": [self.name], "matchAttribute": name} for name in next(iter(matches)))
            return
        for number, each in enumerate(self.options):
            only = f"{self.name}/{option_name(number)}"
            yield from ({"requests": [only], "matchAttribute": name} for name in each.matches)


def option_name(number: int) -> str:
    """The name of an entry of firstAvailable."""
    return f"option-{number + 1}"


def claim_spec(requests: Sequence[NamedRequest], matches: Iterable[str] = ()) -> Object:
    """The spec of a claim with these requests; `matches`: attributes that are equal on all of its devices."""
    devices: Object = {"requests": [each.body() for each in requests]}
    constraints = [each for request in requests for each in request.constraints()]
    constraints += [{"matchAttribute": name} for name in matches]
    if constraints:
        devices["constraints"] = constraints
    return {"devices": devices}


def claim_metadata(claim: DeviceClaim) -> Object:
    """The name, namespace and labels that a claim of v1 keeps. Raises LeftOut for a name that v1 does not allow."""
    name = claim.metadata.name
    fault = first_fault(subdomain_faults(name))
    if fault:
        raise LeftOut("metadata.name", f"v1 cannot name a claim {name}: {fault}")
    metadata: Object = {"name": name}
    if claim.metadata.namespace:
        metadata["namespace"] = claim.metadata.namespace
    if claim.metadata.labels:
        metadata["labels"] = dict(claim.metadata.labels)
    return metadata


class ClaimConversion:
    """Converts claims beside the classes and pools that they are about.

    `devices`: driver and v1 device by the names of pool and device.
    """

    def __init__(
        self,
        classes: Mapping[str, PoolDeviceClass],
        names: PublishedNames,
        devices: Mapping[tuple[str, str], tuple[str, Object]],
    ) -> None:
        self._classes = classes
        self._names = names
        self._devices = devices

    def convert(self, claim: DeviceClaim, losses: Losses, *, template: bool) -> Object | None:
        """The claim, or the template that makes such claims; None if it is left out."""
        try:
            return self._converted(claim, losses, template=template)
        except LeftOut as fault:
            losses.leave_out(fault)
            return None

    def _converted(self, claim: DeviceClaim, losses: Losses, *, template: bool) -> Object:
        metadata = claim_metadata(claim)
        requests = named_requests(claim, lambda detail, at: self._options(detail, at, losses), losses)
        spec = claim_spec(requests, self._common_matches(claim, requests))
        if template:
            if claim.status.allocations:
                losses.add("status.allocations", "a template has none")
            return {"apiVersion": V1, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": {"spec": spec}}
        found = {"apiVersion": V1, "kind": "ResourceClaim", "metadata": metadata, "spec": spec}
        if claim.status.allocations:
            status = self._status(claim, requests, losses)
            return {**found, **({"status": status} if status else {})}
        return found

    def _options(self, detail: DeviceClaimDetail, at: str, losses: Losses) -> list[RequestOption]:
        """The options of one need, the preferred first."""
        add_unsaid(detail, at, losses)
        classes = self._candidates(detail, at)
        admin = {self._is_admin(detail, name) for name, _ in classes}
        amounts = {name: amount for name, amount in detail.amounts.items() if amount.nanos}
        for name in amounts:
            fault = first_fault(qualified_name(name, ""))
            if fault:
                raise LeftOut(f"{at}.requests.{name}", f"v1 cannot name an amount {name}: {fault}")
        most = detail.most if amounts and admin != {True} else detail.least
        for name, amount in detail.amounts.items():
            if not amount.nanos:
                losses.add(f"{at}.requests.{name}", f"{NO_PART}; the need takes whole devices")
        if amounts and most > 1 and admin != {True}:
            losses.add(f"{at}.requests", f"{listed(amounts)} is a sum over devices; v1 asks for an equal part of each")
        if True in admin:
            losses.add(f"{at}.adminAccess", ADMIN_WITH_COUNTERS)
        if len(classes) > 1 and most > 1:
            losses.add(at, "v1 cannot take the devices of one need from several classes")
        found = []
        for count in range(detail.least, most + 1):
            for class_name, driver in classes:
                capacity = {name: share_of(amount, count).text for name, amount in amounts.items()}
                is_admin = self._is_admin(detail, class_name)
                option = RequestOption(
                    class_name,
                    driver,
                    count,
                    tuple(constraint_of(detail.constraints, driver, self._names, f"{at}.constraints")),
                    {} if is_admin else capacity,
                    is_admin,
                    tuple(
                        self._full_name(driver, name, f"{at}.matchAttributes[{number}]")
                        for number, name in enumerate(detail.match_attributes)
                    ),
                )
                found.append(option)
        return found

    def _candidates(self, detail: DeviceClaimDetail, at: str) -> list[tuple[str, str]]:
        """Name and driver of each class; the driver is empty for a class that is not among the documents."""
        name = detail.device_class
        if name and not detail.device_type and name not in self._classes:
            fault = first_fault(subdomain_faults(name))
            if fault:
                raise LeftOut(f"{at}.deviceClass", f"v1 cannot name a class {name}: {fault}")
            return [(name, "")]
        try:
            return [(each.metadata.name, each.spec.driver) for each in candidate_classes(detail, self._classes)]
        except MatchingError as error:
            raise LeftOut(at, f"{error}; add the DeviceClass documents") from error

    def _is_admin(self, detail: DeviceClaimDetail, class_name: str) -> bool:
        class_ = self._classes.get(class_name)
        return bool(detail.admin_access) if class_ is None else has_admin_access(detail, class_)

    def _full_name(self, driver: str, name: str, at: str) -> str:
        fault = first_fault(qualified_name(name, ""))
        if fault:
            raise LeftOut(at, f"v1 cannot name an attribute {name}: {fault}")
        if "/" in name:
            return name
        if not driver:
            advice = f"add the DeviceClass document, or write the domain, such as resource.kubernetes.io/{name}"
            raise LeftOut(at, f"v1 needs the domain of {name}, and the driver of the class is not known; {advice}")
        if self._is_quantity(driver, name):
            raise LeftOut(at, f"v1 cannot compare {name}, which is a quantity")
        return f"{driver}/{name}"

    def _is_quantity(self, driver: str, name: str) -> bool:
        try:
            return self._names.find(driver, name).kind is AttributeKind.QUANTITY
        except UntranslatableConstraint:
            return False

    def _common_matches(self, claim: DeviceClaim, requests: Sequence[NamedRequest]) -> list[str]:
        """Full names of the attributes that match across the claim; v1 compares one name on all devices."""
        found = []
        drivers = {option.driver for each in requests for option in each.options}
        for number, name in enumerate(claim.spec.match_attributes):
            at = f"spec.matchAttributes[{number}]"
            full = {self._full_name(driver, name, at) for driver in sorted(drivers)}
            if len(full) > 1:
                raise LeftOut(
                    at,
                    f"v1 compares one name on all devices, and {name} is {' and '.join(sorted(full))}; "
                    f"publish and match it with a domain, such as resource.kubernetes.io/{name}",
                )
            found.append(full.pop())
        return found

    def _status(self, claim: DeviceClaim, requests: Sequence[NamedRequest], losses: Losses) -> Object:
        """The allocation, if all of its devices are known."""
        unknown = sorted(
            {each.pool for each in claim.status.allocations if (each.pool, each.device) not in self._devices}
        )
        if unknown:
            why = (
                f"the pool {unknown[0]} is not among the documents, or not the device; the claim is not allocated then"
            )
            losses.add("status.allocations", why)
            return {}
        if any(one.name for each in claim.status.allocations for one in each.allocations if not one.allocation.nanos):
            losses.add("status.allocations", f"{NO_PART}; the claim has whole devices")
        if len(requests) > 1:
            losses.add("status.allocations", "they do not say for which need; requests get them in their order")
        admin = not occupying(claim, self._classes)
        slots = [each.name for each in requests for _ in range(each.options[0].count)]
        results = [
            self._result(claim, each, slots[min(number, len(slots) - 1)], admin=admin)
            for number, each in enumerate(claim.status.allocations)
        ]
        return {"allocation": {"devices": {"results": results}}}

    def _result(self, claim: DeviceClaim, each: DeviceAllocation, request: str, *, admin: bool) -> Object:
        driver, device = self._devices[each.pool, each.device]
        found: Object = {"request": request, "driver": driver, "pool": each.pool, "device": each.device}
        if admin:
            found["adminAccess"] = True
        if not device.get("allowMultipleAllocations"):
            return found
        # Who draws nothing would leave the device unused in v1, so it has all of it.
        named = {
            one.name: one.allocation
            for one in each.allocations
            if one.name in device["capacity"] and one.allocation.nanos
        }
        consumed = {}
        for name, capacity in device["capacity"].items():
            policy = capacity.get("requestPolicy", {})
            if name in named:
                step = of_json(policy["validRange"]["step"]).nanos if policy else 0
                consumed[name] = quantity_of(round_up(named[name].nanos, step), named[name]).text
            elif not named:
                consumed[name] = policy.get("default", capacity["value"])
        who = f"{claim.metadata.namespace}/{claim.metadata.name}/{each.pool}/{each.device}"
        return {**found, "shareID": str(uuid.uuid5(_SHARES, who)), "consumedCapacity": consumed}


def requests_in(
    number: int, instance: DeviceClaimInstance, at: str, taken: set[str]
) -> list[tuple[str, list[tuple[str, DeviceClaimDetail]]]]:
    """The requests of one entry of a claim: the name, and the details of which one must be met, with their places.

    `taken`: names that other requests have.
    """
    slots: list[list[tuple[str, DeviceClaimDetail]]] = []
    for position, each in enumerate(instance.all_of):
        inner = f".allOf[{position}]" if instance.name or len(instance.all_of) > 1 else ""
        slots.append([(at + inner, each)])
    if instance.one_of:
        slots.append([(f"{at}.oneOf[{position}]", each) for position, each in enumerate(instance.one_of)])
    plain = re.sub(r"[^a-z0-9]+", "-", instance.name.lower()).strip("-")[:50] or f"need-{number + 1}"
    names = [plain if len(slots) == 1 else f"{plain}-{position + 1}" for position in range(len(slots))]
    free = [name if name not in taken else f"{name}-of-{number + 1}" for name in names]
    assert not any(label_faults(each) for each in free)
    return list(zip(free, slots, strict=True))


def named_requests(
    claim: DeviceClaim, options_of: Callable[[DeviceClaimDetail, str], list[RequestOption]], losses: Losses
) -> list[NamedRequest]:
    """One request for each need of a claim. `options_of`: the ways to meet a need, by its field. Raises LeftOut."""
    found: list[NamedRequest] = []
    for number, instance in enumerate(claim.spec.claims):
        at = f"spec.claims[{number}]"
        for name, details in requests_in(number, instance, at, {each.name for each in found}):
            options = [one for where, each in details for one in options_of(each, where)]
            if len(options) > 1 and any(each.admin for each in options):
                raise LeftOut(at, "v1 cannot ask for admin access in alternatives; write one need without them")
            found.append(NamedRequest(name, tuple(_bounded(options, details[0][0], losses))))
    return found


def add_unsaid(detail: DeviceClaimDetail, at: str, losses: Losses) -> None:
    """Names what is lost of every need: references to configuration, and limits of amounts."""
    for number, each in enumerate(detail.configs):
        losses.add(f"{at}.configs[{number}]", f"v1 holds parameters and no reference to {each.kind} {each.name}")
    for name in detail.limits:
        if name != COUNT:
            losses.add(f"{at}.limits.{name}", "v1 has no limits")


def _bounded(options: Sequence[RequestOption], at: str, losses: Losses) -> list[RequestOption]:
    """As many options as v1 has room for."""
    found = [each for each in options if each.count <= MOST_DEVICES]
    if not found:
        raise LeftOut(at, f"v1 has {MOST_DEVICES} devices in a claim")
    if len(found) < len(options):
        losses.add(at, f"v1 has {MOST_DEVICES} devices in a claim; ways with more are left out")
    if len(found) > MOST_OPTIONS:
        losses.add(
            at, f"v1 has {MOST_OPTIONS} alternatives; {len(found) - MOST_OPTIONS} less preferred ones are left out"
        )
    return found[:MOST_OPTIONS]


def share_of(amount: Quantity, count: int) -> Quantity:
    """What each of some devices gives so that the sum is reached; in whole Mi or in whole units if the sum is."""
    part = -(-amount.nanos // count)
    unit = next((unit for unit in (_MEBI, _UNIT) if amount.nanos % unit == 0), 1)
    return quantity_of(round_up(part, unit), amount)


def listed(amounts: Mapping[str, Quantity]) -> str:
    """Amounts as messages show them."""
    return ", ".join(f"{name} {amount}" for name, amount in amounts.items())
