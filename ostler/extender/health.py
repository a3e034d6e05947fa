"""Which nodes and which of their devices can be used: what the API server said last, by number of the configuration.

A node counts as bad if it is gone, not ready or cordoned. A device counts as bad if its node publishes it with a taint
that keeps claims away, if it is no whole GPU now, or if it is no longer published while others of its node are. Which
taints count is decided where ``ostler cells`` decides it (``ostler.cells.discovery``).

Devices are counted by PCI address, so a number means a device only while all GPUs of a node are published. The last
complete count is kept: a GPU that falls off the bus is the one that is missing, and the others keep their numbers. What
is known of a node's devices stays while it publishes nothing, or only some slices of a pool: the kubelet deletes a
node's slices when it restarts, and a bad device does not heal by that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from ostler.cells.discovery import CellDevice
from ostler.cells.drift import configured_by_name
from ostler.extender.metrics import ExtenderMetrics
from ostler.extender.published import PublishedDevices
from scheduling.cells.configuration import CellsConfiguration

log = logging.getLogger("ostler.extender")

MISSING = "its node no longer publishes it"


class NodeCells(Protocol):
    """The part of the cell scheduler that takes news of nodes."""

    def set_node(self, name: str, *, healthy: bool, bad_devices: tuple[int, ...] = ()) -> None:
        """A node is there; devices are named by number."""

    def delete_node(self, name: str) -> None:
        """A node is gone."""


class NodeHealth:
    """Keeps the health of nodes and devices, and passes it on to a scheduler of cells. Guarded by the tracker's
    lock."""

    def __init__(self, configuration: CellsConfiguration, devices: PublishedDevices, metrics: ExtenderMetrics) -> None:
        self._devices = devices
        self._metrics = metrics
        self._nodes: dict[str, bool] = {}
        self._layouts: dict[str, dict[str, int]] = {}
        """By node the number of each device by its address, as of the last complete count."""
        self._bad: dict[str, dict[int, str]] = {}
        """By node its bad devices, each with the reason; no node has an empty entry."""
        self._configured = {
            name: frozenset(index for each in cells for index in each.indices)
            for name, cells in configured_by_name(configuration).items()
        }

    def by(self, configuration: CellsConfiguration) -> NodeHealth:
        """The same nodes by another configuration; a scheduler of cells needs all of them again."""
        made = NodeHealth(configuration, self._devices, self._metrics)
        made._nodes = self._nodes.copy()
        # With other numbers of a node its devices are counted anew.
        same = {name for name, numbers in made._configured.items() if self._configured.get(name) == numbers}
        made._layouts = {name: found for name, found in self._layouts.items() if name in same}
        made._bad = {name: found for name, found in self._bad.items() if name in made._configured}
        for name in made._configured:
            made._judge(name)
        return made

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    @property
    def names(self) -> frozenset[str]:
        """All nodes that the API server has."""
        return frozenset(self._nodes)

    @property
    def healthy(self) -> tuple[str, ...]:
        """The nodes that pods can come to."""
        return tuple(name for name, is_healthy in self._nodes.items() if is_healthy)

    def set_node(self, name: str, is_healthy: bool) -> bool:
        """Note that a Node exists; returns whether that is a change."""
        before = self._nodes.get(name)
        self._nodes[name] = is_healthy
        if before is is_healthy:
            return False
        if name in self._configured and (before is not None or not is_healthy):
            log.log(
                logging.INFO if is_healthy else logging.WARNING,
                "node can be used again" if is_healthy else "node is not ready or cordoned: its cells are bad",
                extra={"node": name},
            )
        return True

    def delete_node(self, name: str) -> bool:
        """A Node is gone; whether it was known."""
        is_known = self._nodes.pop(name, None) is not None
        if is_known and name in self._configured:
            log.warning("node is gone: its cells are bad", extra={"node": name})
        return is_known

    def judge_devices(self, name: str) -> bool:
        """A node publishes its GPUs otherwise than before; whether other devices are bad now."""
        return name in self._configured and self._judge(name)

    def numbers_of(self, name: str, ids: Iterable[str]) -> tuple[int, ...]:
        """The numbers of a configured node's devices by their UUIDs; none unless all are published."""
        found = self._devices.of_node(name)
        numbers = self._numbers(name, found.devices) if name in self._configured and found.is_complete else None
        known = {each.uuid: number for each, number in zip(found.devices, numbers or (), strict=False)}
        asked = [known.get(each, -1) for each in ids]
        return () if -1 in asked else tuple(asked)

    def counts(self) -> Mapping[str, int]:
        """How many of the configured nodes, and how many devices on their own, are bad."""
        nodes = sum(not self._nodes.get(name, False) for name in self._configured)
        return {"nodes": nodes, "devices": sum(map(len, self._bad.values()))}

    def update_cells(self, cells: NodeCells, name: str) -> None:
        """Give the scheduler of cells the current health of a node."""
        if name in self._nodes:
            cells.set_node(name, healthy=self._nodes[name], bad_devices=tuple(sorted(self._bad.get(name, ()))))
        else:
            cells.delete_node(name)

    @contextmanager
    def all_healthy(self, cells: NodeCells) -> Iterator[None]:
        """All nodes of the configuration count as healthy while running pods get their cells back, and then as they
        are.

        Cells of a virtual cluster are bound to bad nodes when it has too few others. A pod that is restored later could
        be taken for one without a cell of its own, and another virtual cluster could preempt it.
        """
        for name in sorted(self._configured):
            cells.set_node(name, healthy=True)
        try:
            yield
        finally:
            for name in sorted(self._configured):
                if not self._nodes.get(name, False) or name in self._bad:
                    self.update_cells(cells, name)

    def _judge(self, name: str) -> bool:
        """Find the bad devices of a configured node; whether they changed."""
        found = self._devices.of_node(name)
        numbers = self._numbers(name, found.devices) if found.devices and found.is_complete else None
        if numbers is None:
            return False
        there = dict(zip(numbers, found.devices, strict=True))
        bad: dict[int, str] = {}
        for number in sorted(self._configured[name]):
            device = there.get(number)
            reason = MISSING if device is None else device.bad or device.left_out
            if reason:
                bad[number] = reason
        before = self._bad.pop(name, {})
        if bad:
            self._bad[name] = bad
        self._log(name, before, bad)
        return before.keys() != bad.keys()

    def _numbers(self, name: str, devices: tuple[CellDevice, ...]) -> list[int] | None:
        """The number of each device by the last complete count, which this may be; None if it cannot be known."""
        places = [each.address or each.name for each in devices]
        layout = self._layouts.get(name, {})
        if not all(place in layout for place in places):
            if not self._configured[name].issubset(range(len(places))):
                return None
            layout = self._layouts[name] = {place: number for number, place in enumerate(places)}
        return [layout[place] for place in places]

    def _log(self, name: str, before: Mapping[int, str], bad: Mapping[int, str]) -> None:
        worse = {number: reason for number, reason in bad.items() if before.get(number) != reason}
        healed = [number for number in before if number not in bad]
        if worse:
            extra = {"node": name, "devices": _listed(worse), "reasons": "; ".join(dict.fromkeys(worse.values()))}
            log.warning("devices are bad", extra=extra)
        if healed:
            log.info("devices are healthy again", extra={"node": name, "devices": _listed(healed)})
        self._metrics.device_changes.add("bad", by=len(bad.keys() - before.keys()))
        self._metrics.device_changes.add("healthy", by=len(healed))


def _listed(numbers: Mapping[int, str] | list[int]) -> str:
    return ",".join(map(str, sorted(numbers)))
