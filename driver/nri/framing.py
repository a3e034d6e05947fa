"""Bytes on an NRI socket: frames of the multiplexer, and ttRPC messages in the byte streams that they carry.

A frame is the number of a connection and a length (both 32 bits, big-endian), then its payload. Each connection is a
stream of bytes: a ttRPC message may begin in one frame and end in another. A message is a header of 10 bytes (length,
stream, type, flags), then its payload. Lengths are bounded before anything is stored, and a frame that has begun must
end in time, so a peer that sends nonsense costs at most one message of memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

MAX_MESSAGE = 4 << 20
"""Bytes of a ttRPC message without its header."""
PATIENCE = 10.0
"""Seconds in which a frame that has begun must be complete, and in which the peer must read what is sent."""

_FRAME = Struct(">II")
_MESSAGE = Struct(">IIBB")
MAX_FRAME = MAX_MESSAGE + _MESSAGE.size
WRITTEN_FRAME = 4096
"""Bytes of a frame's payload that is sent: Go's ttRPC reads each frame into a buffer of this size."""


class ProtocolError(Exception):
    """The peer does not speak the protocol; the text says what it sent. The connection is of no use any more."""


class MessageType(IntEnum):
    """Types of ttRPC messages; streams of data are not used by NRI."""

    REQUEST = 1
    RESPONSE = 2
    DATA = 3


_TYPES = frozenset(int(each) for each in MessageType)


class Message(NamedTuple):
    """A ttRPC message. ``stream`` numbers the call: the caller chooses odd, growing numbers."""

    stream: int
    type: int
    payload: bytes
    flags: int = 0

    def packed(self) -> bytes:
        """The message with its header."""
        return _MESSAGE.pack(len(self.payload), self.stream, self.type, self.flags) + self.payload


class MessageReader:
    """Cuts the bytes of one connection into messages."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def feed(self, received: bytes) -> Iterator[Message]:
        """The messages that these bytes complete; raises ``ProtocolError`` at a header that cannot be one."""
        kept = self._kept
        kept += received
        while len(kept) >= _MESSAGE.size:
            length, stream, kind, flags = _MESSAGE.unpack_from(kept)
            if length > MAX_MESSAGE:
                raise ProtocolError(f"it announced a message of {length} bytes; the limit is {MAX_MESSAGE}")
            if kind not in _TYPES:
                raise ProtocolError(f"it sent a message of the unknown type {kind}")
            end = _MESSAGE.size + length
            if len(kept) < end:
                return
            payload = bytes(kept[_MESSAGE.size : end])
            del kept[:end]
            yield Message(stream, kind, payload, flags)


async def frames(reader: asyncio.StreamReader) -> AsyncIterator[tuple[int, bytes]]:
    """Connection and payload of each frame until the peer ends the connection; raises ``ProtocolError``."""
    while first := await reader.read(1):
        try:
            async with asyncio.timeout(PATIENCE):
                connection, length = _FRAME.unpack(first + await reader.readexactly(_FRAME.size - 1))
                if length > MAX_FRAME:
                    raise ProtocolError(f"it announced a frame of {length} bytes; the limit is {MAX_FRAME}")
                payload = await reader.readexactly(length)
        except asyncio.IncompleteReadError:
            raise ProtocolError("it ended the connection in the middle of a frame") from None
        except TimeoutError:
            raise ProtocolError(f"it sent a part of a frame and nothing more for {PATIENCE:g} s") from None
        yield connection, payload


async def send(writer: asyncio.StreamWriter, connection: int, message: Message) -> None:
    """Send a message as one or more frames; raises ``ProtocolError`` if the peer does not read."""
    packed = message.packed()
    for start in range(0, len(packed), WRITTEN_FRAME):
        part = packed[start : start + WRITTEN_FRAME]
        writer.write(_FRAME.pack(connection, len(part)) + part)
    try:
        async with asyncio.timeout(PATIENCE):
            await writer.drain()
    except TimeoutError:
        raise ProtocolError(f"it has not read for {PATIENCE:g} s") from None
