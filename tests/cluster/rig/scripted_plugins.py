"""Plugins that do the same in front of every kubelet: one for each way in which a plugin may answer.

As a program it serves them to the kubelet of the node on which it runs, until it is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from tests.sandbox.kubelet.scripted_plugin import PluginScript, ScriptedPlugin, devices

DOMAIN, VENDOR = "a.example", "v.example"
DEVICES = 4
"""Of each plugin."""
SCRIPTS: Final = {
    "lowest": PluginScript(preferred_available=True, preferred="lowest", pre_start_required=True),
    "highest": PluginScript(preferred_available=True, preferred="highest"),
    "free": PluginScript(),
    "two": PluginScript(preferred_available=True, preferred="lowest", allocate="two"),
    "bare": PluginScript(preferred_available=True, preferred="lowest", allocate="bare"),
    "bogus": PluginScript(preferred_available=True, preferred="bogus"),
    "short": PluginScript(preferred_available=True, preferred="short"),
    "long": PluginScript(preferred_available=True, preferred="long"),
    "silent": PluginScript(preferred_available=True, preferred="empty"),
    "broken": PluginScript(preferred_available=True, preferred="error"),
    "refuses": PluginScript(allocate="error"),
    "nothing": PluginScript(allocate="empty"),
}
"""By the name of the resource, without its domain, what its plugin answers."""
CHOSEN: Final = frozenset({"lowest", "highest", "two", "bare"})
"""Those whose plugin decides alone which devices a container gets; of the others the kubelet takes any.

So it does of a preference that is too long.
"""


def resource(kind: str) -> str:
    """The name of the resource that a plugin serves."""
    return f"{DOMAIN}/{kind}"


def ids(kind: str) -> list[str]:
    """The ids of a plugin's devices."""
    return [each.ID for each in devices(f"{kind}-", DEVICES)]


@asynccontextmanager
async def serving(root: Path) -> AsyncIterator[dict[str, ScriptedPlugin]]:
    """All of them, with their sockets where the kubelet of that root looks for them."""
    made: dict[str, ScriptedPlugin] = {}
    async with AsyncExitStack() as stack:
        for number, (kind, script) in enumerate(SCRIPTS.items()):
            nodes = [0] if kind == "free" else None
            path = root / "plugins_registry" / f"scripted-{number}.sock"
            plugin = ScriptedPlugin(resource(kind), path, devices(f"{kind}-", DEVICES, nodes), script)
            await plugin.start()
            stack.push_async_callback(plugin.stop)
            made[kind] = plugin
        yield made


async def _serve() -> None:
    async with serving(Path("/var/lib/kubelet")):
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    asyncio.run(_serve())
