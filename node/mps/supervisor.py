"""Keeps an MPS control daemon running for every resource whose shares are in use, and no longer (``node.mps.service``).

Before a GPU's compute mode is changed, the mode that it had is on disk, with the daemon's process: after a kill, the
next agent takes the daemon over, or sets the mode back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping

from node.clocks import Clocks
from node.events import EventBus, EventRecorder
from node.mps.daemon import MpsDaemon, MpsDevice, MpsError, MpsHome, MpsResource, hindrance
from node.mps.modes import ExclusiveModes, MpsRecord
from node.mps.processes import MpsProcess, find_daemons, find_process, served_devices
from node.mps.reports import MpsMetrics, MpsReports
from node.mps.service import MpsHolders, MpsKeeper, MpsPace, MpsParts

log = logging.getLogger("ostler.mps")

_EARLIER = "MPS of an earlier agent"


class MpsSupervisor:
    """Runs the daemons; for the event loop. ``on_changed``: called when the faults have changed."""

    def __init__(
        self,
        home: MpsHome,
        modes: ExclusiveModes,
        record: MpsRecord,
        *,
        clocks: Clocks,
        events: EventRecorder,
        on_changed: Callable[[], None],
        bus: EventBus | None = None,
        metrics: MpsMetrics | None = None,
        pace: MpsPace | None = None,
        owns: Callable[[str], bool] = lambda name: "/" in name,
    ) -> None:
        """``modes``: one object for all supervisors of the process.

        ``bus``: publishes a ``HealthEvent`` for every device whose pods have lost their server.
        ``metrics``: where it is counted; other supervisors may count there as well.

        ``owns``: whether a daemon of this name belongs to this supervisor; by default those of resources do."""
        self._home = home
        self._modes = modes
        self._record = record
        self._reports = MpsReports(clocks, events, bus or EventBus(), metrics or MpsMetrics())
        self._has_ended = asyncio.Event()
        self._parts = MpsParts(home, self._modes, record, self._reports, clocks, pace or MpsPace(), self._has_ended)
        self._on_changed = on_changed
        self._owns = owns
        self._has_begun = asyncio.Event()
        self._is_capable = False
        self._services: dict[str, MpsKeeper] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._holders = MpsHolders()
        self._group: asyncio.TaskGroup | None = None

    def use(self, resources: Iterable[MpsResource]) -> None:
        """Serve these resources from now on; the daemon of a missing one runs until its last share is given back."""
        named = {resource.name: resource for resource in resources if resource.devices}
        for name, service in self._services.items():
            service.want(named.get(name))
        for name, resource in named.items():
            if name not in self._services:
                fault = self._hindrance()
                self._services[name] = MpsKeeper(resource, self._parts, self._holders, fault, self._on_changed)
                self._reports.metrics.begin(name)
                self._begin(name)

    def _hindrance(self) -> str:
        """Why no daemon can run here. Once one could, the start of each finds out, which does not block the loop."""
        if self._is_capable:
            return ""
        found = hindrance(self._home)
        self._is_capable = not found
        return found

    def hold(self, holders: MpsHolders) -> None:
        """Note the holders of shares."""
        if holders != self._holders:
            self._holders = holders
            for service in self._services.values():
                service.hold(holders)

    def faults(self) -> Mapping[str, str]:
        """Why devices cannot be shared at the moment, by device name."""
        found: dict[str, str] = {}
        for service in self._services.values():
            found |= service.faults()
        return found

    def is_ready(self, name: str) -> bool:
        """Whether shares of the resource can be allocated at once; also for a resource without MPS."""
        service = self._services.get(name)
        return service is None or service.is_ready

    def give(self, name: str) -> None:
        """A share of the resource is allocated now; see ``MpsKeeper.give``."""
        service = self._services.get(name)
        if service is not None:
            service.give()

    async def running(self) -> tuple[MpsResource, ...]:
        """The daemons of ours that run, also those of earlier agents, with their devices and without limits."""
        return tuple(
            MpsResource(name, tuple(MpsDevice(uuid, uuid) for uuid in sorted(uuids)))
            for name, _, uuids in await asyncio.to_thread(self._found)
        )

    def _found(self) -> list[tuple[str, MpsProcess, frozenset[str]]]:
        """The daemons of ours that run, with the UUIDs of their devices; blocks."""
        found = find_daemons(self._home.root, self._home.proc)
        return [
            (name, process, served_devices(process, self._home.proc) or frozenset())
            for name, process in found
            if self._owns(name)
        ]

    async def ready(self, name: str) -> None:
        """Return when the daemon of the resource runs; raises ``MpsError`` if it fails to start."""
        service = self._services.get(name)
        if service is not None:
            await service.ready()

    async def stopped(self, name: str) -> None:
        """Return when no daemon of the resource runs any more; nobody may use the resource or have a share of it.

        First waits until ``run`` has taken over the daemons of an earlier agent.
        """
        await self._has_begun.wait()
        task = self._tasks.get(name)
        if task is not None:
            await asyncio.wait({task})

    async def run(self) -> None:
        """Supervise until cancelled; then daemons without shares are stopped, and others left to the next agent."""
        fault = await asyncio.to_thread(self._record.read)
        if fault:
            await self._rebuild(fault)
        await self._tidy()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._has_begun.set()
                for name in self._services:
                    self._begin(name)
                await asyncio.Event().wait()
        finally:
            self._group = None
            self._has_ended.set()
            for service in self._services.values():
                await service.end()

    def _begin(self, name: str) -> None:
        if self._group is not None and name not in self._tasks:
            self._tasks[name] = self._group.create_task(self._keep(name), name=f"MPS of {name}")

    async def _keep(self, name: str) -> None:
        service = self._services[name]
        while True:
            await service.run()
            await self._clear(service)
            if not service.wanted:
                break
        del self._services[name], self._tasks[name]
        self._on_changed()

    async def _rebuild(self, fault: str) -> None:
        """Make an unusable record again from the daemons that run: pods may work with them."""
        fix = "'ostler doctor compute-mode' names GPUs that were left in another compute mode"
        self._reports.failed(_EARLIER, f"{fault}; ostler takes over the daemons that run; {fix}")
        for name, process, uuids in await asyncio.to_thread(self._found):
            self._record.rebuild(name, process, uuids)
        try:
            await asyncio.to_thread(self._record.write)
        except MpsError as error:
            self._reports.failed(_EARLIER, str(error))

    async def _tidy(self) -> None:
        """Take up daemons that no rule needs any more, end unrecorded ones, and set the other GPUs' modes back."""
        for name, process in tuple(self._record.daemons.items()):
            if name not in self._services:
                await self._keep_on(name, process)
        for name, process, _ in await asyncio.to_thread(self._found):
            # Killed between the start of a daemon and the record of it.
            known = self._record.daemons.get(name)
            if known is None or find_process(known.pid, self._home.proc) != known:
                await self._end(name, process)
        await self._remove_left()
        served = {device.uuid for service in self._services.values() for device in service.resource.devices}
        try:
            left = [uuid for uuid in self._record.modes if uuid not in served]
            await self._modes.give_back("", self._record, left)
        except MpsError as error:
            self._reports.failed(_EARLIER, str(error))

    async def _keep_on(self, name: str, process: MpsProcess) -> None:
        """Keep a daemon of an earlier agent until its last share is given back; remove one that does not answer."""
        daemon = MpsDaemon(MpsResource(name, ()), self._home)
        is_running = await daemon.adopt(process)
        if name in self._services:
            return  # Wanted meanwhile: the part that serves it takes the daemon over.
        if not is_running:
            del self._record.daemons[name]
            self._reports.left(name, await daemon.stop())
            return
        service = MpsKeeper(daemon.resource, self._parts, self._holders, "", self._on_changed)
        service.want(None)
        self._services[name] = service
        self._reports.metrics.begin(name)

    async def _end(self, name: str, process: MpsProcess) -> None:
        """End a daemon of an earlier agent that nobody needs, and remove its folders."""
        daemon = MpsDaemon(MpsResource(name, ()), self._home)
        if await daemon.adopt(process):
            self._reports.unneeded(name)
        self._reports.left(name, await daemon.stop())

    async def _remove_left(self) -> None:
        """Unmount and remove what an agent left that was killed before it had started the daemon."""
        with contextlib.suppress(OSError):
            for name in await asyncio.to_thread(self._home.storage.names):
                if self._owns(name) and name not in self._services:
                    self._reports.left(name, await MpsDaemon(MpsResource(name, ()), self._home).stop())

    async def _clear(self, service: MpsKeeper) -> None:
        """Remove everything of a resource that is no longer served, however its last daemon ended."""
        resource = service.resource
        try:
            await self._modes.give_back(resource.name, self._record, [device.uuid for device in resource.devices])
        except MpsError as error:
            self._reports.failed(resource.name, str(error))
        self._reports.left(resource.name, await MpsDaemon(resource, self._home).stop())
