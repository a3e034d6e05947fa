"""Agents to whom everything happens that a metric tells of: two on recorded nodes, one on this machine.

One of those on recorded nodes offers its devices through DRA, to a cluster in a box.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from node.metrics import metrics_of
from node.mps.reports import MpsMetrics
from ostler.cli.main import main
from ostler.metrics.exposition import family
from sandbox.node import SandboxNode
from sandbox.nodes import path
from tests.ostler.agent.claimed_node import ClaimedNode
from tests.ostler.metrics.scraping import HTTP, scrape
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
        return text if "ostler_uevent_source{" in text and "ostler_health_looks_total{" in text else ""

    async with SandboxNode(None, flags=HTTP, reconcile_interval=0.05) as box:
        await asyncio.to_thread(main, ["quiesce", "--socket", str(box.root / "ostler.sock")])
        return await eventually(heard)


async def dra_door() -> str:
    """A scrape of an agent that has published and tainted devices, and prepared, refused and released claims."""
    async with ClaimedNode(flags=HTTP) as box:
        assert box.hardware is not None
        await box.running("held")
        await box.running("ended")
        await box.control.end("ended")
        box.api.faults.add("get", "status", 403, count=-1, resource="resourceclaims", by="ostler")
        assert not (await box.run_pod("refused")).running
        box.api.faults.clear()
        box.hardware.fail(7)
        await box.agent.rescan()
        await box.waits.published()

        async def watched() -> str:
            text = await scrape(box)
            return text if "ostler_dra_health_streams 1.0" in text else ""

        return await eventually(watched, "the kubelet follows the devices' health")


SHARED = """\
apiVersion: ostler.dev/v1alpha1
kind: Config
resources:
  - name: nvidia.com/gpu.shared
    devices: {vendor: nvidia, kind: gpu}
    sharing: {replicas: 4}
"""


async def shared_node() -> str:
    """A scrape of an agent whose devices are shared."""
    async with SandboxNode(path("l4-2"), flags=HTTP, configuration=SHARED, reconcile_interval=0.05) as box:
        await box.registered()
        await box.give("nvidia.com/gpu.shared", 1)
        return await scrape(box)


def daemons_of_mps() -> str:
    """What an agent with MPS daemons would serve of them; ``test_mps_node`` scrapes one, which needs a driver."""
    metrics, registry = MpsMetrics(), CollectorRegistry()
    for name in ("nvidia.com/gpu.shared", "claim-1"):
        metrics.begin(name)
        metrics.started(name, well=True)

    class _Daemons(Collector):
        def collect(self) -> Iterator[Family]:
            return (family(metric, {}) for metric in metrics_of(metrics))

    registry.register(_Daemons())
    return generate_latest(registry).decode()


async def everything() -> tuple[str, ...]:
    """All scrapes."""
    scraped = await asyncio.gather(recorded_node(), this_machine(), dra_door(), shared_node())
    return (*scraped, daemons_of_mps())
