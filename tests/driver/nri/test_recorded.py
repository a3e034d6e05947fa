"""The bytes of a real containerd, played back: what it sent is understood, and what it got is sent again.

``containerd-2.4.2.jsonl`` has one line for each write of a connection, by side: registration, a synchronization with a
running and an ended pod, and the life of the pod ``plain``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from driver.nri.framing import Message, MessageReader, MessageType, frames
from driver.nri.status import NriState
from protos.ttrpc.v1.ttrpc_pb2 import Request, Response
from tests.driver.nri.test_framing import reader_of
from tests.making.nri import running
from tests.waiting import eventually

RECORDED = [
    (side, bytes.fromhex(content))
    for side, content in map(json.loads, Path(__file__).with_name("containerd-2.4.2.jsonl").read_text().splitlines())
]


async def test_a_recorded_containerd_gets_the_answers_that_it_got(short_dir: Path) -> None:
    socket = short_dir / "nri.sock"
    received = bytearray()
    wanted = sum(len(content) for side, content in RECORDED if side == "plugin")

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for side, content in RECORDED:
            if side == "runtime":
                writer.write(content)
            else:
                received.extend(await reader.readexactly(len(content)))
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(play, socket), running(socket) as watched:
        status = await watched.reach(NriState.CONNECTED)
        assert status.runtime == "containerd 2.4.2+unknown"
        await eventually(lambda: len(received) == wanted)
        (listed,) = watched.sandboxes.listed
        assert [(each.pod, bool(each.netns), each.pid > 0, each.host_network) for each in listed] == [
            ("default/before", True, True, False),
            ("default/done", False, False, False),
        ]
        assert [[(one.name, one.running) for one in each.containers] for each in listed] == [[("main", True)], []]
        (plain,) = watched.sandboxes.seen.values()
        assert plain.pod == "default/plain"
        assert plain.netns.startswith("/var/run/netns/cni-")
        assert watched.sandboxes.ended == ["synchronize", f"run {plain.id}", f"stop {plain.id}"]
    sent = b"".join(content for side, content in RECORDED if side == "plugin")
    assert await told(bytes(received)) == await told(sent)


async def told(content: bytes) -> Sequence[tuple[int, int, object]]:
    """Every message that a plugin sent: its connection, its stream, and what it says."""
    readers: dict[int, MessageReader] = {}
    found: list[tuple[int, int, object]] = []
    async for connection, payload in frames(reader_of(content)):
        messages = readers.setdefault(connection, MessageReader()).feed(payload)
        found += [(connection, message.stream, meaning(message)) for message in messages]
    return found


def meaning(message: Message) -> object:
    if message.type == MessageType.RESPONSE:
        return Response.FromString(message.payload)
    request = Request.FromString(message.payload)
    return request.service, request.method, request.payload
