"""Shares of a device at the DRA door: how much claims may consume of it, and how much one claim's share takes.

Pure. A shared device allows multiple allocations, and claims consume its capacities ``memory`` (bytes) and ``compute``
(percent) (KEP-5075). A claim takes the default, which is one replica's part, or the amounts in its
``capacity.requests``, in steps of a MiB and of one percent. The scheduler adds up what claims consume and knows nothing
about the plugin door, so the slice shows only what that door has left of the device. Nor does it know that MPS takes a
limited number of clients, so the least percentage under MPS is one that no more claims than clients can have.
"""

from __future__ import annotations

from collections.abc import Mapping

from kube.bodies import one_line
from node.inventory.model import Device
from node.sharing import (
    COMPUTE,
    MEMORY,
    MILLION,
    Amounts,
    Sharing,
    SharingStrategy,
    most_clients,
    too_little_left,
    whole_amounts,
)
from node.values import Value, quick, value

_UNITS = {MEMORY: 1 << 20, COMPUTE: MILLION // 100}
"""The smallest amounts that claims consume: a MiB, and one percent."""
_SHOWN = {MEMORY: 1 << 20, COMPUTE: 1}
"""The same as slices and claims write it."""
_MOST = 2**63 - 1
"""The largest amount that Kubernetes counts."""
_MOST_SHOWN = 64
"""Characters of an amount in a message."""


@quick
@value
class Consumable(Value):
    """A capacity that shares consume, in the units of a slice: the amount for claims, the default, the step, and the
    least that a claim takes.
    """

    left: int
    default: int
    step: int
    least: int


def is_shared(device: Device, sharing: Sharing | None) -> bool:
    """Whether several claims can have the device at the same time."""
    return sharing is not None and sharing.replicas_of(device) > 1


def consumable(device: Device, sharing: Sharing, held: Amounts) -> Mapping[str, Consumable]:
    """The capacity that claims may consume of a shared device, by its name; ``held``: the plugin door's part.

    Rounded down to whole steps, so that what the other door has never counts as less than it is.
    """
    part, taken = dict(sharing.replica_amounts(device)), dict(held)
    found = {}
    for name, amount in whole_amounts(device):
        unit, shown = _UNITS[name], _SHOWN[name]
        left = max(0, amount - taken.get(name, 0)) // unit
        default = max(1, part[name] // unit)
        least = min(default, _least_compute(device, sharing)) if name == COMPUTE else 1
        found[name] = Consumable(left * shown, default * shown, shown, least * shown)
    return found


def _least_compute(device: Device, sharing: Sharing) -> int:
    """The least percentage that a claim takes: under MPS, the device has no more such parts than clients."""
    if sharing.strategy is not SharingStrategy.MPS:
        return 1
    return 100 // (most_clients(device) + 1) + 1


def with_defaults(amounts: Amounts, device: Device, sharing: Sharing) -> Amounts:
    """The amounts that a share takes of its device: the default for every capacity that its allocation lacks.

    The scheduler writes every capacity that the slice had. So a capacity is missing only if the slice lacked it at that
    time, and a share that took nothing of it would not count in the sum.
    """
    defaults = {name: max(1, part // _UNITS[name]) * _UNITS[name] for name, part in sharing.replica_amounts(device)}
    return tuple(sorted({**defaults, **dict(amounts)}.items()))


def missing_share(device: Device, sharing: Sharing, held: Amounts) -> str:
    """Why the plugin door leaves not even a default share, in words; empty if it leaves one."""
    short = [name for name, each in consumable(device, sharing, held).items() if each.left < each.default]
    return too_little_left(short) if short else ""


def consumed(consumed_capacity: Mapping[str, str], driver: str) -> Amounts:
    """The capacity that a share takes of its device, by the ``consumedCapacity`` of ``driver``'s device in a claim's
    allocation.

    Raises ``ValueError`` that names the capacity whose amount is invalid.
    """
    from scheduling.api.quantities import QuantityError, parse  # Only shares need it.

    found: dict[str, int] = {}
    for key, text in consumed_capacity.items():
        name = key.removeprefix(f"{driver}/")
        if name not in _UNITS:
            continue
        try:
            # Not its value(), which is 0 for an amount above 64 bits.
            amount = -(-parse(text).nanos // 10**9)
        except QuantityError as error:
            raise ValueError(f"{name}: {error}") from error
        if not 0 <= amount <= _MOST:
            fault = "less than nothing" if amount < 0 else "more than any device has"
            raise ValueError(f"{name}: {one_line(text, _MOST_SHOWN)} is {fault}")
        # Under both of its names: nobody gets the larger one for the price of the smaller.
        found[name] = max(found.get(name, 0), amount * _UNITS[name] // _SHOWN[name])
    return tuple(sorted(found.items()))
