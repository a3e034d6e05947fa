"""Consumable capacity: how much of a device a request takes.

A request may ask for an amount of each capacity. The device's policy rounds the amount up and limits it; without an
amount in the request its default applies. A device that allows several allocations gives that amount away; any other
is only filtered by it. The arithmetic is Kubernetes': whole units in 64 bits, or thousandths where the feature for
fractional ranges is on and the policy can be written in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from scheduling.allocator.reading import Part, quantity
from scheduling.api.int64 import INT64_MAX
from scheduling.api.quantities import Quantity, from_int, from_milli


@dataclass(frozen=True, slots=True)
class CapacityRange:
    """Amounts from `minimum` to `maximum`, in steps from the minimum."""

    minimum: Quantity | None
    maximum: Quantity | None
    step: Quantity | None


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """How requests for a capacity are rounded and limited; a range goes before values."""

    default: Quantity | None
    range: CapacityRange | None
    values: tuple[Quantity, ...]


@dataclass(frozen=True, slots=True)
class DeviceCapacity:
    """One capacity of a device."""

    value: Quantity
    policy: RequestPolicy | None


def read_capacity(device: Part) -> Mapping[str, DeviceCapacity]:
    """The `capacity` of a device."""
    return {
        name: DeviceCapacity(entry.quantity("value"), _policy(entry) if entry.has("requestPolicy") else None)
        for name, entry in device.named("capacity").items()
    }


def _policy(capacity: Part) -> RequestPolicy:
    policy = capacity.part("requestPolicy")
    values, path = policy.object.get("validValues") or (), policy.at("validValues")
    if not isinstance(values, list | tuple):
        raise policy.wrong("validValues", values, "a list of quantities")
    limits = policy.part("validRange") if policy.has("validRange") else None
    return RequestPolicy(
        default=_optional(policy, "default"),
        range=None if limits is None else CapacityRange(*(_optional(limits, name) for name in ("min", "max", "step"))),
        values=tuple(quantity(policy.owner, each, f"{path}[{index}]") for index, each in enumerate(values)),
    )


def _optional(part: Part, field: str) -> Quantity | None:
    return part.quantity(field) if part.has(field) else None


class CapacityFault(ValueError):
    """An amount that cannot be computed; Kubernetes ends the whole allocation then."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"capacity {name}: {message}")


class Unsuitable(Enum):
    """Why a device cannot serve a request for capacity, independent of its other users."""

    UNKNOWN = "the device does not have a capacity of that name"
    POLICY = "the amount is against the device's request policy"


def consumption(
    requested: Mapping[str, Quantity], capacities: Mapping[str, DeviceCapacity], fractional: bool
) -> Mapping[str, Quantity] | tuple[Unsuitable, str]:
    """What the request takes of every capacity of the device, or why it cannot and of which. Raises `CapacityFault`."""
    for name in requested:
        if name not in capacities:
            return Unsuitable.UNKNOWN, name
    taken = {name: _amount(name, requested.get(name), each, fractional) for name, each in capacities.items()}
    for name, amount in taken.items():
        if amount.nanos < 0:
            raise CapacityFault(name, f"the amount {amount} is negative")
    for name, amount in taken.items():
        if violates(amount, capacities[name].policy, fractional):
            return Unsuitable.POLICY, name
    return taken


def _amount(name: str, requested: Quantity | None, capacity: DeviceCapacity, fractional: bool) -> Quantity:
    policy = capacity.policy
    if requested is None:
        return policy.default if policy is not None and policy.default is not None else capacity.value
    if policy is None:
        return requested
    if policy.range is not None and policy.range.minimum is not None:
        return _up_to_step(name, requested, policy.range, policy.range.minimum, fractional)
    return next((each for each in policy.values if requested.nanos <= each.nanos), requested)


def _up_to_step(name: str, requested: Quantity, limits: CapacityRange, minimum: Quantity, fractional: bool) -> Quantity:
    """The next step at or above the request, counted from the minimum."""
    if requested.nanos < minimum.nanos:
        return minimum
    if limits.step is None:
        return requested
    if _in_milli(limits, fractional):
        milli = _exact_milli(requested)
        if milli is None:
            raise CapacityFault(name, f"the request {requested} is not a whole number of thousandths")
        rounded = _stepped(name, milli, minimum.milli_value(), limits.step.milli_value())
        if rounded % 1000 == 0:
            return from_int(rounded // 1000, limits.step.format)
        return from_milli(rounded, limits.step.format)
    if requested.nanos > INT64_MAX * 10**9:
        raise CapacityFault(name, f"the request {requested} is above 2^63-1")
    rounded = _stepped(name, requested.value(), minimum.value(), limits.step.value())
    return from_int(rounded, limits.step.format)


def _stepped(name: str, requested: int, minimum: int, step: int) -> int:
    if step == 0:
        raise CapacityFault(name, "the step of its request policy is 0")
    steps = -(-(requested - minimum) // step) if step > 0 else (requested - minimum) // step
    if steps > (INT64_MAX - minimum) // step:
        raise CapacityFault(name, "rounded up to the next step it is above 2^63-1")
    return minimum + steps * step


def violates(amount: Quantity, policy: RequestPolicy | None, fractional: bool) -> bool:
    """Whether the policy forbids the amount. The default is always fine."""
    if policy is None or (policy.default is not None and _identical(amount, policy.default)):
        return False
    if policy.range is not None:
        return _outside(amount, policy.range, fractional)
    return bool(policy.values) and amount not in policy.values


def _outside(amount: Quantity, limits: CapacityRange, fractional: bool) -> bool:
    if limits.maximum is not None and amount.nanos > limits.maximum.nanos:
        return True
    if limits.step is None or limits.minimum is None:
        return False
    if _in_milli(limits, fractional):
        milli = _exact_milli(amount)
        return milli is None or (milli - limits.minimum.milli_value()) % limits.step.milli_value() != 0
    step = limits.step.value()
    return step != 0 and (amount.value() - limits.minimum.value()) % step != 0


def _identical(one: Quantity, other: Quantity) -> bool:
    """Equality as Kubernetes has it here: of form and text, not of number (`1024Mi` is not the default `1Gi`)."""
    if one is other:
        return not one.wide
    return not one.wide and one.form == other.form


def _exact_milli(amount: Quantity) -> int | None:
    milli = amount.milli_value()
    return milli if milli * 10**6 == amount.nanos else None


def _in_milli(limits: CapacityRange, fractional: bool) -> bool:
    if not fractional:
        return False
    for each in (limits.minimum, limits.maximum, limits.step):
        if each is not None and _exact_milli(each) is None:
            return False
    return limits.step is None or limits.step.milli_value() >= 1
