"""The two drivers that are measured, behind one face: the agent with both doors, and the floor."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from bench.dra.kubelet import DraKubelet, Driver
from bench.dra.server import NODE, Server
from bench.kubelet import BareKubelet, NothingCame, Registered
from bench.process import Measured, ProcessFailed, agent_command, agent_folders
from tests.cluster.rig.api import Object

PLUGIN_RESOURCE, CLAIMED_RESOURCE = "ostler.dev/rdma", "ostler.dev/gpu"
ADAPTERS = [f"ibp{number}s0" for number in (24, 64, 79, 94, 154, 192, 206, 220)]
"""The InfiniBand adapters of the node; by name, because this machine cannot tell whether the node itself uses them."""
RESOURCES: tuple[Object, ...] = (
    {"name": CLAIMED_RESOURCE, "door": "dra", "devices": {"kind": "gpu"}},
    {"name": PLUGIN_RESOURCE, "devices": {"kind": "rdma", "interfaces": ADAPTERS}},
)
"""One rule for each door: GPUs by claims, RDMA adapters by number."""


class DriverProcess:
    """A driver that is measured; one object is one start. ``async with`` starts and ends it."""

    def __init__(self, kubelet: DraKubelet, process: Measured) -> None:
        self.process = process
        self._kubelet = kubelet
        self._driver: Driver | None = None

    @property
    def driver(self) -> Driver:
        """Its registration."""
        assert self._driver is not None
        return self._driver

    async def __aenter__(self) -> Self:
        await self.process.start()
        try:
            await self._registered()
        except NothingCame as error:
            await self.process.stop()
            raise ProcessFailed(str(error), self.process.log) from error
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            await self.process.stop()
        finally:
            if self._driver is not None:
                await self._driver.close()

    async def _registered(self) -> None:
        """Wait until the kubelet has told it so; raises ``ProcessFailed`` at once when it ends before."""
        self._driver = await self.process.until(self._kubelet.driver())


class FloorDriver(DriverProcess):
    """The bare driver."""

    def __init__(self, kubelet: DraKubelet, server: Server, root: Path) -> None:
        command = [sys.executable, "-m", "bench.dra.floor", str(kubelet.root), str(server.kubeconfig), str(root)]
        root.mkdir(exist_ok=True)
        super().__init__(kubelet, Measured(command, {}, root / "floor.log"))


class AgentDriver(DriverProcess):
    """``ostler run`` below ``root`` with these ``resources``; registered when every door that has devices is.

    ``socket``: its own service.
    """

    def __init__(
        self,
        kubelet: DraKubelet,
        plugins: BareKubelet,
        kubeconfig: Path,
        root: Path,
        *,
        resources: Sequence[Object] = RESOURCES,
        flags: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        root.mkdir(exist_ok=True)
        self.socket = root / "agent.sock"
        settings = {
            "--config": str(_configuration(root / "config.yaml", resources)),
            "--node-name": NODE,
            "--kubeconfig": str(kubeconfig),
            **agent_folders(root, plugins.folder, kubelet.registry, self.socket),
            **(flags or {}),
        }
        super().__init__(kubelet, Measured(agent_command(settings), environment or {}, root / "agent.log"))
        self._plugins = plugins
        self._awaited = {str(resource["name"]) for resource in resources if resource.get("door") != "dra"}
        self._registered_plugins: dict[str, Registered] = {}

    def lists(self, resource: str) -> Registered:
        """The lists of a resource of the plugin door."""
        return self._registered_plugins[resource]

    async def __aexit__(self, *error: object) -> None:
        try:
            await super().__aexit__(*error)
        finally:
            for registered in self._registered_plugins.values():
                await registered.close()

    async def _registered(self) -> None:
        await super()._registered()
        while self._awaited - self._registered_plugins.keys():
            registered = await self._plugins.registration()
            self._registered_plugins[registered.resource] = registered


def _configuration(path: Path, resources: Sequence[Object]) -> Path:
    document = {"apiVersion": "ostler.dev/v1alpha1", "kind": "Config", "resources": list(resources)}
    path.write_text(json.dumps(document, indent=1))
    return path
