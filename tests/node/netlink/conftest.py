"""A network namespace of the test's own, with somebody in it who watches."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from tests.node.watching import Shown, WatchingProcess


class Namespace(WatchingProcess):
    """``run`` and ``ip`` run a command inside; ``shows`` waits for what the watcher there sees."""

    async def ip(self, *words: str) -> None:
        await self.run("ip", *words)

    async def run(self, *words: str) -> None:
        command = ["nsenter", f"--net=/proc/{self._process.pid}/ns/net", *words]
        process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE)
        _, error = await process.communicate()
        assert process.returncode == 0, f"{' '.join(words)}: {error.decode()}"

    async def shows(self, condition: Callable[[Shown], bool]) -> Shown:
        """What the watcher sees, once it is as it should be; it may be so already."""
        if self.latest and condition(self.latest):
            return self.latest
        return await self.writes(condition)


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
    async def make(*arguments: str, module: str = "tests.node.netlink.watcher") -> AsyncIterator[Namespace]:
        process = await asyncio.create_subprocess_exec(
            "unshare", "--net", sys.executable, "-m", module, *arguments, stdout=subprocess.PIPE
        )
        made = Namespace(process)
        try:
            await made.shows(bool)
            yield made
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    return make
