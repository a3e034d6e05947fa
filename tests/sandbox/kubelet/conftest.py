"""A node with an embedded kubelet and scripted plugins, all on real sockets in a short directory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.kubelet.events import EventStream, KubeletEvent
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pods import Container, Kind, Pod
from tests.sandbox.kubelet.scripted_plugin import PluginScript, ScriptedPlugin, register

GPU = "a.example/gpu"
NIC = "b.example/nic"


class KubeletNode:
    """Starts kubelets and plugins under ``root`` and ends them all."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._kubelets: list[Kubelet] = []
        self._plugins: list[ScriptedPlugin] = []

    async def kubelet(self, *, pods: Sequence[Pod] = (), **settings: Any) -> Kubelet:
        """A running kubelet that reconciles every 50 ms; ``pods`` ran before it."""
        kubelet = Kubelet(self.root, **{"reconcile_interval": 0.05, **settings})
        self._kubelets.append(kubelet)
        await kubelet.start(pods=pods)
        return kubelet

    async def plugin(
        self,
        devices: Sequence[api_pb2.Device],
        *,
        resource: str = GPU,
        door: Literal["register", "watcher"] | None = "register",
        name: str = "p.sock",
        script: PluginScript | None = None,
    ) -> ScriptedPlugin:
        """A plugin that serves, and has registered unless ``door`` is None; the watcher's door is only opened."""
        folder = self.root / ("plugins_registry" if door == "watcher" else "device-plugins")
        plugin = ScriptedPlugin(resource, folder / name, list(devices), script or PluginScript())
        self._plugins.append(plugin)
        await plugin.start()
        if door == "register":
            assert await register(folder, resource, name) == ""
        return plugin

    async def close(self) -> None:
        """End everything."""
        for kubelet in self._kubelets:
            await kubelet.stop()
        for plugin in self._plugins:
            await plugin.stop()


@pytest.fixture
async def node(short_dir: Path) -> AsyncIterator[KubeletNode]:
    node = KubeletNode(short_dir)
    yield node
    await node.close()


async def next_event(stream: EventStream, *kinds: type[KubeletEvent]) -> Any:
    """The next event of these kinds."""
    return await anext(event async for event in stream if isinstance(event, kinds))


def pod(uid: str, count: int = 1, *, resource: str = GPU, kind: Kind = "app") -> Pod:
    """A pod with one container ``c`` that wants ``count`` devices."""
    return Pod(uid, uid, "default", (Container("c", kind, {resource: count}),))
