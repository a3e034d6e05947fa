"""How the kubelet dials plugins and listens for them, and how it words failures.

Every client has connections of its own: by default gRPC shares one connection between all clients of a process that
dial the same address, so a plugin's new socket under an old name would never be noticed.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket as sockets
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import grpc
import grpc.aio

from node.sockets import MAX_PATH
from sandbox.kubelet.errors import PluginError

Message = TypeVar("Message")

DIAL_SECONDS = 10.0
"""How long a kubelet tries to connect, whatever is or is not at the path."""

MAX_MESSAGE = 4 * 1024 * 1024
"""Bytes of one message from a plugin that a kubelet takes."""

UNLIMITED = -1
"""Takes messages of any size."""

UNREADABLE = "grpc: failed to unmarshal the received message"
"""The error of bytes that are no message of the expected type."""


def plugin_channel(socket: str, user_agent: str = "", *, limit: int = MAX_MESSAGE) -> grpc.aio.Channel:
    """A channel to a plugin's own service: the kubelet sends ``localhost`` as authority there.

    ``user_agent``: what the calls' own begins with; empty for this library's alone. ``limit``: bytes of a message.
    """
    return _channel(socket, "localhost", user_agent, limit)


def registry_channel(socket: str) -> grpc.aio.Channel:
    """A channel to a registration socket: the authority is the percent-encoded path, which some servers refuse."""
    return _channel(socket, quote(os.fsencode(socket), safe=""))


async def ready(channel: grpc.aio.Channel, seconds: float) -> bool:
    """Whether the channel connects within ``seconds``; what fails before is tried again, as the kubelet does."""
    try:
        async with asyncio.timeout(seconds):
            await channel.channel_ready()
    except TimeoutError:
        return False
    return True


async def answer(call: Awaitable[Message]) -> Message:
    """The response of a unary call; raises ``PluginError`` for everything that can go wrong with it.

    A call ends as cancelled when its channel is closed under it. That is the plugin's failure and not the cancellation
    of the caller, so the two are distinguished.
    """
    try:
        response = await call
    except grpc.aio.AioRpcError as error:
        raise PluginError.of(error) from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise PluginError(grpc.StatusCode.CANCELLED, "grpc: the client connection is closing") from None
    if response is None:  # gRPC's result for bytes that are not such a message.
        raise PluginError(grpc.StatusCode.INTERNAL, UNREADABLE)
    return response


def listen_at(server: grpc.aio.Server, socket: str | Path) -> None:
    """Have ``server`` listen at ``socket``; raises OSError with the kernel's reason, which gRPC only logs."""
    path = os.fspath(socket)
    try:
        server.add_insecure_port(f"unix:{quote(os.fsencode(path))}")
    except RuntimeError as error:
        with sockets.socket(sockets.AF_UNIX) as attempt:
            try:
                attempt.bind(path)
            except OSError as fault:
                raise OSError(fault.errno or errno.ENAMETOOLONG, fault.strerror or str(fault), path) from error
        Path(path).unlink(missing_ok=True)
        raise OSError(errno.EIO, str(error), path) from error


def _channel(socket: str, authority: str, user_agent: str = "", limit: int = MAX_MESSAGE) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(
        f"unix:{_address(socket)}",
        options=[
            ("grpc.default_authority", authority),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", limit),
            ("grpc.enable_http_proxy", 0),
            *([("grpc.primary_user_agent", user_agent)] if user_agent else ()),
        ],
    )


def _address(socket: str) -> str:
    """The path as gRPC reads it: as part of a URI, in which %, # and ? have a meaning.

    gRPC makes a dead channel of a path that no socket can have, and a wait for that channel never ends, not even when
    it is closed. Another path without a listener replaces those.
    """
    path = os.fsencode(socket)
    is_possible = 0 < len(path) <= MAX_PATH and b"\0" not in path
    return quote(path) if is_possible else "/dev/null/no-socket-has-this-path"
