"""Machines for tests: published ones out of data files, and PCI trees that hypothesis grows."""

from __future__ import annotations

from functools import cache
from itertools import count
from pathlib import Path
from typing import NamedTuple

import yaml
from hypothesis import strategies as st

from node.inventory.model import Device, DeviceKind, PeerLink, sorted_attributes
from node.topology.model import Place
from tests.making.recorded_cases import files_in

FOLDER = Path(__file__).parents[2] / "vectors" / "topology"


class TopologyMachine(NamedTuple):
    """A published matrix by the names of row and column, the devices that should give it, and the recorded node."""

    matrix: dict[tuple[str, str], str]
    devices: dict[str, Device]
    recorded: str


def names() -> list[str]:
    return [path.stem for path in files_in(FOLDER, "*.yaml")]


@cache
def machine(name: str) -> TopologyMachine:
    data = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    head, *rows = [line.split() for line in data["matrix"].splitlines()]
    matrix = {(row[0], column): cell for row in rows for column, cell in zip(head, row[1:], strict=True)}
    described = data.get("devices", {})
    addresses = {label: facts["at"].rpartition("/")[2] for label, facts in described.items()}
    devices = {label: _device(label, facts, addresses) for label, facts in described.items()}
    return TopologyMachine(matrix, devices, data.get("recorded", ""))


def _device(label: str, facts: dict[str, object], addresses: dict[str, str]) -> Device:
    gpu = label.startswith("GPU")
    links = facts.get("links", {})
    assert isinstance(links, dict)
    peers = [PeerLink(addresses[peer], number) for peer, number in links.items()]
    if switches := facts.get("switches"):
        assert isinstance(switches, int)
        peers.append(PeerLink(None, switches))
    numa = facts.get("numa")
    return Device(
        name=("gpu-" if gpu else "rdma-") + addresses[label].replace(":", "-").replace(".", "-"),
        kind=DeviceKind.GPU if gpu else DeviceKind.RDMA,
        vendor="nvidia" if gpu else "mellanox",
        index=label.removeprefix("GPU") if gpu else None,
        pci_address=addresses[label],
        numa_node=numa if isinstance(numa, int) else None,
        attributes=sorted_attributes([("rdmaDevice", str(facts.get("rdma", "")))]),
        location=str(facts["at"]),
        links=tuple(peers),
    )


@st.composite
def pci_trees(draw: st.DrawFn, least_gpus: int = 0, linked: bool = False) -> tuple[Place, ...]:
    """Places on a PCI tree as PCI Express has it: endpoints below root ports and below switches' downstream ports."""
    buses = count(1)
    paths: list[tuple[tuple[str, ...], int | None]] = []
    for root in range(draw(st.integers(1, 4))):
        numa = draw(st.sampled_from([None, 0, 1]))
        bridge = f"pci0000:{root:02x}"
        for port in range(draw(st.integers(0, 3))):
            paths += [(path, numa) for path in _below(draw, (bridge, f"0000:{root:02x}:{port:02x}.0"), buses, 2)]
        paths += [((bridge,), numa)] * draw(st.integers(0, 2))
    paths += [((), numa) for numa in draw(st.lists(st.sampled_from([None, 0, 1]), max_size=2))]
    paths += [((), None)] * max(0, least_gpus - len(paths))
    kinds = draw(st.lists(st.booleans(), min_size=len(paths), max_size=len(paths)))
    kinds[:least_gpus] = [True] * min(least_gpus, len(kinds))
    places = [
        Place(f"d{number}", f"D{number}", gpu, path, f"0000:{next(buses) % 256:02x}:00.0", numa)
        for number, ((path, numa), gpu) in enumerate(zip(paths, kinds, strict=True))
    ]
    return tuple(_linked(draw, places) if linked else places)


def _below(draw: st.DrawFn, path: tuple[str, ...], buses: count[int], depth: int) -> list[tuple[str, ...]]:
    """Paths of the endpoints below a port: a device with functions, or a switch with ports."""
    if depth == 0 or draw(st.booleans()):
        return [path] * draw(st.integers(1, 2))
    upstream = (*path, f"0000:{next(buses):02x}:00.0")
    bus = next(buses)
    ports = ((*upstream, f"0000:{bus:02x}:{number:02x}.0") for number in range(draw(st.integers(1, 3))))
    return [found for port in ports for found in _below(draw, port, buses, depth - 1)]


def _linked(draw: st.DrawFn, places: list[Place]) -> list[Place]:
    gpus = [number for number, place in enumerate(places) if place.gpu]
    links: dict[int, list[tuple[str, int]]] = {}
    for position, one in enumerate(gpus):
        for two in gpus[position + 1 :]:
            if number := draw(st.sampled_from([0, 0, 1, 2, 4])):
                links.setdefault(one, []).append((places[two].name, number))
                links.setdefault(two, []).append((places[one].name, number))
    switches = draw(st.sampled_from([0, 0, 6]))
    return [
        Place(
            place.name,
            place.label,
            place.gpu,
            place.path,
            place.address,
            place.numa_node,
            tuple(sorted(links.get(number, ()))),
            switches if place.gpu else 0,
        )
        for number, place in enumerate(places)
    ]
