"""Keeps an MPS control daemon running for every resource whose shares are in use, and no longer.

A daemon is started with the first need (somebody asks for a share, or pods have some when the agent starts) and stopped
when no share has been in use for ``linger`` seconds. What fails is tried again with growing pauses, also while nobody
asks, so that a resource comes back by itself.

Before a GPU's compute mode is changed, the mode that it had is on disk, with the daemon's process: after a kill, the
next agent takes the daemon over, or sets the mode back. Devices change only while no share of the resource is in use;
until then a new GPU is withheld.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from node.clocks import SELDOM, Clocks
from node.events import EventBus, EventSink
from node.inventory.nvidia.compute_modes import ComputeModeError
from node.mps.daemon import MpsDaemon, MpsError, MpsHome, MpsResource, hindrance
from node.mps.modes import ComputeModes, ExclusiveModes, MpsRecord
from node.mps.processes import MpsProcess, find_daemons, find_process
from node.mps.reports import MOST_NAMED, MpsMetrics, MpsReports
from node.values import Value, value

log = logging.getLogger("ostler.mps")

_ENDED = "the MPS control daemon ended"


@value
class MpsPace(Value):
    """Seconds: between looks at a running daemon, from the last share to the stop, and pauses after failures."""

    look: float = SELDOM
    linger: float = 5.0
    first_pause: float = 1.0
    longest_pause: float = 60.0


@value
class MpsHolders(Value):
    """Who has shares: pods and claims by the resource's name. ``known``: whether these are all of them."""

    by_resource: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    known: bool = False


@dataclass
class _Service:
    """One resource: what is wanted of its daemon, and how it is."""

    resource: MpsResource
    daemon: MpsDaemon | None = None
    task: asyncio.Task[None] | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    fault: str = ""
    waiting: int = 0
    """Callers of ``ready`` that wait."""
    servers: frozenset[int] = frozenset()
    wanted: bool = True
    """Whether a rule shares this resource by MPS."""


