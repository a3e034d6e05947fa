"""The testbed of device plugins: an observing kubelet, the plugin, and a client of each resource that it serves.

The plugin goes on from rule to rule as long as it is registered. Before each rule the testbed looks: whatever the rule
before did, the plugin has to have all its resources registered again, else it is started anew in empty folders. With
only a socket there is neither kubelet nor process, and the rules that need them are not applicable.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.conformance.observing_kubelet import ObservedRegistration, ObservingKubelet
from sandbox.conformance.plugin_client import JudgedCallFailed, PluginClient
from sandbox.conformance.rule import NotReady, RuleBroken, RuleNotApplicable
from sandbox.conformance.subject import JudgedProgram, ProgramEnd

HEALTHY = "Healthy"
_NEVER_REGISTERS = "it never calls Register, only plugins_registry leads to it"


@dataclass(frozen=True, slots=True)
class ConformancePace:
    """Seconds: to register, also again (``patience``); for one call; without a new registration until all count as
    there (``quiet``); from SIGTERM to the end (``grace``); for which a kubelet that restarts is away (``away``).

    ``calls``: how many Allocate calls are the load, as many as a node of 1,000 devices gets.
    """

    patience: float = 20.0
    call: float = 10.0
    quiet: float = 1.0
    grace: float = 30.0
    away: float = 0.2
    calls: int = 1000


@dataclass(frozen=True)
class JudgedPlugin:
    """One resource of the plugin: a client, and how it registered (None: only its socket is known)."""

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

    async def healthy(self, at_least: int = 1) -> list[str]:
        """The ids of healthy devices in the list's order; raises ``RuleNotApplicable`` where there are too few."""
        ids = list(dict.fromkeys(device.ID for device in await self.devices() if device.health == HEALTHY))
        if len(ids) < at_least:
            raise RuleNotApplicable(f"{self.name} lists {_devices(len(ids))}; the rule needs {at_least}")
        return ids


