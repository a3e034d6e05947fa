"""The pages for people: groups and cells as JSON, with HiveD's keys.

Whole trees are written on request; 1,000 nodes of 8 devices are some megabytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from kube.bodies import Json


class CellsShown(Protocol):
    """The status of a group or a tree of cells."""

    def as_json(self) -> dict[str, Any]:
        """It with HiveD's keys."""


class CellsView(Protocol):
    """The scheduler of cells as far as it is looked at."""

    def group(self, name: str) -> CellsShown:
        """A group; raises ``CellsUserError`` if there is none."""

    def groups(self) -> Sequence[CellsShown]:
        """All groups by name."""

    def physical_cluster(self) -> Sequence[CellsShown]:
        """The top cells."""

    def virtual_clusters(self) -> Mapping[str, Sequence[CellsShown]]:
        """The cells of each virtual cluster."""

    def virtual_cluster(self, name: str) -> Sequence[CellsShown]:
        """The cells of one; raises ``CellsUserError`` if there is none."""


def groups(cells: CellsView) -> Json:
    """All affinity groups; null for none, as Go writes an empty list."""
    return {"items": _shown(cells.groups()) or None}


def group(cells: CellsView, name: str) -> Json:
    """One affinity group."""
    return cells.group(name).as_json()


def physical_cluster(cells: CellsView) -> Json:
    """The cells that exist."""
    return _shown(cells.physical_cluster())


def virtual_clusters(cells: CellsView) -> Json:
    """The cells of every virtual cluster."""
    return {name: _shown(found) for name, found in cells.virtual_clusters().items()}


def virtual_cluster(cells: CellsView, name: str) -> Json:
    """The cells of one virtual cluster."""
    return _shown(cells.virtual_cluster(name))


def _shown(found: Iterable[CellsShown]) -> list[Json]:
    return [each.as_json() for each in found]


def node_sizes(cells: CellsView) -> Mapping[str, int]:
    """Devices of each node by its name."""
    found: dict[str, int] = {}
    for top in cells.physical_cluster():
        _count(top.as_json(), found, "")
    return found


def _count(cell: Mapping[str, Any], found: dict[str, int], node: str) -> None:
    if cell.get("isNodeLevel"):
        node = str(cell["cellAddress"]).rpartition("/")[2]
    children = cell.get("cellChildren", ())
    for child in children:
        _count(child, found, node)
    if not children and node:
        # A node may have cells of several chains.
        found[node] = found.get(node, 0) + 1
