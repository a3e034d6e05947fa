"""One node with the agent and the bare plugin side by side, each with 64 devices; and pods that ask for one.

The agent replays a node of 64 GPUs, because fifty pods at once need fifty devices. The bare plugin gives as many device
nodes a pod, so that the container runtime has the same work.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from bench.cluster.figures import FLOOR, OSTLER, PLAIN
from bench.floor import RESOURCE
from node.inventory.facts import GpuFacts, NodeFacts, NvmlFacts
from node.inventory.recordings.source import dump
from tests.cluster.rig.agent import NodeAgent, configuration, wait_allocatable
from tests.cluster.rig.api import Object
from tests.cluster.rig.cluster import Cluster, down, up
from tests.cluster.rig.node import Node
from tests.cluster.rig.place import name_of_run
from tests.cluster.rig.pods import simple
from tests.cluster.rig.processes import Inside

DEVICES = 64
OURS = "nvidia.com/gpu"
RESOURCES: dict[str, dict[str, int]] = {PLAIN: {}, OSTLER: {OURS: 1}, FLOOR: {RESOURCE: 1}}
PLUGINS = "/var/lib/kubelet/device-plugins"


@dataclass(frozen=True, slots=True)
class Stage:
    """What is measured on."""

    cluster: Cluster
    node: Node
    agent: NodeAgent
    floor: Inside


@contextlib.contextmanager
def stage(version: str = "") -> Iterator[Stage]:
    """A new cluster, both plugins registered; it is gone afterwards."""
    name = name_of_run()
    try:
        cluster = up(name, version)
        node = cluster.nodes[0]
        agent = NodeAgent(node, {**configuration(""), "inventory": {"recorded": str(_recording(node.folder))}}).start()
        offered = [device_nodes(device) for device in agent.offered(OURS).values()]
        node.make_devices(*sorted({path for paths in offered for path in paths}))
        ids = ",".join(f"floor-{index}" for index in range(DEVICES))
        bare = [sys.executable, "-m", "bench.floor", PLUGINS, ids, ",".join(offered[0])]
        floor = node.spawn("floor", *bare)
        for resource in (OURS, RESOURCE):
            wait_allocatable(cluster.api, node, resource, DEVICES)
        yield Stage(cluster, node, agent, floor)
    finally:
        down(name)


def _recording(folder: Path) -> Path:
    """A recorded node of 64 GPUs."""
    gpus = tuple(
        GpuFacts(index, bus_id=f"00000000:{index + 1:02X}:00.0", uuid=f"GPU-{UUID(int=index)}", name="GPU", minor=index)
        for index in range(DEVICES)
    )
    path = folder / "gpus.yaml"
    facts = NodeFacts(nvml=NvmlFacts(gpus=gpus))
    text = dump(facts, name="gpus", description="Many GPUs.", recorded_at=datetime.fromtimestamp(0, UTC))
    path.write_text(text)
    return path


def device_nodes(device: Object) -> list[str]:
    """The device files that a pod gets with a device."""
    return [str(entry["path"]) for entry in device["nodes"]]


def manifest(kind: str, number: int) -> Object:
    """Pod ``number`` of a kind."""
    return simple(f"{kind}-{number}", resources=RESOURCES[kind])
