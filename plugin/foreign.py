"""Finding who else serves the same resource: people forget to remove the plugin they had before.

Sockets carry no resource name, but they can be asked: in ``plugins_registry`` GetInfo tells the name, and anywhere the
first message of ListAndWatch tells the device ids. Asked only when our own registration was taken twice in a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
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


async def foreign_sockets(
    directories: Iterable[Path], resource: str, ids: Iterable[str], own: Iterable[Path]
) -> list[Path]:
    """Sockets of others that serve ``resource`` (by name) or any of the devices ``ids``, sorted."""
    ours = frozenset(own)
    wanted = frozenset(ids)
    candidates = [
        path
        for directory in dict.fromkeys(directories)
        if directory.is_dir()
        for path in sorted(directory.iterdir())
        if path not in ours and path.name != KUBELET_SOCKET and not path.name.startswith(".") and is_socket(path)
    ]
    answers = await asyncio.gather(*(_serves(path, resource, wanted) for path in candidates))
    return [path for path, serves in zip(candidates, answers, strict=True) if serves]


async def _serves(path: Path, resource: str, ids: frozenset[str]) -> bool:
    local = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.insecure_channel(f"unix:{path}", options=local) as channel:
        return await _named(channel, resource) or await _lists(channel, ids)


async def _named(channel: grpc.aio.Channel, resource: str) -> bool:
    try:
        info = await registration_pb2_grpc.RegistrationStub(channel).GetInfo(
            registration_pb2.InfoRequest(), timeout=ANSWER_TIMEOUT
        )
    except grpc.aio.AioRpcError:
        return False  # Not in the watcher's protocol, or dead: either way it does not name our resource.
    return bool(info.type == "DevicePlugin" and info.name == resource)


async def _lists(channel: grpc.aio.Channel, ids: frozenset[str]) -> bool:
    stream = api_pb2_grpc.DevicePluginStub(channel).ListAndWatch(api_pb2.Empty(), timeout=ANSWER_TIMEOUT)
    try:
        async for message in stream:
            return any(device.ID in ids for device in message.devices)
    except grpc.aio.AioRpcError:
        return False  # No device plugin, or dead.
    finally:
        stream.cancel()
    return False
