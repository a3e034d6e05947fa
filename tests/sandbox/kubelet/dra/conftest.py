"""A node with an embedded kubelet, scripted DRA drivers and an API server that is a table, on real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from protos.dra.v1 import api_pb2
from sandbox.kubelet.dra.settings import ApiFailed, DraManagerSettings
from sandbox.kubelet.events import KubeletEvent
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pods import ClaimUse, Container, Pod, PodClaim
from tests.sandbox.kubelet.dra.driver import NAME, DriverScript, FakeDriver

POOL = "n1"


def claim(
    name: str,
    *,
    uid: str = "",
    devices: Iterable[tuple[str, str]] = (("r", "dev-0"),),
    drivers: Sequence[str] = (NAME,),
    pods: Iterable[str] = ("p",),
    owner: str = "",
) -> dict[str, Any]:
    """An allocated ResourceClaim: requests and devices, the UIDs of its pods, and its owner's."""
    results = [
        {"driver": driver, "pool": POOL, "device": device, "request": request}
        for driver in drivers
        for request, device in devices
    ]
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": owner, "controller": True}] if owner else []
    return {
        "metadata": {"name": name, "namespace": "default", "uid": uid or f"uid-{name}", "ownerReferences": owners},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": pod} for pod in pods],
        },
    }


def pod(uid: str, *claims: str, containers: Sequence[Container] = ()) -> Pod:
    """A pod that uses existing claims by their own names, by default all of them in its container ``c``."""
    own = tuple(PodClaim(name, name) for name in claims)
    return Pod(uid, uid, claims=own, containers=tuple(containers) or (Container("c", claims=uses(*claims)),))


def uses(*names: str) -> tuple[ClaimUse, ...]:
    """What a container asks for: NAME or NAME/REQUEST."""
    return tuple(ClaimUse(name.partition("/")[0], name.partition("/")[2]) for name in names)


class Table:
    """Claims by name; ``wipes`` are the drivers whose slices were deleted (None: all)."""

    def __init__(self) -> None:
        self.claims: dict[str, Mapping[str, Any]] = {}
        self.wipes: list[str | None] = []
        self.failures = 0

    def add(self, *claims: Mapping[str, Any]) -> None:
        """Have these claims, instead of others of their names."""
        self.claims.update((each["metadata"]["name"], each) for each in claims)

    async def claim(self, namespace: str, name: str) -> Mapping[str, Any]:
        """The claim."""
        if name not in self.claims:
            raise ApiFailed(f'resourceclaims.resource.k8s.io "{name}" not found')
        return self.claims[name]

    async def delete_slices(self, driver: str | None) -> None:
        """Note it."""
        if self.failures:
            self.failures -= 1
            raise ApiFailed("the server is on fire")
        self.wipes.append(driver)


class DraKubeletNode:
    """Starts kubelets and drivers under ``root`` and ends them all."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.api = Table()
        self.events: list[KubeletEvent] = []
        self._kubelets: list[Kubelet] = []
        self._drivers: list[FakeDriver] = []

    async def kubelet(self, dra: Mapping[str, Any] | None = None, **settings: Any) -> Kubelet:
        """A running kubelet that reconciles every 50 ms."""
        manager = replace(DraManagerSettings(api=self.api, health_retry_seconds=0.05), **(dra or {}))
        kubelet = Kubelet(self.root, **{"reconcile_interval": 0.05, "dra": manager, **settings})
        kubelet.on_event(self.events.append)
        self._kubelets.append(kubelet)
        await kubelet.start()
        return kubelet

    async def driver(self, instance: str = "dra", script: DriverScript | None = None, name: str = NAME) -> FakeDriver:
        """A driver that serves, and answers with the devices that its claims have at the API unless scripted."""
        driver = FakeDriver(self.root, instance, name, script or DriverScript(devices=self.devices(name)))
        self._drivers.append(driver)
        return await driver.start()

    def devices(self, driver: str = NAME) -> Any:
        """An answer: one CDI device for each allocated device."""

        def answer(claim: api_pb2.Claim) -> list[api_pb2.Device]:
            results = self.api.claims[claim.name]["status"]["allocation"]["devices"]["results"]
            return [
                api_pb2.Device(
                    request_names=[each["request"].partition("/")[0]],
                    pool_name=each["pool"],
                    device_name=each["device"],
                    cdi_device_ids=[f"{driver}/fake={claim.uid}-{each['device']}"],
                    share_id=each.get("shareID"),
                )
                for each in results
                if each["driver"] == driver
            ]

        return answer

    async def close(self) -> None:
        """End everything."""
        for kubelet in self._kubelets:
            await kubelet.stop()
        for driver in self._drivers:
            await driver.stop()


@pytest.fixture
async def node(short_dir: Path) -> AsyncIterator[DraKubeletNode]:
    node = DraKubeletNode(short_dir)
    yield node
    await node.close()
