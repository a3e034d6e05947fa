"""Nodes for placement: by hand, and generated."""

from __future__ import annotations

from hypothesis import strategies as st

from node.topology.cells import topology_of
from node.topology.model import Cell, CellLevel, Place, Topology


def gpu(
    number: int,
    path: tuple[str, ...] = (),
    numa: int | None = None,
    *,
    links: dict[int, int] | None = None,
    up: int = 0,
) -> Place:
    """GPU ``number``; ``links``: counts by the other's number; ``up``: links to switches."""
    named = tuple(sorted((f"gpu-{other}", count) for other, count in (links or {}).items()))
    return Place(f"gpu-{number}", f"GPU{number}", True, path, f"0000:{number:02x}:00.0", numa, named, up)


def nic(number: int, path: tuple[str, ...] = (), numa: int | None = None) -> Place:
    """NIC ``number``."""
    return Place(f"nic-{number}", f"NIC{number}", False, path, f"0000:{number + 0x80:02x}:00.0", numa)


def path_of(number: int, gpus: int) -> tuple[str, ...]:
    """Where GPU ``number`` is: two sockets, a switch for four, a switch for two below it, its own port."""
    return (f"pci000{number * 2 // gpus}:00", f"up-{number // 4}", f"switch-{number // 2}", f"port-{number}")


def even(gpus: int, *, up: int = 18) -> Topology:
    """A node whose cells are 1-2-4-8(-16), all GPUs at NVSwitches."""
    return topology_of(gpu(number, path_of(number, gpus), number * 2 // gpus, up=up) for number in range(gpus))


CUBE_MESH = {
    0: {1: 1, 2: 1, 3: 2, 4: 2},
    1: {0: 1, 2: 2, 3: 1, 5: 2},
    2: {0: 1, 1: 2, 3: 2, 6: 1},
    3: {0: 2, 1: 1, 2: 2, 7: 1},
    4: {0: 2, 5: 1, 6: 1, 7: 2},
    5: {1: 2, 4: 1, 6: 2, 7: 1},
    6: {2: 1, 4: 1, 5: 2, 7: 2},
    7: {3: 1, 4: 2, 5: 1, 6: 2},
}
"""NVLinks of a DGX-1 with V100: six from each GPU."""


def cube_mesh() -> Topology:
    """A DGX-1 with V100."""
    return topology_of(gpu(number, path_of(number, 8), number // 4, links=CUBE_MESH[number]) for number in range(8))


@st.composite
def nodes(draw: st.DrawFn, most: int = 8) -> Topology:
    """Any node with up to ``most`` GPUs: sockets, switches and links as they come."""
    count = draw(st.integers(1, most))
    switches = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    sockets = draw(st.lists(st.integers(0, 1), min_size=4, max_size=4))
    links = draw(st.dictionaries(st.tuples(st.integers(0, most - 1), st.integers(0, most - 1)), st.integers(1, 3)))
    up = draw(st.sampled_from([0, 0, 12]))
    places = []
    for number in range(count):
        socket = sockets[switches[number]]
        mine = {b: many for (a, b), many in links.items() if a == number and b != a and b < count}
        path = (f"pci000{socket}:00", f"switch-{switches[number]}", f"port-{number}")
        places.append(gpu(number, path if draw(st.booleans()) else (), socket, links=mine, up=up))
    return topology_of(places)


def leaf(name: str) -> Cell:
    """A cell of one."""
    return Cell(name, CellLevel.GPU, (name,))


def cell(name: str, *children: Cell) -> Cell:
    """A cell of these."""
    return Cell(name, CellLevel.SWITCH, tuple(gpu for child in children for gpu in child.gpus), children)
