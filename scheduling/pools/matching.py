"""Which classes a claim's need can be met by, and which devices of a pool are eligible for it.

A need names a class, or a device type that stands for every class of that type, or (later spelling) a class that stands
for others by their labels. A device is eligible by a class if the pool's driver is the class's, and the constraints of
class and need hold for the merged attributes. A constraint that fails on a device of the driver is an error of the
claim, as in Kubernetes, and not a device that does not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from scheduling.pools.claim_documents import DeviceClaimDetail
from scheduling.pools.constraints import ConstraintError, DeviceFacts, outcome_of
from scheduling.pools.documents import (
    AttributeValue,
    ClassSelector,
    DevicePool,
    LabelRequirement,
    PoolDevice,
    PoolDeviceClass,
)


class MatchingError(ValueError):
    """A need that cannot be judged: its class is unknown or contradicts it, or a constraint fails."""


@dataclass(frozen=True, slots=True)
class PooledDevice:
    """One device with its pool and its merged attributes."""

    pool: DevicePool
    device: PoolDevice
    facts: DeviceFacts

    @property
    def name(self) -> tuple[str, str]:
        """The names of pool and device, by which allocations refer to it."""
        return self.pool.metadata.name, self.device.name

    def attribute(self, name: str) -> tuple[str, AttributeValue] | None:
        """Kind and value of an attribute, for comparing it between devices; None if the device lacks it."""
        found = self.facts.values.get(name)
        return None if found is None or found.value is None else (found.kind, found.value)


def devices_of(pool: DevicePool) -> tuple[PooledDevice, ...]:
    """The devices of a pool in its order; an attribute of a device wins over that of its pool."""
    shared = pool.spec.attributes
    return tuple(PooledDevice(pool, each, DeviceFacts((*shared, *each.attributes))) for each in pool.spec.devices)


def candidate_classes(detail: DeviceClaimDetail, classes: Mapping[str, PoolDeviceClass]) -> list[PoolDeviceClass]:
    """The classes that can meet a need, by name. `classes` by name. Raises MatchingError."""
    name, device_type = detail.device_class, detail.device_type
    if name:
        named = classes.get(name)
        if named is None:
            known = ", ".join(sorted(classes)) or "none"
            raise MatchingError(f"there is no DeviceClass {name}; the classes are: {known}")
        found = _selected(named, classes)
        if not device_type:
            return found
        if any(each.spec.device_type != device_type for each in found):
            theirs = ", ".join(sorted({each.spec.device_type or "no type" for each in found}))
            raise MatchingError(f"class {name} is of deviceType {theirs}, not {device_type}; name one of the two")
        return found
    if not device_type:
        raise MatchingError("a need must name a deviceClass or a deviceType")
    found = [classes[each] for each in sorted(classes) if classes[each].spec.device_type == device_type]
    if not found:
        known = ", ".join(sorted({each.spec.device_type for each in classes.values() if each.spec.device_type}))
        raise MatchingError(f"no DeviceClass is of deviceType {device_type}; the types are: {known or 'none'}")
    return found


def _selected(named: PoolDeviceClass, classes: Mapping[str, PoolDeviceClass]) -> list[PoolDeviceClass]:
    selector = named.spec.selector
    if selector is None:
        return [named]
    found = [
        classes[each]
        for each in sorted(classes)
        if classes[each].spec.selector is None and labels_match(selector, classes[each].metadata.labels)
    ]
    if not found:
        raise MatchingError(f"no DeviceClass has the labels that the selector of class {named.metadata.name} asks for")
    return found


def labels_match(selector: ClassSelector, labels: Mapping[str, str]) -> bool:
    """True if labels meet every requirement of a selector."""
    equal = all(labels.get(key) == value for key, value in selector.match_labels.items())
    return equal and all(_meets(each, labels) for each in selector.match_expressions)


_SET_OPERATORS: Final = ("In", "NotIn")


def _meets(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    if requirement.operator in _SET_OPERATORS:
        return (labels.get(requirement.key) in requirement.values) == (requirement.operator == "In")
    return (requirement.key in labels) == (requirement.operator == "Exists")


def is_eligible(device: PooledDevice, class_: PoolDeviceClass, detail: DeviceClaimDetail) -> bool:
    """True if a need can be met by this device through this class. Raises MatchingError for a failing constraint."""
    if device.pool.spec.driver != class_.spec.driver:
        return False
    for owner, text in (
        (f"DeviceClass {class_.metadata.name}", class_.spec.constraints),
        ("the claim", detail.constraints),
    ):
        outcome = outcome_of(text, device.facts)
        if outcome.error is not None:
            raise MatchingError(_failure(device, owner, outcome.error)) from outcome.error
        if not outcome.result:
            return False
    return True


def _failure(device: PooledDevice, owner: str, error: ConstraintError) -> str:
    pool, name = device.name
    return f"{owner}, at device {name} of pool {pool}: {error}"


def has_admin_access(detail: DeviceClaimDetail, class_: PoolDeviceClass) -> bool:
    """True if the need ignores every use of its devices, and does not occupy them."""
    return bool(class_.spec.admin_access) if detail.admin_access is None else detail.admin_access
