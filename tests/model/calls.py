"""Calls from the kubelet to our servicers without a wire: what gRPC would add is an abort and a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

import grpc

T = TypeVar("T")


class ModelCallFailed(Exception):
    """The kubelet's call ended with a status, or with the process that it went to."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Context:
    """As much of a ``grpc.aio.ServicerContext`` as servicers here use."""

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = seconds

    def time_remaining(self) -> float | None:
        return self.seconds

    async def abort(self, code: grpc.StatusCode, text: str = "") -> None:
        raise ModelCallFailed(code.name, text)


async def answered(work: Awaitable[T]) -> T:
    """The answer of a servicer, whose process may die meanwhile; a caller that goes away ends the handler."""
    task: asyncio.Future[Any] = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task,))
    except asyncio.CancelledError:
        task.cancel()
        raise
    if task.cancelled():
        raise ModelCallFailed("UNAVAILABLE", "the process has ended")
    return task.result()  # type: ignore[no-any-return]
