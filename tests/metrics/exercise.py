"""Two agents to whom everything happens that a metric tells of: one on a recorded node, one on this machine.

And a second door's figures to which everything has happened.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from ostler.cli.main import main
from ostler.dra import ClaimState, ClaimView, DeviceState, PoolView, SliceDevice, SlicesView
from ostler.dra_counters import DraCounters
from ostler.families.dra import dra
from ostler.figures import DraFigures
from sandbox.node import SandboxNode
from sandbox.nodes import path
from tests.metrics.scraping import HTTP, scrape
from tests.waiting import eventually

GPU = "nvidia.com/gpu"
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: nowhere
clusters: [{name: nowhere, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: nobody, user: {}}]
contexts: [{name: nowhere, context: {cluster: nowhere, user: nobody}}]
"""


async def recorded_node() -> str:
    """A scrape of an agent with withheld, given, refused and lost devices, and an API server that is not there."""
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        kubeconfig.write_text(KUBECONFIG)
        flags = {
            **HTTP,
            "--mig-strategy": "mixed",
            "--node-name": "nobody",
            "--kubernetes-events": "on",
            "--kubeconfig": str(kubeconfig),
        }
        async with SandboxNode(path("a100-mig-4"), flags=flags, reconcile_interval=0.05) as box:
            await box.registered()
            assert box.hardware is not None
            given = await box.give(GPU, 1)
            box.hardware.fail(box.hardware.find(given.ids[0]))
            await box.agent.rescan()
            await box.kubelet.wait_for(GPU, healthy=1)
            await eventually(lambda: "events cannot be posted yet" in box.log.read_text())
            return await scrape(box)


async def this_machine() -> str:
    """A scrape of an agent that listens to events of this machine's hardware and was told to leave the driver alone."""

    async def heard() -> str:
        text = await scrape(box)
        return text if "ostler_uevent_source{" in text else ""

    async with SandboxNode(None, flags=HTTP, reconcile_interval=0.05) as box:
        await asyncio.to_thread(main, ["quiesce", "--socket", str(box.root / "ostler.sock")])
        return await eventually(heard)


def second_door() -> str:
    """A scrape of figures of the second door alone."""
    counts = DraCounters(lambda: 1700000000.0)
    for method in ("NodePrepareResources", "NodeUnprepareResources"):
        counts.called(method, "v1", "OK", 0.02)
        counts.answered(method, 3, 1)
        counts.forwarded(method, "UNAVAILABLE")
    counts.asked()
    counts.registered()
    counts.prepared("ok", 0.01)
    counts.unprepared("ok", 0.01)
    devices = (SliceDevice("gpu-0", DeviceState.PUBLISHED, 0), SliceDevice("gpu-1", DeviceState.MISSING))
    view = SlicesView("ostler.dev", (PoolView("worker-1", 1, devices),), created=1)
    claim = ClaimView("default", "a", "1", ClaimState.PREPARED)
    found = list(dra(DraFigures(counts, "registered", view, (claim,))))
    return generate_latest(_Found(found)).decode()


class _Found(CollectorRegistry):
    def __init__(self, families: list[Metric]) -> None:
        super().__init__(auto_describe=False)
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


async def everything() -> tuple[str, str, str]:
    """All scrapes."""
    recorded, machine = await asyncio.gather(recorded_node(), this_machine())
    return recorded, machine, second_door()
