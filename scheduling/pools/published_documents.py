"""What a cluster publishes, as documents of pools: the way back of `conversion`, with what is lost by name.

What the documents say is free is free in the cluster. Devices that a taint keeps claims away from are left out, and so
are pools that are not usable. A claim that is allocated stays, with what it has, even if its needs cannot be said: then
it asks for its classes alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from scheduling.allocator.allocated import allocation_results
from scheduling.allocator.claims import Claim, DeviceClass, DeviceRequest, RequestChoice, prevents
from scheduling.allocator.constraints import lookup, scalar
from scheduling.allocator.reading import Object, Part
from scheduling.api.excerpts import excerpt
from scheduling.api.quantities import Quantity, from_int
from scheduling.pools.capacity import quantity_of
from scheduling.pools.claim_documents import (
    DeviceAllocation,
    DeviceClaim,
    DeviceClaimDetail,
    DeviceClaimInstance,
    DeviceClaimSpec,
    DeviceClaimStatus,
    Document,
    ResourceAllocation,
)
from scheduling.pools.documents import (
    API_VERSION,
    COUNT,
    DeviceClassSpec,
    DevicePool,
    DocumentMetadata,
    PoolDeviceClass,
)
from scheduling.pools.flat_cel import UntranslatableConstraint
from scheduling.pools.lost import LeftOut, Losses, Lost
from scheduling.pools.published import PublishedDevice, PublishedPool
from scheduling.pools.published_classes import type_of_class
from scheduling.pools.selector_cel import flat_selector

_ALL: Final = "All"
DeviceKey = tuple[str, str, str]
"""Driver, pool and device."""


@dataclass(slots=True)
class PoolDocumentSet:
    """The documents, and what is lost."""

    documents: list[Document] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)


def published_documents(
    pools: Sequence[PublishedPool], classes: Iterable[Object], claims: Iterable[Object]
) -> PoolDocumentSet:
    """The documents of published pools, and of v1 classes and claims. Raises `InvalidObject`."""
    found = PoolDocumentSet()
    names = _SliceFacts(pools)
    divided = _divided(pools)
    for pool in pools:
        losses = Losses(f"pool {pool.driver}/{pool.name}", found.lost)
        if pool.fault:
            losses.leave_out(LeftOut("", pool.fault))
        elif (pool.driver, pool.name) in divided:
            where = ", ".join(pool.nodes)
            why = "nodes see parts of it that have devices or counters in common, which two documents cannot share"
            losses.leave_out(LeftOut("", f"{why}; this part is on {where}"))
        else:
            found.documents.append(_pool(pool, losses))
    for class_ in classes:
        losses = Losses(f"DeviceClass {class_['metadata']['name']}", found.lost)
        try:
            found.documents.append(_class(DeviceClass(class_), type_of_class(class_), names))
        except LeftOut as fault:
            losses.leave_out(fault)
    for claim in claims:
        made = _ClaimReading(claim, names, found.lost).document()
        if made is not None:
            found.documents.append(made)
    return found


def _divided(pools: Iterable[PublishedPool]) -> set[tuple[str, str]]:
    """Driver and name of pools of which several parts are listed that are not independent."""
    parts: dict[tuple[str, str], list[PublishedPool]] = {}
    for each in pools:
        parts.setdefault((each.driver, each.name), []).append(each)
    found = set()
    for key, several in parts.items():
        devices = [one.name for each in several for one in each.devices]
        if len(several) > 1 and (several[0].resources or len(set(devices)) < len(devices)):
            found.add(key)
    return found


class _SliceFacts:
    """Flat names of attributes and amounts, and where devices stand in documents."""

    def __init__(self, pools: Iterable[PublishedPool]) -> None:
        self._flat: dict[str, set[str]] = {}
        self._kinds: dict[str, set[str]] = {}
        self.devices: dict[DeviceKey, tuple[str, PublishedDevice]] = {}
        for pool in pools:
            for each in pool.devices:
                self.devices[pool.driver, pool.name, each.name] = (pool.document.metadata.name, each)
                for flat, full in each.names.items():
                    self._flat.setdefault(full, set()).add(flat)
                    self._kinds.setdefault(full, set()).add(_kind(each, full))

    def value(self, domain: str, name: str) -> str:
        """The flat name of an attribute whose values are the same in pools. Raises UntranslatableConstraint."""
        full = f"{domain}/{name}"
        others = self._kinds.get(full, set()) - {"string", "int"}
        if others:
            raise UntranslatableConstraint(f"reads {full}, a {min(others)}, whose values pools hold otherwise")
        return self.name(full)

    def name(self, full: str) -> str:
        """The flat name of an attribute. Raises UntranslatableConstraint."""
        flat = self._flat.get(full, {full.partition("/")[2] or full})
        if len(flat) > 1:
            raise UntranslatableConstraint(f"reads {full}, which is {' and '.join(sorted(flat))} in pools")
        return next(iter(flat))


def _kind(device: PublishedDevice, full: str) -> str:
    attribute = None if device.source is None else lookup(device.source, full)
    typed = None if attribute is None else scalar(attribute)
    return "list" if typed is None else typed[0]


def _pool(pool: PublishedPool, losses: Losses) -> DevicePool:
    """The document without the devices that nobody gets, and what it does not say."""
    seen: set[str] = set()
    kept = []
    for each in pool.devices:
        taint = next((taint for taint in each.taints if prevents(taint)), None)
        if taint is not None:
            losses.add(f"device {each.name}", f"pools have no taints ({taint.key}); the device is left out")
            continue
        kept.append(each.document)
        for at, why in _not_said(each):
            if at not in seen:
                seen.add(at)
                losses.add(at, why)
    spec = replace(pool.document.spec, devices=tuple(kept))
    if pool.node is None and any(_chooses(each) for each in pool.devices):
        where = ", ".join(pool.nodes) or "none"
        losses.add("spec.nodeName", f"a DevicePool is on one node or on all; this one is on {where}")
        if len(pool.nodes) == 1:
            spec = replace(spec, node_name=pool.nodes[0])
    return replace(pool.document, spec=spec)


def _chooses(device: PublishedDevice) -> bool:
    """True if not every node reaches a device."""
    if device.source is None:
        return False
    place = device.source.slice
    return place.nodes.name is not None or place.nodes.selector is not None or place.per_device is True


def _not_said(device: PublishedDevice) -> Iterator[tuple[str, str]]:
    """What pools cannot say of a device."""
    if device.source is None:
        return
    for full in sorted(device.names.values()):
        kind = _kind(device, full)
        if kind == "list":
            yield f"attribute {full}", "pools have no lists; it is left out"
        elif kind == "bool":
            yield f"attribute {full}", "pools have no true and false; it becomes a text"
    for name, capacity in device.source.capacity.items():
        policy = capacity.policy
        if policy is not None and policy.values:
            yield f"capacity {name}", "pools have no lists of amounts that can be drawn"
        elif policy is not None and policy.range is not None and policy.range.minimum:
            yield f"capacity {name}", "pools have no least amount but the block"
    if device.shareable and not device.amounts:
        yield f"device {device.name}", "any number of claims can share it; a need takes it whole"


def _class(class_: DeviceClass, device_type: str, names: _SliceFacts) -> PoolDeviceClass:
    driver, constraints = "", []
    for number, expression in enumerate(class_.selectors):
        at = f"spec.selectors[{number}]"
        if expression is None:
            raise LeftOut(at, "it is no CEL selector")
        try:
            found = flat_selector(expression, names.value)
        except UntranslatableConstraint as error:
            raise LeftOut(at, f"{excerpt(expression)}: {error}") from error
        if found.driver and driver not in ("", found.driver):
            raise LeftOut(at, "the class names two drivers, so no device is of it")
        driver = found.driver or driver
        constraints += [found.constraint] if found.constraint else []
    if not driver:
        raise LeftOut("spec.selectors", 'a DeviceClass document has one driver; add device.driver == "NAME"')
    text = " && ".join(f"({each})" if len(constraints) > 1 else each for each in constraints)
    spec = DeviceClassSpec(driver=driver, device_type=device_type, constraints=text or None)
    return PoolDeviceClass(API_VERSION, "DeviceClass", DocumentMetadata(name=class_.name), spec)


class _ClaimReading:
    """One claim of v1 as a document."""

    def __init__(self, claim: Object, names: _SliceFacts, lost: list[Lost]) -> None:
        self._part = Part.whole("ResourceClaim", claim)
        self._claim = Claim(claim)
        self._names = names
        self._losses = Losses(str(self._part.owner), lost)

    def document(self) -> DeviceClaim | None:
        """The document; None for a claim that has nothing and whose needs cannot be said."""
        results = allocation_results(self._part.object)
        try:
            spec = self._spec()
        except LeftOut as fault:
            if not results:
                self._losses.leave_out(fault)
                return None
            self._losses.add(fault.field, f"{fault.why}; the document asks for the classes alone")
            spec = self._bare()
        owner = self._part.owner
        metadata = DocumentMetadata(name=owner.name, namespace=owner.namespace)
        users = self._part.part("status").parts("reservedFor")
        pods = tuple(each.string("name") for each in users if each.string("resource") == "pods")
        status = DeviceClaimStatus(allocations=tuple(self._allocations(results)), pod_names=pods)
        return DeviceClaim(API_VERSION, "DeviceClaim", metadata, spec, status)

    def _bare(self) -> DeviceClaimSpec:
        details = [
            DeviceClaimDetail(device_class=each.class_name, admin_access=each.admin_access or None)
            for each in (choice.alternatives[0] for choice in self._claim.requests)
        ]
        return DeviceClaimSpec(claims=tuple(DeviceClaimInstance(all_of=(each,)) for each in details))

    def _spec(self) -> DeviceClaimSpec:
        matches: dict[str, list[str]] = {each.name: [] for each in self._claim.requests}
        common: list[str] = []
        for number, rule in enumerate(self._claim.constraints):
            at = f"spec.devices.constraints[{number}]"
            if rule.match_attribute is None:
                raise LeftOut(f"{at}.{rule.rule}", "pools cannot ask for different values")
            flat = self._flat(rule.match_attribute, at)
            if not rule.requests or rule.requests == matches.keys():
                common.append(flat)
            elif len(rule.requests) == 1 and next(iter(rule.requests)) in matches:
                matches[next(iter(rule.requests))].append(flat)
            else:
                raise LeftOut(f"{at}.requests", "pools match one need or the whole claim")
        instances = tuple(self._instance(each, matches[each.name]) for each in self._claim.requests)
        return DeviceClaimSpec(match_attributes=tuple(common), claims=instances)

    def _flat(self, full: str, at: str) -> str:
        try:
            return self._names.name(full)
        except UntranslatableConstraint as error:
            raise LeftOut(at, str(error)) from error

    def _instance(self, choice: RequestChoice, matches: Sequence[str]) -> DeviceClaimInstance:
        details = tuple(self._detail(each, tuple(matches)) for each in choice.alternatives)
        return DeviceClaimInstance(one_of=details) if choice.prioritized else DeviceClaimInstance(all_of=details)

    def _detail(self, request: DeviceRequest, matches: tuple[str, ...]) -> DeviceClaimDetail:
        if request.mode == _ALL:
            raise LeftOut(f"{request.path}.allocationMode", "pools cannot ask for all devices")
        constraints = []
        for number, expression in enumerate(request.selectors):
            at = f"{request.path}.selectors[{number}]"
            if expression is None:
                raise LeftOut(at, "it is no CEL selector")
            try:
                found = flat_selector(expression, self._names.value)
            except UntranslatableConstraint as error:
                raise LeftOut(at, f"{excerpt(expression)}: {error}") from error
            if found.driver:
                raise LeftOut(at, f"{excerpt(expression)}: the driver belongs into a class of pools")
            constraints.append(found.constraint)
        if request.tolerations:
            self._losses.add(f"{request.path}.tolerations", "pools have no taints")
        amounts: dict[str, Quantity] = {COUNT: from_int(request.count)}
        for name, amount in request.capacities.items():
            if request.count > 1:
                self._losses.add(f"{request.path}.capacity", f"{name} of each device becomes a sum over devices")
            amounts[name.rpartition("/")[2]] = quantity_of(amount.nanos * request.count, amount)
        return DeviceClaimDetail(
            device_class=request.class_name,
            constraints=" && ".join(f"({each})" if len(constraints) > 1 else each for each in constraints) or None,
            requests=amounts,
            match_attributes=matches,
            admin_access=True if request.admin_access else None,
        )

    def _allocations(self, results: Iterable[Part]) -> Iterator[DeviceAllocation]:
        for result in results:
            key = (result.string("driver"), result.string("pool"), result.string("device"))
            known = self._names.devices.get(key)
            if known is None:
                self._losses.add(result.path, f"no slice lists the device {'/'.join(key)}")
                continue
            name, device = known
            shared = bool(result.string("shareID"))
            consumed: Mapping[str, Quantity] = result.quantities("consumedCapacity") if shared else {}
            listed = {each.rpartition("/")[2]: amount for each, amount in consumed.items()}
            drawn = tuple(
                ResourceAllocation(each.name, listed[each.name.rpartition("/")[2]])
                for each in device.amounts
                if each.name.rpartition("/")[2] in listed
            )
            yield DeviceAllocation(name, device.name, drawn)
