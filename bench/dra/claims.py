"""Claims as a scheduler leaves them: allocated, and reserved for a pod. Nothing is scheduled; devices are said."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from uuid import UUID

from bench.dra.server import NODE
from tests.cluster.dra.claims import CLAIMS, DRIVER, claim
from tests.cluster.rig.api import Api, Object

CLIENTS = 8
"""Threads that make claims."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim as a kubelet names it."""

    namespace: str
    name: str
    uid: str


class Claims:
    """Makes claims, none of them twice."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._numbers = itertools.count()

    def allocated(self, devices: Sequence[str]) -> list[Claim]:
        """A new claim for every one of these devices of the node's pool, in their order."""
        named = [(f"claim-{next(self._numbers)}", device) for device in devices]
        kept = self._api.kept()
        try:
            with ThreadPoolExecutor(CLIENTS) as clients:
                return list(clients.map(lambda each: _made(kept, *each), named))
        finally:
            kept.close()


def _made(api: Api, name: str, device: str) -> Claim:
    made = api.create(CLAIMS, claim(name))
    api.request("PUT", f"{CLAIMS}/{name}/status", {**made, "status": status(name, device)})
    return Claim("default", name, made["metadata"]["uid"])


def status(name: str, device: str) -> Object:
    """What scheduler and controllers write for one device and one pod."""
    result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device}
    pod = {"resource": "pods", "name": f"pod-of-{name}", "uid": str(UUID(int=0))}
    return {"allocation": {"devices": {"results": [result]}}, "reservedFor": [pod]}
