"""The topology as plain data, for programs: places, cells, and how each two devices reach each other."""

from __future__ import annotations

from node.topology.distance import link_count, proximity
from node.topology.model import Cell, Place
from ostler.drawing.scene import Scene

Data = str | int | bool | None | list["Data"] | dict[str, "Data"]


def topology_document(scene: Scene) -> dict[str, Data]:
    """Places in order of their labels, the cell tree, and all pairs of places once."""
    places = scene.topology.places
    root = scene.topology.root
    return {
        "node": scene.node,
        "places": [_place(scene, place) for place in places],
        "cells": None if root is None else _cell(root),
        "pairs": [_pair(one, two) for position, one in enumerate(places) for two in places[position + 1 :]],
        "overridden": list(scene.topology.overridden),
    }


def _place(scene: Scene, place: Place) -> Data:
    caption = scene.caption(place)
    return {
        "name": place.name,
        "label": place.label,
        "kind": "gpu" if place.gpu else "nic",
        "pciAddress": place.address,
        "numaNode": place.numa_node,
        "path": list(place.path),
        "links": [{"peer": peer, "count": count} for peer, count in place.links],
        "switchLinks": place.switch_links,
        "title": caption.title,
        "state": caption.state,
        "hostUse": caption.host_use,
    }


def _cell(cell: Cell) -> Data:
    return {
        "name": cell.name,
        "level": cell.level.value,
        "gpus": list(cell.gpus),
        "nics": list(cell.nics),
        "children": [_cell(child) for child in cell.children],
    }


def _pair(one: Place, two: Place) -> Data:
    links = link_count(one, two) if one.gpu and two.gpu else 0
    return {"a": one.name, "b": two.name, "proximity": proximity(one, two).value, "links": links}
