"""A network namespace of the test's own, with somebody in it who watches."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import pytest

Shown = dict[str, Any]


class Namespace:
    """``run`` and ``ip`` run a command inside; ``shows`` waits for a line of the watcher that fulfils a condition."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.latest: Shown = {}
        self.lines = 0

    async def ip(self, *words: str) -> None:
        await self.run("ip", *words)

    async def run(self, *words: str) -> None:
        command = ["nsenter", f"--net=/proc/{self._process.pid}/ns/net", *words]
        process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE)
        _, error = await process.communicate()
        assert process.returncode == 0, f"{' '.join(words)}: {error.decode()}"

    @contextmanager
    def held(self) -> Iterator[None]:
        """The watcher reads nothing while this lasts."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    async def shows(self, condition: Callable[[Shown], bool], within: float = 10.0) -> Shown:
        """The last line that the watcher wrote, once it is as it should be; fails after ``within`` seconds."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(within):
                while not self.latest or not condition(self.latest):
                    line = await self._process.stdout.readline()
                    assert line, "the watcher has ended"
                    self.latest = json.loads(line)
                    self.lines += 1
        except TimeoutError:
            pytest.fail(f"not seen within {within} s; last seen: {self.latest}")
        return self.latest


@pytest.fixture
def namespace() -> Callable[..., AbstractAsyncContextManager[Namespace]]:
    """Makes namespaces; skips where they cannot be made."""
    missing = [tool for tool in ("unshare", "nsenter", "ip") if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root rights and {', '.join(missing) or 'nothing else'}")
    probe = ["unshare", "--net", "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1"]
    if subprocess.run(probe, stderr=subprocess.PIPE, check=False).returncode != 0:
        pytest.skip("needs the right to make network namespaces, and veth in the kernel")

    @asynccontextmanager
    async def make(*arguments: str) -> AsyncIterator[Namespace]:
        process = await asyncio.create_subprocess_exec(
            "unshare", "--net", sys.executable, "-m", "tests.netlink.watcher", *arguments, stdout=subprocess.PIPE
        )
        made = Namespace(process)
        try:
            await made.shows(lambda shown: "links" in shown, within=10)
            yield made
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    return make
