"""The testbed of device plugins, with a client of each resource that the plugin serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.conformance.observed import ObservedRegistration
from sandbox.conformance.plugin_client import JudgedCallFailed, PluginClient
from sandbox.conformance.rule import CannotJudge, RuleBroken, RuleNotApplicable
from sandbox.conformance.subject import JudgedProgram
from sandbox.conformance.testbed import ConformancePace, ProgramTestbed

HEALTHY = "Healthy"
_NEVER_REGISTERS = "it never calls Register, only plugins_registry leads to it"


@dataclass(frozen=True)
class JudgedPlugin:
    """One resource of the plugin: a client, and its registration (None where only its socket is known)."""

    name: str
    client: PluginClient
    registration: ObservedRegistration | None

    async def devices(self) -> list[api_pb2.Device]:
        """The devices of the kubelet's first message, or of a stream of our own where there is no kubelet.

        Raises ``RuleBroken``.
        """
        if self.registration is not None:
            return list(self.registration.first_message.devices)
        return await self.fresh_devices()

    async def fresh_devices(self) -> list[api_pb2.Device]:
        """The devices of a new stream's first message; raises ``RuleBroken``."""
        try:
            return list((await self.client.first_list()).devices)
        except JudgedCallFailed as error:
            raise RuleBroken(f"{self.name}: {error}") from error

    async def options(self) -> api_pb2.DevicePluginOptions:
        """The answer to GetDevicePluginOptions; raises ``RuleBroken``."""
        try:
            return await self.client.options()
        except JudgedCallFailed as error:
            raise RuleBroken(f"{self.name}: {error}") from error

    async def healthy(self, at_least: int = 1) -> list[str]:
        """The ids of healthy devices in the list's order; raises ``RuleNotApplicable`` where there are too few."""
        ids = list(dict.fromkeys(device.ID for device in await self.devices() if device.health == HEALTHY))
        if len(ids) < at_least:
            raise RuleNotApplicable(f"{self.name} lists {_devices(len(ids))}; the rule needs {at_least}")
        return ids


class PluginTestbed(ProgramTestbed):
    """``program`` on a node in ``root``, or what serves ``socket``; one of both is None.

    ``change`` makes a device of the plugin change; it raises ``CannotJudge`` if that fails. None: nobody can.
    """

    def __init__(
        self,
        root: Path,
        program: JudgedProgram | None,
        pace: ConformancePace,
        *,
        socket: Path | None = None,
        change: Callable[[], Awaitable[None]] | None = None,
        folders: Sequence[Path] = (),
    ) -> None:
        super().__init__(root, program, pace, "DevicePlugin", folders=folders)
        self.change = change
        self._socket = socket
        self._clients: dict[int, JudgedPlugin] = {}
        self._calls_register = True

    async def plugins(self, *, after: int = 0) -> tuple[JudgedPlugin, ...]:
        """The resources in order of their names, with a client each; ``after``: registered after that number."""
        if self._socket is not None:
            if 0 not in self._clients:
                self._clients[0] = JudgedPlugin(str(self._socket), self.client(str(self._socket)), None)
            return (self._clients[0],)
        current = self.kubelet.current(after=after)
        return tuple(self._judged(current[name]) for name in sorted(current))

    def client(self, socket: str) -> PluginClient:
        """A further client of a socket; the caller closes it."""
        return PluginClient(socket, self.pace.call)

    async def through_register(self) -> list[ObservedRegistration]:
        """The plugin's registrations by Register, made by a kubelet that does not watch its registry if need be.

        Raises ``RuleNotApplicable`` for a plugin that never calls Register.
        """
        if not any(each.door == "register" for each in self.kubelet.current().values()):
            if not self._calls_register:
                raise RuleNotApplicable(_NEVER_REGISTERS)
            last = await self.kubelet.restart(watches=False)
            missing = await self.registered_after(last)
            if missing:
                self._calls_register = any(each.number > last for each in self.kubelet.registrations)
                await self.discard()
                raise RuleBroken(missing) if self._calls_register else RuleNotApplicable(_NEVER_REGISTERS)
        return [each for each in self.kubelet.registrations if each.door == "register"]

    async def _check_socket(self) -> None:
        (plugin,) = await self.plugins()
        if not await plugin.client.ready(self.pace.call):
            raise CannotJudge(f"nobody answers at {self._socket}; start the plugin, or correct the path")

    async def _close_clients(self) -> None:
        for plugin in self._clients.values():
            await plugin.client.close()
        self._clients.clear()

    def _judged(self, registration: ObservedRegistration) -> JudgedPlugin:
        if registration.number not in self._clients:
            client = self.client(registration.socket)
            self._clients[registration.number] = JudgedPlugin(registration.resource, client, registration)
        return self._clients[registration.number]


def _devices(count: int) -> str:
    return {0: "no healthy device", 1: "one healthy device"}.get(count, f"{count} healthy devices")
