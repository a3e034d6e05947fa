"""Rules for capacities and their request policies (KEP-5075, consumable capacity).

Multiples of a step are counted in whole units rounded up, as the API server does: a min of 500m with a step of 500m
takes a default of 1. A step of less than one unit in whole numbers, zero, stops the server's own rules with a division
by zero; here it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from scheduling.api.quantities import ZERO, Quantity
from scheduling.api.validation.bounds import distinct
from scheduling.api.validation.cause import Cause, forbidden, invalid, required

_VALUES: Final = 10


def single(capacity: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """A capacity of a device that goes to one claim."""
    if "requestPolicy" in capacity:
        yield forbidden(f"{path}.requestPolicy", "needs allowMultipleAllocations: true in the device")


def shared(capacity: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """A capacity of a device that several claims share."""
    if "requestPolicy" not in capacity:
        return
    policy, limit, at = capacity["requestPolicy"], capacity.get("value", ZERO), f"{path}.requestPolicy"
    values, range_ = policy.get("validValues", []), policy.get("validRange")
    if values and range_ is not None:
        yield forbidden(at, "must have validValues or validRange, not both")
    elif not values and range_ is None:
        return
    elif "default" not in policy:
        yield required(f"{at}.default", "must be set beside validValues or validRange")
    elif values:
        yield from _values(values, policy["default"], limit, f"{at}.validValues")
    elif range_ is not None:
        yield from _range(range_, policy["default"], limit, f"{at}.validRange")


def _values(values: list[Quantity], default: Quantity, limit: Quantity, path: str) -> Iterator[Cause]:
    for index in range(1, len(values)):
        if values[index] < values[index - 1]:
            yield invalid(f"{path}[{index}]", values[index].text, "must not be below the value before it")

    def option(value: Quantity, at: str) -> Iterator[Cause]:
        if value > limit:
            yield invalid(at, value.text, f"must not be above the capacity {limit.text}")

    yield from distinct(values, _VALUES, path, option, key=Quantity.value)
    if len(values) > _VALUES or default not in values:
        yield invalid(path, default.text, "is the default and must be among the values")


def _range(range_: Mapping[str, Quantity], default: Quantity, limit: Quantity, path: str) -> Iterator[Cause]:
    low, high, step = range_.get("min"), range_.get("max"), range_.get("step")
    if low is None:
        yield required(f"{path}.min", "must be set in a range")
        return
    if low > limit:
        yield invalid(f"{path}.min", low.text, f"must not be above the capacity {limit.text}")
    if default < low:
        yield invalid(f"{path}.min", default.text, f"is the default and must not be below min {low.text}")
    if high is not None:
        yield from _high(low, high, default, limit, f"{path}.max")
    if step is not None:
        yield from _step(low, step, limit, [default] if high is None else [default, high], f"{path}.step")


def _high(low: Quantity, high: Quantity, default: Quantity, limit: Quantity, path: str) -> Iterator[Cause]:
    if low > high:
        yield invalid(path, low.text, f"is min and must not be above max {high.text}")
    if high > limit:
        yield invalid(path, high.text, f"must not be above the capacity {limit.text}")
    if default > high:
        yield invalid(path, default.text, f"is the default and must not be above max {high.text}")


def _step(low: Quantity, step: Quantity, limit: Quantity, reached: list[Quantity], path: str) -> Iterator[Cause]:
    if low + step > limit:
        yield invalid(path, step.text, f"must leave min plus one step within the capacity {limit.text}")
    if step.value() == 0:
        yield invalid(path, step.text, "must not be zero")
        return
    for value in reached:
        if (value.value() - low.value()) % step.value():
            yield invalid(path, value.text, f"must be min {low.text} plus a multiple of the step {step.text}")
