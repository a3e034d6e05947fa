"""An agent, or a part of one, in this process; the agent is at the kubelet below a folder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from node.inventory.recordings.source import RecordedSource
from ostler.agent.agent import Agent
from ostler.agent.edges import Edges, Notifier
from ostler.config.load import load
from ostler.config.settings import Settings
from sandbox.nodes import path


def settings(root: Path, **flags: str) -> Settings:
    given = {
        "--kubelet-device-plugin-dir": str(root / "device-plugins"),
        "--kubelet-registry-dir": str(root / "plugins_registry"),
        "--state-dir": str(root / "state"),
        "--socket": str(root / "run" / "ostler.sock"),
        "--http": "off",
        **{f"--{name.replace('_', '-')}": text for name, text in flags.items()},
    }
    return load(None, given, {}).settings


def agent(root: Path, name: str = "h100-sxm-8", **flags: str) -> Agent:
    """An agent on this recorded node."""
    made = settings(root, **flags)
    return Agent(made, [RecordedSource(path(name))], lambda: made, Edges(notifier=Notifier({})))


@asynccontextmanager
async def running_part(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run a part with a thread until the end of the block, which does not wait for the thread."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        begun = time.monotonic()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert time.monotonic() - begun < 15, "the end waits for nobody"
