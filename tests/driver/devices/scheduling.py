"""Claims on published devices, allocated as the stock scheduler does it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from driver.devices.description import slice_device
from driver.devices.view import DraDevice
from driver.names import Peer
from scheduling.allocator.allocator import Allocator
from scheduling.allocator.pools import SliceIndex
from tests.making import claims

Json = dict[str, Any]

DRIVER = "ostler.dev"
NODE: Json = {"metadata": {"name": "node-1"}}


def chosen_by(expression: str) -> Json:
    return {"selectors": [{"cel": {"expression": expression}}]}


CLASSES: dict[str, Json] = {
    name: {"metadata": {"name": name}, "spec": chosen_by(f'device.driver == "{DRIVER}" && {expression}')}
    for name, expression in {
        "gpu.ostler.dev": 'device.attributes["ostler.dev"].type == "gpu"',
        "mig.ostler.dev": 'device.attributes["ostler.dev"].type == "mig"',
        "nic.ostler.dev": 'device.attributes["ostler.dev"].type in ["nic", "rdma"]',
        "gpu.nvidia.com": 'device.attributes["gpu.nvidia.com"].?type.orValue("") == "gpu"',
        "mig.nvidia.com": 'device.attributes["gpu.nvidia.com"].?type.orValue("") == "mig"',
    }.items()
}


def slices(devices: Iterable[DraDevice], peers: tuple[Peer, ...] = ()) -> list[Json]:
    """The slices of a node, packed as from the start."""
    parts = list(_parts([slice_device(device, peers) for device in devices]))
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{number}-slice"},
            "spec": {
                "driver": DRIVER,
                "nodeName": "node-1",
                "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": len(parts)},
                "devices": part,
            },
        }
        for number, part in enumerate(parts)
    ]


def _parts(devices: Sequence[Json]) -> Iterable[list[Json]]:
    for start in range(0, len(devices), 64):
        yield list(devices[start : start + 64])


def request(name: str, class_: str = "gpu.ostler.dev", count: int = 1, selector: str = "") -> Json:
    return claims.request(name, count, selector, deviceClassName=class_)


def matching(attribute: str, *requests: str) -> Json:
    return {"matchAttribute": attribute, **({"requests": list(requests)} if requests else {})}


def claim(*requests: Json, constraints: Sequence[Json] = ()) -> Json:
    return claims.claim(requests, *constraints)


def island(count: int) -> Json:
    """A claim for so many GPUs that belong together, as documentation tells people to write it."""
    size = max(2, 1 << (count - 1).bit_length())
    constraints = [matching(f"{DRIVER}/cell{size}")] if count > 1 else []
    return claim(request("gpus", count=count), constraints=constraints)


class DeviceScheduler:
    """A node whose devices are given to claims and come back."""

    def __init__(self, published: Sequence[Json]) -> None:
        self._index = SliceIndex(published)
        self.held: dict[int, Json] = {}
        self._next = 0

    def allocate(self, wanted: Json) -> tuple[int, list[str]] | None:
        """A number for the allocation, and the devices in the order of the requests; None where the claim waits."""
        results = Allocator([wanted], self, CLASSES, self._index).allocate(NODE)
        if results is None:
            return None
        self._next += 1
        self.held[self._next] = {**wanted, "status": {"allocation": results[0]}}
        return self._next, [result["device"] for result in results[0]["devices"]["results"]]

    def release(self, number: int) -> None:
        del self.held[number]

    def list_all_allocated(self) -> Sequence[Json]:
        return list(self.held.values())
