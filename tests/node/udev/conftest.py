"""Processes of the udev tests: the test bed, and the watcher that sees it (or the real machine)."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.node.watching import Shown, WatchingProcess

PRELOAD = "libumockdev-preload.so.0"


class UdevBed:
    """The test bed's process; methods are those of ``tests.node.udev.testbed``."""

    def __init__(self, process: asyncio.subprocess.Process, root: Path) -> None:
        self._process = process
        self.root = root

    @property
    def environment(self) -> dict[str, str]:
        """What another process needs to see the mocked machine."""
        return {**os.environ, "LD_PRELOAD": PRELOAD, "UMOCKDEV_DIR": str(self.root)}

    async def add(self, subsystem: str, name: str, parent: str, **attributes: str) -> str:
        """Make a device below another one and send its event; returns its path."""
        return str(await self._do("add", subsystem, name, parent, attributes))

    async def write(self, path: str, text: str) -> None:
        await self._do("write", path, text)

    async def link(self, path: str, target: str | None) -> None:
        await self._do("link", path, target)

    async def uevent(self, path: str, action: str) -> None:
        await self._do("uevent", path, action)

    async def remove(self, path: str) -> None:
        await self._do("remove", path)

    async def _do(self, name: str, *arguments: object) -> object:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, *arguments]).encode() + b"\n")
        await self._process.stdin.drain()
        line = await self._process.stdout.readline()
        assert line, f"the test bed ended at {name}{arguments}"
        return json.loads(line)


class UdevMachine(WatchingProcess):
    """The watcher on the mocked or the real machine."""

    async def sees(self, condition: Callable[[Shown], object], within: float = 120.0) -> Shown:
        """``writes``, of the facts; the scan that is waited for must begin after this call's change."""
        return await self.writes(lambda shown: "facts" in shown and condition(shown["facts"]), within)


@asynccontextmanager
async def _process(module: str, *arguments: str, env: dict[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *arguments,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        limit=1 << 24,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        # What is left in the pipes is of no interest, and a closed pipe must not be written to at the end.
        await process.communicate()


@pytest.fixture
async def bed() -> AsyncIterator[UdevBed]:
    if ctypes.util.find_library("umockdev") is None or shutil.which("umockdev-wrapper") is None:
        pytest.skip("needs libumockdev0 and umockdev")
    async with _process("tests.node.udev.testbed", env={**os.environ, "LD_PRELOAD": PRELOAD}) as process:
        assert process.stdout is not None
        root = (await process.stdout.readline()).decode().strip()
        assert root, "the test bed did not start"
        yield UdevBed(process, Path(root))


@asynccontextmanager
async def watching(
    *arguments: str, env: dict[str, str] | None = None, module: str = "tests.node.udev.watcher"
) -> AsyncIterator[UdevMachine]:
    """The watcher, once it listens."""
    async with _process(module, *arguments, env=env or dict(os.environ)) as process:
        watcher = UdevMachine(process)
        shown = await watcher.writes(lambda shown: "listening" in shown)
        assert shown["listening"] == "kernel"
        yield watcher


@pytest.fixture
async def watcher(bed: UdevBed) -> AsyncIterator[UdevMachine]:
    async with watching(env=bed.environment) as made:
        yield made
