"""The real grpcurl, asked as people ask it."""

from __future__ import annotations

import asyncio
import functools
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.components.build import tools
from tests.cluster.components.toolchain import ToolchainMissing


@functools.cache
def grpcurl() -> Path:
    """The tests' own grpcurl; skips where it is not there and cannot be built."""
    try:
        return tools() / "grpcurl"
    except (ToolchainMissing, subprocess.CalledProcessError) as error:
        pytest.skip(f"grpcurl cannot be built: {error}")


@dataclass(frozen=True, slots=True)
class _Answer:
    """What grpcurl said and its exit code (0 for OK, 64 and the gRPC code for a status)."""

    code: int
    out: str
    err: str


async def ask(socket: Path, *words: str, data: object = None) -> _Answer:
    """``grpcurl`` with these words behind the socket; ``data`` is the request."""
    process = await _started(socket, words, data)
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode is not None
    return _Answer(process.returncode, out.decode(), err.decode())


async def first(socket: Path, method: str, *, data: object = None) -> str:
    """The first message of a stream, from a client that goes away then."""
    process = await _started(socket, (method,), data)
    assert process.stdout is not None
    lines: list[str] = []
    try:
        async with asyncio.timeout(60):
            while not lines or lines[-1] not in ("}\n", ""):
                lines.append((await process.stdout.readline()).decode())
    finally:
        process.terminate()
        await process.communicate()
    return "".join(lines)


async def services(socket: Path) -> list[str]:
    """What reflection lists."""
    answer = await ask(socket, "list")
    assert answer.code == 0, answer.err
    return answer.out.split()


async def methods(socket: Path, service: str) -> list[str]:
    """The full names of a service's methods, as reflection tells them."""
    answer = await ask(socket, "list", service)
    assert answer.code == 0, answer.err
    return answer.out.split()


async def _started(socket: Path, words: tuple[str, ...], data: object) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    command = [str(grpcurl()), "-plaintext", "-max-time", "15"]
    command += ["-d", json.dumps(data)] if data is not None else []
    return await asyncio.create_subprocess_exec(*command, f"unix://{socket}", *words, stdout=pipe, stderr=pipe)
