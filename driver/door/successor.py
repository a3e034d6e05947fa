"""The instance that takes over: found by its socket, and asked in our stead.

Between the moment at which an instance stops deciding and the one at which the kubelet has found its successor, the
kubelet still calls here. Claims have one keeper at a time, so these calls are neither refused, which would cost the pod
a minute, nor answered from here: they are passed on, and the answer is the successor's. Only a socket younger than our
own belongs to a successor; otherwise two ending instances would pass calls back and forth.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from driver.door.registration import age, claim_sockets
from node.clocks import SYSTEM, Clocks
from node.sockets import CHANNEL, is_answered

Answer = TypeVar("Answer", bound=Message)
LOOK = 0.05
"""Seconds between checks for the successor's socket."""
PATIENCE = 40.0
"""Seconds for a call without a deadline; the kubelet's have 45 s."""


class NoSuccessor(Exception):
    """No instance has taken over within the call's time."""


class Successor:
    """The instance that serves claims in ``folder`` and whose socket is younger than ``after`` (an ``age``)."""

    def __init__(self, folder: Path, after: tuple[int, int], clocks: Clocks = SYSTEM) -> None:
        self._folder = folder
        self._after = after
        self._monotonic = clocks.monotonic
        self._given_up = False

    def socket(self) -> Path | None:
        """The newest served socket, None if there is none."""
        for path in reversed(claim_sockets(self._folder)):
            if age(path) > self._after and is_answered(path):
                return path
        return None

    def give_up(self) -> None:
        """Stop waiting: waiting calls fail at once."""
        self._given_up = True

    async def call(self, method: str, request: Message, answer: type[Answer], seconds: float | None) -> Answer:
        """The successor's answer to ``method`` (a full path), once there is a successor.

        Raises ``NoSuccessor`` and ``grpc.aio.AioRpcError``.
        """
        until = self._monotonic() + (PATIENCE if seconds is None else seconds)
        while not self._given_up and (left := until - self._monotonic()) > 0:
            socket = self.socket()
            if socket is not None:
                try:
                    return await _asked(socket, method, request, answer, left)
                except grpc.aio.AioRpcError as error:
                    # A successor that ends has a successor, too; calls may be repeated.
                    if error.code() is not grpc.StatusCode.UNAVAILABLE:
                        raise
            await asyncio.sleep(LOOK)
        raise NoSuccessor("no other instance has taken over in time")


async def _asked(socket: Path, method: str, request: Message, answer: type[Answer], seconds: float) -> Answer:
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=CHANNEL) as channel:
        call = channel.unary_unary(method, request_serializer=_bytes, response_deserializer=answer.FromString)
        found: Answer = await call(request, timeout=seconds)
        return found


def _bytes(message: Message) -> bytes:
    return message.SerializeToString()
