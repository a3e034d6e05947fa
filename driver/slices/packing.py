"""Devices to slices, so that a change of one device changes one slice.

Every slice of a pool carries the pool's generation and their number, so a device that moves, or a slice more or less,
is a write to every slice. So a device stays in the slice that it is in; one that goes leaves a hole, which the next
new one fills; and only slices that run empty at the end are given up. ``limit`` is 64 from the start, not 128, because
that is all that a slice may hold once a single device of it is tainted, uses counters or has a list as attribute.

The price: slices may be less than full, and the order over slice borders is the order in which devices came (within a
slice it is always the given one). A node without history is packed in the given order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from driver.slices.model import Slice
from kube.bodies import JsonObject, text_at

DEFAULT_LIMIT: Final = 64
"""Devices of a slice that may have taints, counters or lists (1.36)."""

Layout = Sequence[Sequence[str]]
"""Names of devices by slice: what ``Controller.stored`` tells of the API, or ``layout`` of slices."""


def pack(devices: Sequence[JsonObject], previous: Layout = (), limit: int = DEFAULT_LIMIT) -> tuple[Slice, ...]:
    """Spread devices over slices, at least one, where they were ``previous``-ly as far as there is room.

    Raises ValueError for a limit below 1 and for two devices of one name.
    """
    names = [text_at(device, "name") for device in devices]
    if limit < 1:
        raise ValueError(f"limit: {limit} devices in a slice; it must be 1 or more")
    if len(set(names)) < len(names):
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        raise ValueError(f"devices: {twice!r} is the name of two devices; names must be unique in a pool")
    groups = _kept(names, previous, limit)
    placed = set().union(*groups)
    _place([name for name in names if name not in placed], groups, limit)
    while len(groups) > 1 and not groups[-1]:
        groups.pop()
    place = {name: number for number, group in enumerate(groups) for name in group}
    slices: list[list[JsonObject]] = [[] for _ in groups]
    for device, name in zip(devices, names, strict=True):
        slices[place[name]].append(device)
    return tuple([Slice(devices=tuple(group)) for group in slices])


def layout(slices: Sequence[Slice]) -> tuple[tuple[str, ...], ...]:
    """Which devices are in which slice."""
    return tuple([each.names for each in slices])


def _kept(names: Sequence[str], previous: Layout, limit: int) -> list[set[str]]:
    """The slices with the devices that stay in them; a name counts where it is first."""
    wanted = set(names)
    groups: list[set[str]] = []
    for before in previous:
        group = set([name for name in dict.fromkeys(before) if name in wanted][:limit])
        wanted -= group
        groups.append(group)
    return groups or [set()]


def _place(names: Sequence[str], groups: list[set[str]], limit: int) -> None:
    """New devices fill the holes from the front, then new slices."""
    number = 0
    for name in names:
        while number < len(groups) and len(groups[number]) >= limit:
            number += 1
        if number == len(groups):
            groups.append(set())
        groups[number].add(name)
