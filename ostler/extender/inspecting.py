"""The pages for people: groups and cells as JSON, with HiveD's keys. A key whose value is empty is left out.

Whole trees are written on request; 1,000 nodes of 8 devices are some megabytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from kube.bodies import Json, JsonObject
from scheduling.cells.status import CellStatus, GroupStatus


class CellsView(Protocol):
    """The scheduler of cells as far as it is looked at."""

    def group(self, name: str) -> GroupStatus:
        """A group; raises ``CellsUserError`` if there is none."""

    def groups(self) -> tuple[GroupStatus, ...]:
        """All groups."""

    def physical_cluster(self) -> tuple[CellStatus, ...]:
        """The top cells."""

    def virtual_clusters(self) -> Mapping[str, tuple[CellStatus, ...]]:
        """The cells of each virtual cluster."""

    def virtual_cluster(self, name: str) -> tuple[CellStatus, ...]:
        """The cells of one; raises ``CellsUserError`` if there is none."""


def groups(cells: CellsView) -> Json:
    """All affinity groups by name."""
    found: list[Json] = [_group(each) for each in sorted(cells.groups(), key=lambda each: each.name)]
    return {"items": found or None}


def group(cells: CellsView, name: str) -> Json:
    """One affinity group."""
    return _group(cells.group(name))


def physical_cluster(cells: CellsView) -> Json:
    """The cells that exist."""
    return _trees(cells.physical_cluster(), "virtualCell")


def virtual_clusters(cells: CellsView) -> Json:
    """The cells of every virtual cluster."""
    return {name: _trees(found, "physicalCell") for name, found in cells.virtual_clusters().items()}


def virtual_cluster(cells: CellsView, name: str) -> Json:
    """The cells of one virtual cluster."""
    return _trees(cells.virtual_cluster(name), "physicalCell")


def _group(status: GroupStatus) -> JsonObject:
    shown: JsonObject = {"vc": status.virtual_cluster, "priority": status.priority, "state": status.state}
    if status.physical_placement:
        shown["physicalPlacement"] = {node: list(indices) for node, indices in status.physical_placement.items()}
    if status.virtual_placement:
        shown["virtualPlacement"] = {cell: list(leaves) for cell, leaves in status.virtual_placement.items()}
    for key, pods in (("allocatedPods", status.allocated_pods), ("preemptingPods", status.preempting_pods)):
        if pods:
            shown[key] = list(pods)
    if status.lazy_preempted_by:
        shown["lazyPreemptionStatus"] = {"preemptor": status.lazy_preempted_by}
    return {"metadata": {"name": status.name}, "status": shown}


def _trees(cells: Iterable[CellStatus], other: str) -> list[Json]:
    return [_cell(each, other) for each in cells]


def _cell(status: CellStatus, other: str) -> JsonObject:
    shown: JsonObject = {"leafCellType": status.leaf_cell_type} if status.leaf_cell_type else {}
    shown["cellType"] = status.cell_type
    if status.is_node_level:
        shown["isNodeLevel"] = True
    shown["cellAddress"] = status.address
    shown["cellState"] = status.state
    shown["cellHealthiness"] = "Healthy" if status.is_healthy else "Bad"
    shown["cellPriority"] = status.priority
    if status.children:
        shown["cellChildren"] = _trees(status.children, other)
    if status.virtual_cluster:
        shown["vc"] = status.virtual_cluster
    if status.counterpart is not None:
        shown[other] = _cell(status.counterpart, other)
    return shown
