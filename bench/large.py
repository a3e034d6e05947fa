"""A large node's scan: 16 GPUs, 32 NICs with RDMA and 256 virtual functions, read from a real directory tree."""

from __future__ import annotations

import time
from pathlib import Path

from bench.figures import median
from node.clocks import SYSTEM
from node.inventory.facts import GpuFacts, NodeFacts, NvmlFacts
from node.inventory.identity import IdentityStore
from node.inventory.model import Snapshot
from node.inventory.scan import Scanner
from tests.node.sysfs import large_node
from tests.node.sysfs.rendering import render, source

SCANS = 15


class _Driver:
    """Tells of the GPUs what is needed for them to be devices, in no time: NVML is not what is measured here."""

    name = "nvml"

    def read(self) -> NodeFacts:
        gpus = (
            GpuFacts(index, bus_id=f"00000000:{0x20 + index:02X}:00.0", uuid=f"GPU-{index}", name="GPU", minor=index)
            for index in range(large_node.GPUS)
        )
        return NodeFacts(nvml=NvmlFacts(gpus=tuple(gpus)))

    def close(self) -> None:
        pass


def figures(root: Path) -> dict[str, float]:
    """``scan_large_node_s``: a whole scan from reading to devices and topology, the median of those after the first."""
    facts = large_node.facts()
    root.mkdir(parents=True)
    render(facts, root)
    scanner = Scanner((_Driver(), source(facts, root)), IdentityStore(root / "identities.json"), SYSTEM)
    snapshot, times = Snapshot(), []
    for generation in range(1, SCANS + 1):
        began = time.perf_counter()
        reading = scanner.scan(snapshot)
        times.append(time.perf_counter() - began)
        snapshot = Snapshot(generation, reading.devices, reading.sources, reading.host, reading.topology)
    expected = large_node.GPUS + large_node.NICS * (1 + large_node.VFS_PER_NIC)
    if len(snapshot.devices) != expected:
        raise ValueError(f"the scan of the large node found {len(snapshot.devices)} devices instead of {expected}")
    return {"scan_large_node_s": median(times[1:])}
