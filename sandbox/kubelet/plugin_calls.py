"""Calls to plugins that say what went wrong: which plugin, which call, how long it took, and what to look at.

A call without an answer is reported once while it still waits, because a kubelet sets no deadline for most calls and
a hanging plugin blocks the admission of every pod. The text of an error stays the kubelet's own; what is added for
people goes with it as a ``CallFault``.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import grpc

from node.opening import read_kernel_text
from sandbox.kubelet.dialling import UNREADABLE, answer
from sandbox.kubelet.errors import CallFault, PluginError
from sandbox.kubelet.events import EventFeed, PluginCallFailed, PluginCallPending

Message = TypeVar("Message")

log = logging.getLogger("ostler.sandbox.kubelet")

PENDING_SECONDS = 10.0
"""How long a call may wait before it is reported as pending."""

_EVERY_POD = "no kubelet sets a deadline for it, so it holds up the admission of every pod"
_WAITING = {
    "Allocate": _EVERY_POD,
    "GetPreferredAllocation": _EVERY_POD,
    "PreStartContainer": "the start of the container waits for it, for at most 30 s",
}
"""Who waits for a call of a device plugin; for the others it is its registration."""
_ADVICE = {
    grpc.StatusCode.DEADLINE_EXCEEDED: "the plugin took the call and did not answer; see what {process} waits for",
    grpc.StatusCode.UNAVAILABLE: "the plugin ended or closed its socket; see the end of its log and its exit status",
    grpc.StatusCode.UNIMPLEMENTED: "the plugin does not serve {call}; see which options it announces and which "
    "service it registers",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "a message of the plugin exceeds the kubelet's limit of 4 MiB; send fewer or "
    "shorter device ids",
    grpc.StatusCode.INTERNAL: "the plugin's bytes are no valid response; see which .proto file it is built from",
    grpc.StatusCode.CANCELLED: "the connection was closed during the call; see whether the kubelet stopped or the "
    "plugin registered again",
}
_REFUSED = "the plugin refused the call; see the log of {process} at this time"
_DIAL = (
    "nothing accepted a connection; see whether the plugin serves before it registers, whether Register names the "
    "file only, and whether the folder and not a single socket is mounted"
)


def advice(call: str, path: str, code: grpc.StatusCode | None, details: str = "") -> str:
    """What to look at after ``call`` to the plugin at ``path`` failed with ``code`` (None: no connection).

    ``details`` are the words of the status.
    """
    if code is None:
        return _DIAL
    if code is grpc.StatusCode.INTERNAL and UNREADABLE not in details:
        # Many plugins use this code for errors of their own.
        return _REFUSED.format(process=_process_at(path))
    return _ADVICE.get(code, _REFUSED).format(call=call, process=_process_at(path))


@dataclass(frozen=True, slots=True)
class PluginCalls:
    """Makes the calls and reports the slow and the failed ones to ``feed``."""

    feed: EventFeed
    pending_seconds: float = PENDING_SECONDS
    waiting: str = ""
    """Who waits for a call that is pending; empty: as for the calls of device plugins."""

    async def run(self, resource: str, path: str, call: str, response: Awaitable[Message]) -> Message:
        """The answer; raises ``PluginError``, with its ``fault`` set."""
        loop = asyncio.get_running_loop()
        began = loop.time()

        def report_pending() -> None:
            seconds = loop.time() - began
            waiting = self.waiting or _WAITING.get(call, "its registration waits for it")
            look = f"see what {_process_at(path)} waits for; {waiting}"
            event = PluginCallPending(CallFault(resource, path, call, seconds, look))
            log.info("a plugin does not answer", extra={"call": str(event)})
            self.feed.emit(event)

        timer = loop.call_later(self.pending_seconds, report_pending)
        try:
            return await answer(response)
        except PluginError as error:
            look = advice(call, path, error.code, error.details)
            error.fault = CallFault(resource, path, call, loop.time() - began, look)
            raise
        finally:
            timer.cancel()

    async def run_reported(self, resource: str, path: str, call: str, response: Awaitable[Message]) -> Message:
        """The same, and a failure is an event of its own."""
        try:
            return await self.run(resource, path, call, response)
        except PluginError as error:
            if error.fault is not None:
                event = PluginCallFailed(error.fault, str(error))
                log.info("a call to a plugin failed", extra={"call": str(event)})
                self.feed.emit(event)
            raise


def _process_at(path: str) -> str:
    """The process that listens at ``path``, for people; found by a connection that says nothing."""
    try:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.setblocking(False)
            peer.connect(path)
            pid, _, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        name = read_kernel_text(Path(f"/proc/{pid}/comm")).strip()
    except (OSError, ValueError):
        return "the plugin"
    return f"process {pid} ({name})"
