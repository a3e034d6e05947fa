"""``driver.slices.controller.Controller`` as a library in one process: 10,000 devices, then one change."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from bench.dra.server import Server, SliceWatch, watching
from bench.kubelet import WITHIN, NothingCame
from driver.resource_api.client import ResourceApi
from driver.slices.controller import Controller
from driver.slices.model import DriverResources, Pool, Stats, pack
from driver.slices.options import Options
from kube.bodies import JsonObject
from kube.client import Client
from kube.kubeconfig import from_kubeconfig

DRIVER, POOL = "library.bench.ostler.dev", "pool"
DEVICES, PER_SLICE = 10_000, 128


@dataclass(frozen=True, slots=True)
class Published:
    """Seconds and successful writes of one run: until all devices are there, and for one changed attribute."""

    converge: float
    writes: int
    change: float
    change_writes: int


def publish(server: Server) -> Published:
    """Publish, change one device and take all away again; in a thread. Raises ``NothingCame``."""
    faults: list[str] = []
    client = Client(from_kubeconfig(server.kubeconfig), random=random.random)
    wanted = resources(0)
    with watching(server.api, DRIVER) as watch:
        began = time.perf_counter()
        controller = Controller(
            Options(
                ResourceApi(client),
                DRIVER,
                resources=wanted,
                error_handler=lambda error, work: faults.append(f"{work}: {error}"),
            )
        )
        controller.start()
        try:
            slices = len(wanted.pools[POOL].slices)
            there = watch.wait("all devices are there", lambda shown: shown.devices == DEVICES)
            _settled(controller, faults)
            written = _writes(controller.get_stats())
            if watch.now.slices != slices:
                raise NothingCame(f"{watch.now.slices} slices instead of {slices}")
            changed, after = _change(controller, watch, faults), _writes(controller.get_stats())
            controller.update(None)
            watch.wait("all slices are gone", lambda shown: shown.slices == 0, there.at)
        finally:
            controller.stop()
            client.close()
    return Published(there.at - began, written, changed, after - written)


def _change(controller: Controller, watch: SliceWatch, faults: list[str]) -> float:
    wanted = resources(1)
    began = time.perf_counter()
    controller.update(wanted)
    seen = watch.wait("the change is there", lambda shown: shown.modified > 0, began)
    _settled(controller, faults)
    return seen.at - began


def _settled(controller: Controller, faults: list[str]) -> None:
    """What would be written late is written then; raises ``NothingCame`` with what went wrong."""
    if not controller.wait_idle(WITHIN):
        raise NothingCame(f"the controller is not idle after {WITHIN:g} s")
    (status,) = controller.status()
    if faults or not status.in_order:
        raise NothingCame(f"the controller's slices are not as they should be: {faults or status.error}")


def resources(temperature: int) -> DriverResources:
    """The device in the middle has another temperature than the rest."""
    devices = [_device(index, temperature if index == DEVICES // 2 else 0) for index in range(DEVICES)]
    return DriverResources({POOL: Pool(pack(devices, limit=PER_SLICE), all_nodes=True)})


def _device(index: int, temperature: int) -> JsonObject:
    return {
        "name": f"device-{index}",
        "attributes": {
            "model": {"string": "LED"},
            "index": {"int": index},
            "temperature": {"int": temperature},
            "version": {"version": "1.0.0"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }


def _writes(stats: Stats) -> int:
    return stats.creates + stats.updates + stats.deletes
