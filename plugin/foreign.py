"""Finding who else serves the same resource: people forget to remove the plugin they had before.

Sockets carry no resource name, but they can be asked: in ``plugins_registry`` GetInfo tells the name, and anywhere the
first message of ListAndWatch tells the device ids. That question is not gentle: some plugins hand each update to one
stream only, and a stream that we opened may swallow one. So ListAndWatch is asked only when the resource is lost;
before that, GetPreferredAllocation tells as well: a plugin that prefers one of our devices and refuses one that cannot
exist has our devices. Plugins without that call are found by their devices or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import grpc
import grpc.aio

from node.sockets import is_socket
from plugin.kubelet import KUBELET_SOCKET
from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from protos.pluginregistration.v1 import api_pb2 as registration_pb2
from protos.pluginregistration.v1 import api_pb2_grpc as registration_pb2_grpc

ANSWER_TIMEOUT = 2.0
"""Seconds a foreign plugin gets for each question."""
NO_DEVICE = "ostler-asks-for-no-device"
"""An id that no device has."""


def sockets_of_others(directories: Iterable[Path], own: Iterable[Path]) -> list[Path]:
    """Plugins' sockets in the folders and below them, where kubelets also look; without ``own`` ones."""
    ours = frozenset(own)
    return [
        path
        for directory in dict.fromkeys(directories)
        for path in _listed(directory)
        if path not in ours and path.name != KUBELET_SOCKET and not path.name.startswith(".") and is_socket(path)
    ]


def _listed(directory: Path) -> list[Path]:
    try:
        return sorted(directory.rglob("*"))
    except OSError:
        return []  # Not there, or it changed under us; whoever calls looks again.


async def newcomers_with(candidates: Iterable[Path], resource: str, ids: Iterable[str]) -> list[Path]:
    """Those of the sockets that serve any of the devices ``ids``; only who names ``resource`` is asked for its list."""
    wanted = frozenset(ids)

    async def serves(channel: grpc.aio.Channel) -> bool:
        if await _names(channel, resource):
            return await _lists(channel, wanted)
        return await _prefers(channel, wanted)

    return await _asked(candidates, serves)


async def foreign_sockets(
    candidates: Iterable[Path], resource: str, ids: Iterable[str], taken: frozenset[str] = frozenset()
) -> list[Path]:
    """Those of the sockets that serve ``resource`` (by name), any of the devices ``ids``, or all of ``taken``.

    ``taken``: devices that the kubelet has of the resource and that are not ours.
    """
    wanted = frozenset(ids)

    async def serves(channel: grpc.aio.Channel) -> bool:
        return await _names(channel, resource) or await _lists(channel, wanted, taken)

    return await _asked(candidates, serves)


Question = Callable[[grpc.aio.Channel], Awaitable[bool]]


async def _asked(candidates: Iterable[Path], question: Question) -> list[Path]:
    paths = list(candidates)
    answers = await asyncio.gather(*(_ask(path, question) for path in paths))
    return [path for path, answer in zip(paths, answers, strict=True) if answer]


async def _ask(path: Path, question: Question) -> bool:
    local = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.insecure_channel(f"unix:{path}", options=local) as channel:
        return await question(channel)


async def _names(channel: grpc.aio.Channel, resource: str) -> bool:
    try:
        info = await registration_pb2_grpc.RegistrationStub(channel).GetInfo(
            registration_pb2.InfoRequest(), timeout=ANSWER_TIMEOUT
        )
    except grpc.aio.AioRpcError:
        return False  # Not in the watcher's protocol, or dead: either way it does not name our resource.
    return bool(info.type == "DevicePlugin" and info.name == resource)


async def _prefers(channel: grpc.aio.Channel, ids: frozenset[str]) -> bool:
    """Whether the plugin tells one of our devices from one that cannot exist."""
    one = min(ids, default="")
    return bool(one) and await _preferred(channel, one) and not await _preferred(channel, NO_DEVICE)


async def _preferred(channel: grpc.aio.Channel, id_: str) -> bool:
    request = api_pb2.PreferredAllocationRequest(
        container_requests=[
            api_pb2.ContainerPreferredAllocationRequest(available_deviceIDs=[id_], allocation_size=1),
        ]
    )
    try:
        answer = await api_pb2_grpc.DevicePluginStub(channel).GetPreferredAllocation(request, timeout=ANSWER_TIMEOUT)
    except grpc.aio.AioRpcError:
        return False  # It has no such call, or no such device.
    return any(id_ in container.deviceIDs for container in answer.container_responses)


async def _lists(channel: grpc.aio.Channel, ids: frozenset[str], taken: frozenset[str] = frozenset()) -> bool:
    stream = api_pb2_grpc.DevicePluginStub(channel).ListAndWatch(api_pb2.Empty(), timeout=ANSWER_TIMEOUT)
    try:
        async for message in stream:
            listed = frozenset(device.ID for device in message.devices)
            return bool(listed & ids) or (bool(taken) and taken <= listed)
    except grpc.aio.AioRpcError:
        return False  # No device plugin, or dead.
    finally:
        stream.cancel()
    return False
