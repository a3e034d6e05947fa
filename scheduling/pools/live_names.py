"""Finds the names in slices behind the flat names of published pools, for claims written against slices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scheduling.allocator.constraints import lookup, scalar
from scheduling.allocator.slices import SliceDevice
from scheduling.api.excerpts import excerpt
from scheduling.pools.documents import PoolDeviceClass
from scheduling.pools.flat_cel import AttributeKind, SliceName, UntranslatableConstraint, selector_of
from scheduling.pools.lost import LeftOut
from scheduling.pools.published import PublishedDevice, PublishedPool
from scheduling.pools.resource_slices import V1, Object


class LiveNames:
    """Where flat names stand in the slices of some published devices."""

    def __init__(self, devices: Iterable[PublishedDevice]) -> None:
        self._found: dict[str, set[tuple[str, str, AttributeKind]]] = {}
        self._capacities: dict[str, set[tuple[str, str]]] = {}
        for each in devices:
            source = each.source
            if source is None:
                continue
            for flat, full in each.names.items():
                self._found.setdefault(flat, set()).add((source.id.driver, full, _kind(source, full)))
            for amount, written in zip(each.amounts, sorted(source.capacity), strict=True):
                self._capacities.setdefault(amount.name, set()).add((source.id.driver, written))

    def find(self, name: str) -> SliceName:
        """Where an attribute stands. Raises UntranslatableConstraint."""
        known = self._found.get(name, set())
        if not known:
            raise UntranslatableConstraint(
                f"reads the attribute {name}, which no device of the class has; they have: {self.known}"
            )
        kinds = {kind for _, _, kind in known}
        full = {each for _, each, _ in known}
        if len(kinds) > 1:
            raise UntranslatableConstraint(
                f"reads the attribute {name}, which is {' here and '.join(sorted(kinds))} there"
            )
        identifier = next(iter(full)).partition("/")[2]
        if len(full) == 1:
            return SliceName(next(iter(full)).partition("/")[0], identifier, kinds.pop())
        if all(each == f"{driver}/{identifier}" for driver, each, _ in known):
            return SliceName("", identifier, kinds.pop())
        raise UntranslatableConstraint(f"reads the attribute {name}, which is {' and '.join(sorted(full))}; write one")

    def full_names(self, name: str) -> set[str]:
        """The full names of an attribute, for comparing devices."""
        return {full for _, full, _ in self._found.get(name, ())}

    @property
    def known(self) -> str:
        """The attributes that devices have, for messages."""
        return ", ".join(sorted(self._found)) or "none"

    def capacity(self, name: str) -> SliceName | None:
        """Where an amount stands; None if slices write several names, or none."""
        known = self._capacities.get(name, set())
        written = {each for _, each in known}
        if len(written) != 1:
            return None
        domain, _, identifier = written.pop().rpartition("/")
        drivers = {each for each, _ in known}
        own = drivers.pop() if len(drivers) == 1 else ""
        return SliceName(domain or own, identifier, AttributeKind.QUANTITY, bare=not domain)


def _kind(device: SliceDevice, full: str) -> AttributeKind:
    attribute = lookup(device, full)
    typed = None if attribute is None else scalar(attribute)
    kinds = {"bool": AttributeKind.FLAG, "version": AttributeKind.VERSION}
    return AttributeKind.PLAIN if typed is None else kinds.get(typed[0], AttributeKind.PLAIN)


@dataclass(frozen=True, slots=True)
class ClassMembers:
    """A class for a need: its devices, whoever has them, and where names stand in their slices.

    admin: the need has admin access through it.
    """

    name: str
    devices: tuple[PublishedDevice, ...]
    names: LiveNames
    admin: bool = False

    def most_of(self, amount: str) -> int:
        """The most that one device has of an amount."""
        sizes = (one.capacity.nanos for each in self.devices for one in each.amounts if one.name == amount)
        return max(sizes, default=0)


def written_class(class_: PoolDeviceClass, pools: Sequence[PublishedPool]) -> Object:
    """The v1 class that a document stands for, on the devices of published pools. Raises LeftOut with its name."""
    driver, at = class_.spec.driver, f"DeviceClass {class_.metadata.name}: spec"
    if class_.spec.selector is not None:
        raise LeftOut(f"{at}.selector", "v1 has no class for other classes; name those in the claim")
    expressions = [f'device.driver == "{driver}"']
    if class_.spec.constraints:
        names = LiveNames(each for pool in pools if pool.driver == driver for each in pool.devices)
        try:
            expressions.append(selector_of(class_.spec.constraints, names.find))
        except UntranslatableConstraint as error:
            raise LeftOut(f"{at}.constraints", f"{excerpt(class_.spec.constraints)}: {error}") from error
    spec = {"selectors": [{"cel": {"expression": each}} for each in expressions]}
    return {"apiVersion": V1, "kind": "DeviceClass", "metadata": {"name": class_.metadata.name}, "spec": spec}
