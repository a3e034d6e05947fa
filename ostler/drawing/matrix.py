"""The matrix people know from ``nvidia-smi topo -m``: GPUs, then NICs, and how each reaches each other one."""

from __future__ import annotations

from node.topology.distance import link_count, proximity
from node.topology.model import Place, Proximity
from ostler.drawing.scene import Scene
from ostler.drawing.text import columns, padded, plain

_LEGEND = {
    Proximity.SAME: "the device itself",
    Proximity.PIX: "at most one PCIe bridge on each side",
    Proximity.PXB: "several PCIe bridges, without the host bridge",
    Proximity.PHB: "through the PCIe host bridge",
    Proximity.NODE: "between host bridges of one NUMA node",
    Proximity.SYS: "between NUMA nodes",
}


def relation(one: Place, two: Place, sign: str) -> str:
    """What the matrix has for two devices: ``NV18`` where links join two GPUs, else how they reach over PCIe."""
    links = link_count(one, two) if one.gpu and two.gpu else 0
    return f"{sign}{links}" if links else proximity(one, two).value


def draw_matrix(scene: Scene) -> str:
    """The matrix with its legends, as text."""
    places = scene.topology.places
    if not places:
        return "no GPUs and no NICs\n"
    sign = scene.link_sign
    cells = [[relation(row, column, sign) for column in places] for row in places]
    head = ["", *(place.label for place in places), "NUMA node"]
    rows = [
        [place.label, *row, "-" if place.numa_node is None else str(place.numa_node)]
        for place, row in zip(places, cells, strict=True)
    ]
    used = {text for row in cells for text in row}
    lines = [*_table([head, *rows]), "", "Legend:", *_legend(scene, used)]
    if scene.nics:
        lines += ["", "NICs:", *_nic_legend(scene)]
    return "\n".join(lines) + "\n"


def _table(rows: list[list[str]]) -> list[str]:
    widths = [max(columns(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(padded(text, width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _legend(scene: Scene, used: set[str]) -> list[str]:
    meanings: list[tuple[str, str]] = [
        (proximity.value, text) for proximity, text in _LEGEND.items() if proximity.value in used
    ]
    if any(text.startswith(scene.link_sign) for text in used):
        meanings.append((f"{scene.link_sign}#", f"joined by {scene.links_in_words('#')}"))
    return [f"  {sign:<4} = {text}" for sign, text in meanings]


def _nic_legend(scene: Scene) -> list[str]:
    width = max(len(nic.label) for nic in scene.nics) + 1
    return [f"  {nic.label + ':':<{width}} {_nic_name(scene, nic)}" for nic in scene.nics]


def _nic_name(scene: Scene, nic: Place) -> str:
    return plain(" ".join(part for part in (scene.caption(nic).title, nic.address or nic.name) if part))