class PluginTestbed:
    """``program`` on a node in ``root``, or what serves ``socket``; one of both is None."""

    def __init__(
        self, root: Path, program: JudgedProgram | None, pace: ConformancePace, socket: Path | None = None
    ) -> None:
        self.pace = pace
        self._root = root
        self._program = program
        self._socket = socket
        self._kubelet = ObservingKubelet(root, call_seconds=pace.call, away_seconds=pace.away)
        self._known: frozenset[str] = frozenset()
        self._running = False
        self._lost = False
        self._clients: dict[int, JudgedPlugin] = {}
        self._hopeless = ""
        self._calls_register = True

    @property
    def has_program(self) -> bool:
        """Whether there is a program to start, and not just a socket."""
        return self._program is not None

    @property
    def kubelet(self) -> ObservingKubelet:
        """The kubelet; raises ``RuleNotApplicable`` where there is none."""
        if self._program is None:
            raise RuleNotApplicable("it needs a kubelet that the plugin registers with; give the command, not a socket")
        return self._kubelet

    @property
    def program(self) -> JudgedProgram:
        """The plugin's process; raises ``RuleNotApplicable`` where only its socket is known."""
        if self._program is None:
            raise RuleNotApplicable("it needs the plugin's process; give the command, not a socket")
        return self._program

    async def prepare(self) -> None:
        """Have the plugin registered with all its resources; raises ``NotReady``."""
        if self._program is None:
            await self._check_socket()
            return
        if self._running and not self._lost and not self._program.ended() and await self._registered_again():
            return
        await self.begin()

    async def begin(self, *, kubelet: bool = True) -> None:
        """Start the plugin anew, in empty folders; ``kubelet``: with one, and wait until it is registered.

        A plugin that did not register at its first start is not started again. Raises ``NotReady``.
        """
        if self._hopeless:
            raise NotReady(self._hopeless)
        await self.discard()
        for folder in (self._kubelet.device_plugins, self._kubelet.registry):
            shutil.rmtree(folder, ignore_errors=True)
        self._kubelet.make_folders()
        self._kubelet.watches = True
        if kubelet:
            await self._kubelet.start()
        self._running, self._lost = True, False
        await self.program.start()
        if not kubelet:
            return
        await self._kubelet.until(lambda: self._kubelet.current() or self.program.ended(), self.pace.patience)
        if not self._kubelet.current():
            ended = self.program.ended()
            problem = f"the plugin {ended}" if ended else f"the plugin does not register: {self._why_not()}"
            self._hopeless = "" if self._known else problem
            raise NotReady(problem)
        if not self._known:
            await self._settle()
        elif not await self._registered_again():
            missing = ", ".join(sorted(self._known - self._kubelet.current().keys()))
            raise NotReady(f"the plugin does not register {missing} again after a new start: {self._why_not()}")

    async def discard(self) -> None:
        """End the plugin and the kubelet."""
        for plugin in self._clients.values():
            await plugin.client.close()
        self._clients.clear()
        if self._program is not None and self._running:
            self._running = False
            await self._program.stop()
        await self._kubelet.forget()

    async def plugins(self, *, after: int = 0) -> tuple[JudgedPlugin, ...]:
        """The resources in order of their names, with a client each; ``after``: registered after that number."""
        if self._socket is not None:
            if 0 not in self._clients:
                self._clients[0] = JudgedPlugin(str(self._socket), self._client(str(self._socket)), None)
            return (self._clients[0],)
        current = self.kubelet.current(after=after)
        return tuple(self._judged(current[name]) for name in sorted(current))

    def client(self, socket: str) -> PluginClient:
        """A further client of a socket; whoever asks closes it."""
        return self._client(socket)

    async def through_register(self) -> list[ObservedRegistration]:
        """The plugin's registrations by Register, if need be with a kubelet that does not watch its registry.

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

    async def registered_after(self, number: int, resources: Iterable[str] | None = None) -> str:
        """Wait until the resources (None: all) are registered after this one; what is missing, empty for nothing."""
        wanted = set(self._known if resources is None else resources)

        def missing() -> set[str]:
            return wanted - self.kubelet.current(after=number).keys()

        await self.kubelet.until(lambda: not missing() or self.program.ended(), self.pace.patience)
        if not missing():
            return ""
        self._lost = True
        if self.program.ended():
            return f"the plugin {self.program.ended()}"
        return f"{', '.join(sorted(missing()))} did not register again within {self.pace.patience:g} s"

    @property
    def resources(self) -> frozenset[str]:
        """The resources that have registered since the first start; empty before the first rule."""
        return self._known

    def remove_socket(self, path: str) -> None:
        """Remove a socket of the plugin, wherever the plugin sees it."""
        Path(path).unlink(missing_ok=True)

    async def end(self) -> tuple[ProgramEnd, list[Path]]:
        """End the plugin by SIGTERM; how it ended, and its sockets that are left."""
        before = set(_sockets(self.kubelet))
        ended = await self.program.terminate()
        self._running = False
        return ended, [path for path in _sockets(self.kubelet) if path in before]

    async def _registered_again(self) -> bool:
        """Whether all known resources are registered, or are so in time."""
        return await self._kubelet.until(lambda: self._known <= self._kubelet.current().keys(), self.pace.patience)

    async def _settle(self) -> None:
        """Wait until no further resource registers; these are the ones that count from now on."""
        while await self._kubelet.until(lambda: not self._known >= self._kubelet.current().keys(), self.pace.quiet):
            self._known |= self._kubelet.current().keys()

    async def _check_socket(self) -> None:
        (plugin,) = await self.plugins()
        if not await plugin.client.ready(self.pace.call):
            raise NotReady(f"nobody answers at {self._socket}; start the plugin, or correct the path")

    def _judged(self, registration: ObservedRegistration) -> JudgedPlugin:
        if registration.number not in self._clients:
            client = self._client(registration.socket)
            self._clients[registration.number] = JudgedPlugin(registration.resource, client, registration)
        return self._clients[registration.number]

    def _client(self, socket: str) -> PluginClient:
        return PluginClient(socket, self.pace.call)

    def _why_not(self) -> str:
        """Why no registration is usable, as far as it was seen."""
        problems = [each.problem or each.pending_problem or each.stream_problem for each in self._kubelet.registrations]
        problems += [f"{path}: {known.problem}" for path, known in self._kubelet.sockets.items()]
        found = "; ".join(dict.fromkeys(problem for problem in problems if problem))
        if found:
            return found
        if self._kubelet.registrations:
            return f"it registered, but sent no list within {self.pace.patience:g} s"
        return (
            f"it neither called Register on {self._kubelet.device_plugins}/kubelet.sock nor put a socket into "
            f"{self._kubelet.registry} within {self.pace.patience:g} s"
        )


def _devices(count: int) -> str:
    return {0: "no healthy device", 1: "one healthy device"}.get(count, f"{count} healthy devices")


def _sockets(kubelet: ObservingKubelet) -> list[Path]:
    """The plugin's sockets in the kubelet's folders, hidden ones too."""
    folders = (kubelet.device_plugins, kubelet.registry)
    found = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_socket()]
    return [path for path in found if path.name != "kubelet.sock"]
