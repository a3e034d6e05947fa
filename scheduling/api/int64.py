"""Integers of 64 bits as Go computes with them: Kubernetes stores every number of its objects in one.

Python's integers have no bounds, so code that must come to an API server's result asks here where Go's end.
"""

from __future__ import annotations

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
INT64_DIGITS = 18
"""As many decimal digits always fit."""


def is_int64(value: int) -> bool:
    """Whether the value fits in 64 bits."""
    return INT64_MIN <= value <= INT64_MAX


def divided_away(value: int, power: int) -> int:
    """The value divided by 10**power, rounded away from zero."""
    magnitude = abs(value)
    if power > magnitude.bit_length():  # 10**power is larger for certain, and may be too large to compute
        whole = 1 if value else 0
    else:
        whole = -(-magnitude // 10**power)
    return whole if value >= 0 else -whole


def shifted(value: int, power: int) -> int | None:
    """The value times 10**power if that fits in 64 bits, else None."""
    if value == 0:
        return 0
    if power > INT64_DIGITS:
        return None
    product: int = value * 10**power
    return product if is_int64(product) else None


def wrapped(value: int) -> int:
    """The value's lowest 64 bits, as a signed number."""
    return (value + 2**63) % 2**64 - 2**63


def power_of_ten(power: int) -> float:
    """The float that Go's math.Pow10 gives for 10**power: from two tables of steps, so not always the nearest one."""
    if power > 308:
        return float("inf")
    if power < -323:
        return 0.0
    steps, rest = divmod(abs(power), 32)
    if power >= 0:
        return float(f"1e{32 * steps}") * float(f"1e{rest}")
    return float(f"1e-{32 * steps}") / float(f"1e{rest}")
