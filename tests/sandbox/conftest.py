"""A cluster of one node: API server, kubelet, a scripted DRA driver that writes CDI specs, and a device plugin."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from protos.dra.v1 import api_pb2
from sandbox.apiserver.server import ApiServer
from sandbox.cluster.client import ClusterClient, KubeletApi
from sandbox.cluster.cluster import SandboxCluster
from sandbox.kubelet.dra.settings import DraManagerSettings
from sandbox.kubelet.kubelet import Kubelet
from tests.sandbox.kubelet.dra.driver import DriverScript, FakeDriver
from tests.sandbox.kubelet.scripted_plugin import ScriptedPlugin, devices, register
from tests.waiting import eventually

DRIVER = "ostler.dev"
NODE = "node-1"
PLUGIN = "a.example/gpu"


class StartedBox:
    """Everything of one cluster, in ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.server = ApiServer()
        self.client = ClusterClient(self.server.url)
        api = KubeletApi(self.client, NODE)
        settings = DraManagerSettings(api, wipe_retries=(), health_retry_seconds=0.05)
        self.kubelet = Kubelet(root / "kubelet", reconcile_interval=0.05, dra=settings)
        self.cdi = root / "cdi"
        self.cdi.mkdir()
        self.cluster = SandboxCluster(self.client, NODE, self.kubelet, [self.cdi])
        self.driver = FakeDriver(root / "kubelet", name=DRIVER, script=DriverScript(devices=self._prepare))
        self._plugins: list[ScriptedPlugin] = []

    async def start(self) -> None:
        """Start everything, without slices."""
        self.server.start()
        await self.cluster.start({"kubernetes.io/hostname": NODE})
        await self.kubelet.start()
        await eventually(lambda: self.kubelet.dra.drivers.wiping.wiped == [None], "the wipe at the start")
        await self.driver.start()
        drivers = self.kubelet.dra.drivers
        await eventually(lambda: any(each.connected for each in drivers.instances(DRIVER)), "the connection")

    async def close(self) -> None:
        """End everything."""
        await self.kubelet.stop()
        await self.driver.stop()
        for plugin in self._plugins:
            await plugin.stop()
        self.server.stop()

    async def plugin(self, count: int) -> None:
        """Have a device plugin."""
        folder = self.root / "kubelet" / "device-plugins"
        plugin = await ScriptedPlugin(PLUGIN, folder / "p.sock", devices("d", count)).start()
        self._plugins.append(plugin)
        assert await register(folder, PLUGIN, "p.sock") == ""
        await self.kubelet.wait_for(PLUGIN, healthy=count)

    def publish(self, count: int, *, taints: Mapping[int, Iterable[Mapping[str, Any]]] | None = None) -> None:
        """Have a slice with so many GPUs."""
        gpus = [
            {
                "name": f"gpu-{number}",
                "attributes": {"type": {"string": "gpu"}, "pair": {"int": number // 2}},
                "taints": list((taints or {}).get(number, ())),
            }
            for number in range(count)
        ]
        pool = {"name": NODE, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": NODE, "pool": pool, "devices": gpus}
        plural, name = "resourceslices", "slice"
        if self.server.store.list(plural):
            old = self.server.store.get(plural, name)
            self.server.store.replace(plural, {**old, "spec": spec})
        else:
            self.server.store.create(plural, {"metadata": {"name": name}, "spec": spec})

    def claims(self) -> dict[str, Any]:
        """The claims at the API server by name."""
        return {each["metadata"]["name"]: each for each in self.server.store.list("resourceclaims")}

    def _prepare(self, claim: api_pb2.Claim) -> list[api_pb2.Device]:
        results = self.claims()[claim.name]["status"]["allocation"]["devices"]["results"]
        written = [
            {
                "name": f"{claim.uid}-{each['device']}",
                "containerEdits": {"deviceNodes": [{"path": f"/dev/{each['device']}"}]},
            }
            for each in results
        ]
        spec = {
            "cdiVersion": "0.5.0",
            "kind": f"{DRIVER}/claim",
            "devices": written,
            "containerEdits": {"env": [f"CLAIM={claim.name}"]},
        }
        (self.cdi / f"{DRIVER}-claim_{claim.uid}.json").write_text(json.dumps(spec))
        return [
            api_pb2.Device(
                request_names=[each["request"].partition("/")[0]],
                pool_name=each["pool"],
                device_name=each["device"],
                cdi_device_ids=[f"{DRIVER}/claim={claim.uid}-{each['device']}"],
            )
            for each in results
        ]


@pytest.fixture
async def box(short_dir: Path) -> AsyncIterator[StartedBox]:
    box = StartedBox(short_dir)
    try:
        await box.start()
        yield box
    finally:
        await box.close()


def request(name: str = "r", count: int = 1, **more: Any) -> dict[str, Any]:
    """A request of a claim for GPUs."""
    return {"name": name, "exactly": {"deviceClassName": f"gpu.{DRIVER}", "count": count, **more}}


def spec(*requests: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A claim's spec."""
    return {"devices": {"requests": list(requests) or [request()], **more}}


def claim(name: str, *requests: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A ResourceClaim."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec(*requests, **more),
    }


def template(name: str, *requests: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A ResourceClaimTemplate."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"metadata": {"labels": {"from": name}}, "spec": spec(*requests, **more)},
    }


def pod(name: str, *, containers: Iterable[Mapping[str, Any]] = (), **claims: str) -> dict[str, Any]:
    """A pod; ``claims``: entry -> ``claim/NAME`` or ``template/NAME``. Its container uses all by default."""
    entries = []
    for entry, source in claims.items():
        kind, _, what = source.partition("/")
        field = "resourceClaimName" if kind == "claim" else "resourceClaimTemplateName"
        entries.append({"name": entry, field: what})
    resources = {"claims": [{"name": entry} for entry in claims]}
    own = list(containers) or [{"name": "main", "image": "i", "resources": resources}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": own, "resourceClaims": entries},
    }
