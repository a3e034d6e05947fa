"""Taints that keep a claim away from a device, and tolerations that let it come.

The match is that of pods and nodes: an empty key or effect of a toleration matches any, the operator Exists any value.
Effects other than NoSchedule and NoExecute (None, and what later versions may add) keep nobody away.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduling.allocator.claims import Toleration
from scheduling.allocator.device_parts import Taint

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
