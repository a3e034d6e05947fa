"""A plugin of somebody else, as a process on a node: the one that people forget to remove.

Arguments: ``register`` or ``registry``, the way in which the kubelet learns of it, and its device ids.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.plugin.foreigners import Foreign, in_registry, registering

ROOT = Path("/var/lib/kubelet")
SERVES = "the plugin serves"
"""Written as soon as the kubelet can know of it."""


async def serve(way: str, ids: list[str]) -> None:
    """Serve until killed."""
    plugin = Foreign(*ids, prefers=True)
    async with registering(ROOT, plugin) if way == "register" else in_registry(ROOT, plugin):
        sys.stdout.write(f"{SERVES}\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2:]))