class MpsSupervisor:
    """Runs the daemons; for the event loop. ``on_changed``: faults are others now."""

    def __init__(
        self,
        home: MpsHome,
        modes: ComputeModes,
        record: MpsRecord,
        *,
        clocks: Clocks,
        events: EventSink,
        on_changed: Callable[[], None],
        bus: EventBus | None = None,
        metrics: MpsMetrics | None = None,
        pace: MpsPace | None = None,
        owns: Callable[[str], bool] = lambda name: "/" in name,
    ) -> None:
        """``bus``: publishes a ``HealthEvent`` for every device whose pods have lost their server.
        ``metrics``: where it is counted; other supervisors may count there as well.

        ``owns``: whether a daemon of this name would be one of ours; those of resources are, unless said."""
        self._home = home
        self._modes = ExclusiveModes(modes, record)
        self._record = record
        self._clocks = clocks
        self._reports = MpsReports(clocks, events, bus or EventBus(), metrics or MpsMetrics())
        self._on_changed = on_changed
        self._pace = pace or MpsPace()
        self._owns = owns
        self._has_begun = asyncio.Event()
        self._has_ended = False
        self._is_capable = False
        self._services: dict[str, _Service] = {}
        self._holders = MpsHolders()
        self._group: asyncio.TaskGroup | None = None

    def use(self, resources: Iterable[MpsResource]) -> None:
        """Serve these resources from now on; one that is missing is served until its last share is given back."""
        named = {resource.name: resource for resource in resources if resource.devices}
        for name, service in self._services.items():
            service.wanted = name in named
            service.changed.set()
        for name, resource in named.items():
            known = self._services.get(name)
            if known is None:
                self._services[name] = _Service(resource, fault=self._hindrance())
                self._reports.metrics.begin(name)
                self._begin(self._services[name])
            elif known.resource != resource:
                known.resource = resource
                known.changed.set()

    def _hindrance(self) -> str:
        """Why no daemon can run here. Once one could, the start of each finds out, which does not block the loop."""
        if self._is_capable:
            return ""
        found = hindrance(self._home)
        self._is_capable = not found
        return found

    def hold(self, holders: MpsHolders) -> None:
        """Note who has shares."""
        if holders != self._holders:
            self._holders = holders
            for service in self._services.values():
                service.changed.set()

    def faults(self) -> Mapping[str, str]:
        """Why devices cannot be shared at the moment, by device name."""
        found = {}
        for service in self._services.values():
            served = service.resource if service.daemon is None else service.daemon.resource
            own = {device.uuid for device in served.devices}
            for device in service.resource.devices:
                if service.fault:
                    found[device.name] = f"MPS does not work: {service.fault}"
                elif device.uuid not in own:
                    found[device.name] = (
                        f"the MPS control daemon of {service.resource.name} runs without it; it is added when no share "
                        "of the resource is in use"
                    )
        return found

    def is_ready(self, name: str) -> bool:
        """Whether shares of the resource can be given out at once; also for a resource without MPS."""
        service = self._services.get(name)
        return service is None or (service.ready.is_set() and not service.fault)

    async def ready(self, name: str) -> None:
        """Return when the daemon of the resource runs; raises ``MpsError`` if it fails to start."""
        service = self._services.get(name)
        if service is None:
            return
        if service.fault:
            raise MpsError(service.fault)
        service.waiting += 1
        service.changed.set()
        try:
            while not service.ready.is_set():
                if self._has_ended:
                    raise MpsError("the agent is stopping; the kubelet asks again when it is back")
                if service.fault:
                    raise MpsError(service.fault)
                await self._either(service)
        finally:
            service.waiting -= 1

    @staticmethod
    async def _either(service: _Service) -> None:
        """Wait until the daemon is ready, or look again soon at whether it failed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await service.ready.wait()

    async def stopped(self, name: str) -> None:
        """Return when no daemon of the resource runs any more, which nobody may use or have a share of.

        Before ``run`` has taken up what an earlier agent left, that is waited for.
        """
        await self._has_begun.wait()
        service = self._services.get(name)
        if service is not None and service.task is not None:
            await asyncio.wait({service.task})

    async def run(self) -> None:
        """Supervise until cancelled; then daemons without shares are stopped, and others left to the next agent."""
        await asyncio.to_thread(self._record.read)
        await self._tidy()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._has_begun.set()
                for service in self._services.values():
                    self._begin(service)
                await asyncio.Event().wait()
        finally:
            self._group, self._has_ended = None, True
            for service in self._services.values():
                if service.daemon is None:
                    continue
                if self._is_needed(service):
                    service.daemon.leave()
                else:
                    await self._stop(service)

    def _begin(self, service: _Service) -> None:
        if self._group is not None and service.task is None:
            service.task = self._group.create_task(self._keep(service), name=f"MPS of {service.resource.name}")

    async def _tidy(self) -> None:
        """End daemons of resources that nobody serves any more, and set back modes of GPUs that are not theirs."""
        for name, process in tuple(self._record.daemons.items()):
            if name not in self._services:
                await self._end(name, process)
                del self._record.daemons[name]
        for name, process in await asyncio.to_thread(find_daemons, self._home.root, self._home.proc):
            # Killed between the start of a daemon and the record of it.
            known = self._record.daemons.get(name)
            if self._owns(name) and (known is None or find_process(known.pid, self._home.proc) != known):
                await self._end(name, process)
        await self._remove_left()
        served = {device.uuid for service in self._services.values() for device in service.resource.devices}
        with contextlib.suppress(MpsError):
            await self._modes.give_back(uuid for uuid in tuple(self._record.modes) if uuid not in served)

    async def _end(self, name: str, process: MpsProcess) -> None:
        """End a daemon of an earlier agent that nobody needs, and remove its folders."""
        daemon = MpsDaemon(MpsResource(name, ()), self._home)
        if await daemon.adopt(process):
            log.info("a daemon of an earlier agent is not needed any more", extra={"resource": name})
        self._reports.left(name, await daemon.stop())

    async def _remove_left(self) -> None:
        """Unmount and remove what an agent left that was killed before it had started the daemon."""
        with contextlib.suppress(OSError):
            for name in await asyncio.to_thread(self._home.storage.names):
                if self._owns(name) and name not in self._services:
                    self._reports.left(name, await MpsDaemon(MpsResource(name, ()), self._home).stop())

    async def _keep(self, service: _Service) -> None:
        """The life of one resource's daemon, over and over."""
        failures = 0
        name = service.resource.name
        await self._take_over(service)
        while True:
            if not service.wanted and service.daemon is None:
                await self._clear(service)
                if not service.wanted:
                    break
            if service.daemon is None and not (self._is_needed(service) or failures):
                await self._changed(service)
                continue
            try:
                if service.daemon is None:
                    await self._start(service)
                failures = 0
                self._settle(service, "")
                service.ready.set()
                reason = await self._watch(service)
            except (MpsError, ComputeModeError) as error:
                reason = str(error)
            service.ready.clear()
            if reason:
                failures += 1
                await self._fail(service, reason)
                if service.daemon is None:
                    await self._pause(service, failures)
            elif service.daemon is not None:
                await self._stop(service)
        del self._services[name]

    async def _clear(self, service: _Service) -> None:
        """Leave nothing of a resource that is not served any more, whatever its last daemon came to."""
        resource = service.resource
        others = [each.daemon for each in self._services.values() if each is not service and each.daemon is not None]
        served = {device.uuid for daemon in others for device in daemon.resource.devices}
        try:
            await self._modes.give_back(device.uuid for device in resource.devices if device.uuid not in served)
        except MpsError as error:
            self._reports.failed(resource.name, str(error))
        self._reports.left(resource.name, await MpsDaemon(resource, self._home).stop())

    async def _take_over(self, service: _Service) -> None:
        """Take over the daemon that an earlier agent left; where there is none, set back what it changed."""
        resource = service.resource
        process = self._record.daemons.pop(resource.name, None)
        daemon = MpsDaemon(resource, self._home)
        if process is not None and await daemon.adopt(process):
            service.daemon = daemon
            self._record.daemons[resource.name] = process
            self._reports.metrics.found(resource.name, 0, 0.0)
            log.info("MPS control daemon taken over", extra={"resource": resource.name, "pid": process.pid})
            return
        if process is not None and self._held(service):
            reason = f"{_ENDED} with the agent, or while it was away"
            self._reports.crashed(resource, reason, self._held(service))
        if not self._is_needed(service):
            with contextlib.suppress(MpsError):
                await self._modes.give_back(device.uuid for device in resource.devices)
            self._reports.left(resource.name, await daemon.stop())

    def _is_needed(self, service: _Service) -> bool:
        if service.waiting:
            return True
        if not self._holders.known and service.daemon is not None:
            return True
        return bool(self._held(service))

    async def _changed(self, service: _Service) -> None:
        """Wait for a change of what is wanted; conditions outside of us are looked at again seldom."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pace.look if service.fault else None):
                await service.changed.wait()
        service.changed.clear()
        if service.fault:
            self._settle(service, await asyncio.to_thread(hindrance, self._home))

    async def _start(self, service: _Service) -> None:
        resource = service.resource
        daemon = MpsDaemon(resource, self._home)
        try:
            await self._modes.take(device.uuid for device in resource.devices)
            self._reports.left(resource.name, await daemon.start())
            assert daemon.process is not None
            self._record.daemons[resource.name] = daemon.process
            await asyncio.to_thread(self._record.write)
            await daemon.limit()
        except BaseException as error:
            if isinstance(error, MpsError | ComputeModeError):
                await daemon.kill()  # Its logs stay for whoever looks for the reason.
            else:
                await daemon.stop()
            self._record.daemons.pop(resource.name, None)
            self._reports.metrics.started(resource.name, well=False)
            with contextlib.suppress(MpsError):
                await self._modes.give_back(device.uuid for device in resource.devices)
            raise
        service.daemon, service.servers = daemon, frozenset()
        self._reports.metrics.started(resource.name, well=True)
        log.info("MPS control daemon started", extra={"resource": resource.name, "pid": daemon.process.pid})

    async def _stop(self, service: _Service) -> None:
        daemon, service.daemon = service.daemon, None
        assert daemon is not None
        left = await daemon.stop()
        self._reports.ended(daemon.resource.name)
        self._reports.left(daemon.resource.name, left)
        self._record.daemons.pop(daemon.resource.name, None)
        log.info("MPS control daemon stopped", extra={"resource": daemon.resource.name})
        try:
            await self._modes.give_back(device.uuid for device in daemon.resource.devices)
        except MpsError as error:
            self._reports.failed(daemon.resource.name, str(error))

    async def _watch(self, service: _Service) -> str:
        """Watch the running daemon: why it is of no use any more, empty if nobody needs it."""
        daemon = service.daemon
        assert daemon is not None
        ended = asyncio.ensure_future(daemon.ended(self._pace.look))
        released = None
        try:
            while True:
                now = self._clocks.monotonic()
                if self._is_needed(service):
                    released = None
                    if daemon.resource != service.resource:
                        await self._adapt(service, daemon)
                else:
                    released = now if released is None else released
                    if now - released >= self._pace.linger:
                        return ""
                rest = self._pace.look if released is None else released + self._pace.linger - now
                changed = asyncio.ensure_future(service.changed.wait())
                await asyncio.wait({ended, changed}, timeout=rest, return_when=asyncio.FIRST_COMPLETED)
                is_changed = changed.done()
                changed.cancel()
                service.changed.clear()
                if ended.done():
                    return _ENDED
                if not is_changed and released is None:
                    try:
                        await self._look(service, daemon)
                    except MpsError:
                        if daemon.is_running:
                            raise
                        return _ENDED
        finally:
            ended.cancel()

    async def _adapt(self, service: _Service, daemon: MpsDaemon) -> None:
        """Give a running daemon other limits; it keeps its devices."""
        old, new = daemon.resource, service.resource
        if [device.uuid for device in old.devices] == [device.uuid for device in new.devices]:
            daemon.resource = new
            await daemon.limit()

    async def _look(self, service: _Service, daemon: MpsDaemon) -> None:
        """Whether it answers, whether one of its servers has gone, what it stores; raises ``MpsError``."""
        servers = await daemon.servers()
        gone, service.servers = service.servers - servers, servers
        if gone:
            # A pod that takes the daemon's place at its pipe can name thousands.
            pids = ", ".join(str(pid) for pid in sorted(gone)[:MOST_NAMED])
            reason = f"MPS server {pids} ended; see {daemon.log / 'server.log'}"
            self._reports.crashed(service.resource, reason, self._held(service))
        clients = await daemon.clients(servers)
        try:
            usage = await asyncio.to_thread(daemon.tidy)
        except OSError as error:
            log.warning("the folders of MPS cannot be looked at", extra={"error": str(error)})
        else:
            self._reports.looked(daemon.resource, clients, usage, self._held(service))

    def _held(self, service: _Service) -> Sequence[str]:
        return self._holders.by_resource.get(service.resource.name, ())

    async def _fail(self, service: _Service, reason: str) -> None:
        """A daemon could not be started, or is of no use any more."""
        daemon, service.daemon = service.daemon, None
        if daemon is not None:
            self._reports.crashed(service.resource, reason, self._held(service))
            await daemon.kill()
            self._reports.ended(daemon.resource.name)
            self._record.daemons.pop(daemon.resource.name, None)
            return
        if reason != service.fault:
            self._reports.failed(service.resource.name, reason)
        self._settle(service, reason)

    async def _pause(self, service: _Service, failures: int) -> None:
        """Wait before the next attempt; the first one after a crash, for which pods may wait, comes soon."""
        longest = min(self._pace.longest_pause, self._pace.first_pause * 2 ** min(failures - 1, 10))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest * (0.5 + self._clocks.random() / 2)):
                while service.wanted:
                    await service.changed.wait()
                    service.changed.clear()

    def _settle(self, service: _Service, fault: str) -> None:
        if fault != service.fault:
            service.fault = fault
            self._on_changed()
