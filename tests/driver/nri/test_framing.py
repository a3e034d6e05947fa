"""Frames and messages, cut anywhere, and what is not one."""

from __future__ import annotations

import asyncio
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.nri import framing
from driver.nri.framing import MAX_FRAME, MAX_MESSAGE, Message, MessageReader, MessageType, ProtocolError, frames, send

MESSAGES = st.lists(
    st.builds(
        Message,
        stream=st.integers(0, 2**32 - 1),
        type=st.sampled_from(sorted(MessageType)),
        payload=st.binary(max_size=40),
        flags=st.integers(0, 255),
    ),
    max_size=6,
)


class Buffer:
    """The part of a StreamWriter that is used."""

    def __init__(self) -> None:
        self.written = bytearray()

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None:
        pass


def reader_of(content: bytes, *, end: bool = True) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(content)
    if end:
        reader.feed_eof()
    return reader


async def read_frames(content: bytes) -> list[tuple[int, bytes]]:
    return [frame async for frame in frames(reader_of(content))]


@given(MESSAGES, st.data())
def test_messages_are_the_same_wherever_the_stream_is_cut(messages: list[Message], data: st.DataObject) -> None:
    whole = b"".join(message.packed() for message in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    reader = MessageReader()
    read: list[Message] = []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        read += reader.feed(whole[start:end])
    assert read == messages


@given(st.binary(max_size=60))
def test_random_bytes_are_messages_or_an_error_that_says_what_came(content: bytes) -> None:
    read: list[Message] = []
    try:
        read += MessageReader().feed(content)
    except ProtocolError as error:
        said = str(error)
    else:
        said = "it is well"
    assert said.startswith("it ")
    assert content.startswith(b"".join(message.packed() for message in read))


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=30)), max_size=5))
def test_frames_come_as_they_were_written(written: list[tuple[int, bytes]]) -> None:
    content = b"".join(pack(">II", connection, len(payload)) + payload for connection, payload in written)
    assert asyncio.run(read_frames(content)) == written


@given(st.integers(0, 20_000))
def test_what_is_sent_comes_back_in_frames_that_go_can_read(size: int) -> None:
    message = Message(7, MessageType.REQUEST, bytes(size))

    async def there_and_back() -> tuple[list[tuple[int, bytes]], list[Message]]:
        buffer = Buffer()
        await send(buffer, 2, message)  # type: ignore[arg-type]  # see Buffer
        sent = await read_frames(bytes(buffer.written))
        return sent, list(MessageReader().feed(b"".join(payload for _, payload in sent)))

    sent, read = asyncio.run(there_and_back())
    assert read == [message]
    assert all(connection == 2 and len(payload) <= 4096 for connection, payload in sent)


def test_the_largest_message_is_read_and_a_larger_one_is_not_stored() -> None:
    (largest,) = MessageReader().feed(Message(1, MessageType.REQUEST, bytes(MAX_MESSAGE)).packed())
    assert len(largest.payload) == MAX_MESSAGE
    with pytest.raises(ProtocolError, match=r"announced a message of 4194305 bytes; the limit is 4194304"):
        list(MessageReader().feed(pack(">IIBB", MAX_MESSAGE + 1, 1, 1, 0)))


def test_an_unknown_type_of_message_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="a message of the unknown type 9"):
        list(MessageReader().feed(pack(">IIBB", 0, 1, 9, 0)))


async def test_the_largest_frame_is_read_and_a_larger_one_is_not() -> None:
    assert await read_frames(pack(">II", 1, MAX_FRAME) + bytes(MAX_FRAME)) == [(1, bytes(MAX_FRAME))]
    with pytest.raises(ProtocolError, match=r"announced a frame of 4194315 bytes; the limit is 4194314"):
        await read_frames(pack(">II", 1, MAX_FRAME + 1))


@pytest.mark.parametrize("length", [1, 7, 8, 11])
async def test_an_end_in_the_middle_of_a_frame_is_an_error(length: int) -> None:
    with pytest.raises(ProtocolError, match="ended the connection in the middle of a frame"):
        await read_frames((pack(">II", 1, 4) + b"four")[:length])


async def test_a_frame_that_does_not_go_on_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "PATIENCE", 0.02)
    with pytest.raises(ProtocolError, match=r"a part of a frame and nothing more for 0.02 s"):
        async for _ in frames(reader_of(b"\0\0", end=False)):
            pass


async def test_a_peer_that_does_not_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(Buffer):
        async def drain(self) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(framing, "PATIENCE", 0.02)
    with pytest.raises(ProtocolError, match=r"has not read for 0.02 s"):
        await send(Full(), 1, Message(1, MessageType.RESPONSE, b""))  # type: ignore[arg-type]  # see Buffer
