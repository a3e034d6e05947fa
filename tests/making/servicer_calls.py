"""Calls from the kubelet to our servicers without a wire: what gRPC adds is an abort, a deadline, and the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc

T = TypeVar("T")


class ServicerCallFailed(Exception):
    """The kubelet's call ended with a status, or with the process that it went to."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class CallContext:
    """As much of a ``grpc.aio.ServicerContext`` as servicers here use; what follows a call happens at once."""

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = seconds

    def time_remaining(self) -> float | None:
        return self.seconds

    def add_done_callback(self, callback: Callable[[CallContext], None]) -> None:
        callback(self)

    async def abort(self, code: grpc.StatusCode, text: str = "") -> None:
        raise ServicerCallFailed(code.name, text)


async def answered(work: Awaitable[T]) -> T:
    """The answer of a servicer, whose process may die meanwhile; a caller that goes away ends the handler."""
    task: asyncio.Future[Any] = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task,))
    except asyncio.CancelledError:
        task.cancel()
        raise
    if task.cancelled():
        raise ServicerCallFailed("UNAVAILABLE", "the process has ended")
    return task.result()  # type: ignore[no-any-return]
