"""The node of the sharing benchmark, and an API server with claims that are allocated.

The server is the stand-in, in this process: what it costs is in the figures of whole GPUs as well.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from bench.dra.kubelet import AllocatedClaim, status
from bench.dra.server import NODE
from bench.kubelet import WITHIN, NothingCame
from sandbox.apiserver.server import ApiServer
from tests.cluster.dra.claims import claim
from tests.cluster.rig.api import Object

RECORDED = "h100-sxm-8"
GPUS = tuple(f"gpu-0000-{bus}-00-0" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df"))
"""Names of the node's devices."""
MEMORY = 80
"""GiB of a GPU, about; a share of a claim takes what is left of it after a division without remainder."""
DOMAIN = "bench.ostler.dev"
WHOLE, SHARED, CLAIMED, CLAIMED_SHARED, DIVIDED, ON_DEMAND = (
    f"{DOMAIN}/{name}" for name in ("whole", "shared", "claimed", "claimed-shared", "divided", "on-demand")
)
REPLICAS = 4
PROFILE, PROFILES = "1g.10gb", 7
"""The profile of partitions, and how many of it a GPU has."""
MADE = f"{DOMAIN}/mig-{PROFILE}"
"""The resource of the partitions that can be made."""


def _rule(name: str, gpus: tuple[str, ...], **more: Any) -> Object:
    return {"name": name, "devices": {"kind": "gpu", "vendor": "nvidia", "name": list(gpus)}, **more}


SEVERAL: tuple[Object, ...] = (
    _rule(SHARED, GPUS[:1], sharing={"replicas": REPLICAS}),
    _rule(WHOLE, GPUS[1:2]),
    _rule(CLAIMED_SHARED, GPUS[2:4], door="dra", sharing={"replicas": REPLICAS}),
    _rule(CLAIMED, GPUS[4:6], door="dra"),
    _rule(ON_DEMAND, GPUS[6:7], door="dra", partitions="onDemand"),
    _rule(f"{DIVIDED}-gpus", GPUS[7:], door="dra", mig={"layout": [PROFILE] * PROFILES}),
    {"name": DIVIDED, "door": "dra", "devices": {"kind": "mig"}},
)
"""One GPU of every kind at least: shared and whole at either door, partitions that exist, and partitions to be made."""
PODS, PER_GPU = 200, 25
ALL_SHARED: tuple[Object, ...] = (_rule(SHARED, GPUS, sharing={"replicas": PER_GPU}, door="both"),)
"""Every GPU for 25 pods."""


def consumption(replicas: int) -> Object:
    """What a claim that takes one of so many replicas consumes."""
    return {"memory": f"{MEMORY * 1024 // replicas * 9 // 10}Mi", "compute": str(100 // replicas)}


class ClaimingServer:
    """The stand-in with a Node, allocated claims, and the agent's slices; use it with ``with``."""

    def __init__(self, kubeconfig: Path) -> None:
        self._server = ApiServer()
        self._numbers = itertools.count(1)
        self.kubeconfig = kubeconfig

    def __enter__(self) -> ClaimingServer:
        self._server.start()
        self._server.kubeconfig(self.kubeconfig)
        self._server.store.create("nodes", {"metadata": {"name": NODE}})
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def claim(self, device: str, consumed: Mapping[str, str] | None = None) -> AllocatedClaim:
        """A new claim for a device, or for a share that consumes so much of it."""
        number = next(self._numbers)
        name = f"claim-{number}"
        made = self._server.store.create("resourceclaims", {**claim(name), "metadata": {"name": name}})
        allocated = status(name, device)
        if consumed is not None:
            (result,) = allocated["allocation"]["devices"]["results"]
            result |= {"shareID": str(UUID(int=number)), "consumedCapacity": dict(consumed)}
        self._server.store.patch("resourceclaims", name, {"status": allocated}, part="status")
        return AllocatedClaim("default", name, str(made["metadata"]["uid"]))

    async def published(self, resource: str, count: int, **attributes: str) -> list[str]:
        """Names of a resource's devices with these attributes, as soon as there are so many; raises ``NothingCame``."""
        wanted = {"resource": resource, **attributes}

        def there() -> list[str]:
            return [
                device["name"]
                for each in self._server.store.list("resourceslices")
                for device in each["spec"].get("devices", ())
                if all(device["attributes"].get(name) == {"string": text} for name, text in wanted.items())
            ]

        deadline = time.monotonic() + WITHIN
        while len(found := there()) < count:
            if time.monotonic() > deadline:
                raise NothingCame(f"{resource} has {len(found)} of {count} devices after {WITHIN:g} s")
            await asyncio.sleep(0.02)
        return sorted(found)
