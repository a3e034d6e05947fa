"""Which sorts of devices a selector can have, as far as its keys tell and its patterns do not. Pure."""

from __future__ import annotations

from itertools import product

from node.inventory.model import DeviceKind
from node.rules import Selector

Sort = tuple[DeviceKind, bool]
"""A kind of device split once: GPUs by MIG mode, MIG devices by whether they fill their GPU instance.

Other kinds are not split: both of their sorts are the same devices.
"""

_SORTS: frozenset[Sort] = frozenset(product(DeviceKind, (True, False)))


def sorts(selected: Selector) -> frozenset[Sort]:
    """The sorts of devices that a selector can match, by everything but its patterns."""
    return frozenset(sort for sort in _SORTS if _can_match(selected, *sort))


def _can_match(selected: Selector, kind: DeviceKind, flag: bool) -> bool:
    if selected.kinds and kind not in selected.kinds:
        return False
    if kind is DeviceKind.GPU:
        mig_mode_fits = selected.mig_enabled is None or selected.mig_enabled is flag
        return mig_mode_fits and not selected.whole_instances and selected.nic is None
    if selected.mig_enabled is not None:
        return False
    if kind is DeviceKind.MIG:
        return (flag or not selected.whole_instances) and selected.nic is None
    if selected.whole_instances:
        return False
    if kind is DeviceKind.PARTITION:
        return selected.nic is None
    return not (selected.profiles or selected.uuids)
