"""Calls of the kubelet's kind and how long they take, by the same client for every plugin.

Latencies are seconds seen by the client, its own share included: that share is in the floor's figures as well.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

from bench.kubelet import Registered
from protos.deviceplugin.v1beta1 import api_pb2

CONCURRENT = 8
Call = Callable[[], Awaitable[object]]


def allocate(registered: Registered, ids: Sequence[str]) -> Call:
    """Allocate of one container with these devices."""
    request = api_pb2.AllocateRequest(container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=ids)])
    return lambda: registered.stub.Allocate(request)


def preferred(registered: Registered, ids: Sequence[str], size: int) -> Call:
    """GetPreferredAllocation of ``size`` out of these devices."""
    wanted = api_pb2.ContainerPreferredAllocationRequest(available_deviceIDs=ids, allocation_size=size)
    request = api_pb2.PreferredAllocationRequest(container_requests=[wanted])
    return lambda: registered.stub.GetPreferredAllocation(request)


async def one_by_one(call: Call, count: int) -> list[float]:
    """Latencies of calls that follow each other."""
    latencies = []
    with _undisturbed():
        for _ in range(count):
            began = time.perf_counter()
            await call()
            latencies.append(time.perf_counter() - began)
    return latencies


async def at_once(call: Call, rounds: int) -> list[float]:
    """Latencies of every call when eight are made at once and the next eight follow when all are answered."""
    latencies: list[float] = []
    with _undisturbed():
        for _ in range(rounds):
            latencies += await asyncio.gather(*(_timed(call) for _ in range(CONCURRENT)))
    return latencies


async def _timed(call: Call) -> float:
    began = time.perf_counter()
    await call()
    return time.perf_counter() - began


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Without collections of garbage in the client, which would show up as the plugins' 99th percentile."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
