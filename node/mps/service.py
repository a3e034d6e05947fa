"""One resource that is shared by MPS: the wanted state of its control daemon, and the daemon's life.

A daemon is started with the first need (somebody asks for a share, or pods have some when the agent starts) and stopped
when no share has been in use for ``linger`` seconds. What fails is tried again with growing pauses, also while nobody
asks, so that a resource comes back by itself. Devices change only while no share of the resource is in use; until then
a new GPU is withheld.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from node.clocks import SELDOM, Clocks
from node.inventory.nvidia.compute_modes import ComputeModeError
from node.mps.daemon import MpsDaemon, MpsError, MpsHome, MpsResource, hindrance
from node.mps.modes import ExclusiveModes, MpsRecord
from node.mps.reports import MOST_NAMED, MpsReports
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
    """Holders of shares: pods and claims by the resource's name, and by the UUID of the GPU.

    ``known``: whether these are all of them.
    """

    by_resource: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    known: bool = False
    by_gpu: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@value
class MpsParts(Value):
    """The parts that the services of one supervisor share; ``record``: daemons and modes on disk.

    ``has_ended``: set when the agent ends.
    """

    home: MpsHome
    modes: ExclusiveModes
    record: MpsRecord
    reports: MpsReports
    clocks: Clocks
    pace: MpsPace
    has_ended: asyncio.Event


class MpsKeeper:
    """Runs the daemon of one resource; for the event loop. ``on_changed``: called when ``fault`` has changed.

    ``fault``: why no daemon runs, empty if nothing is wrong. ``wanted``: whether a rule shares the resource by MPS.
    """

    def __init__(
        self, resource: MpsResource, parts: MpsParts, holders: MpsHolders, fault: str, on_changed: Callable[[], None]
    ) -> None:
        self.resource = resource
        self._home = parts.home
        self._modes = parts.modes
        self._record = parts.record
        self._reports = parts.reports
        self._clocks = parts.clocks
        self._pace = parts.pace
        self._holders = holders
        self.fault = fault
        self._on_changed = on_changed
        self.daemon: MpsDaemon | None = None
        self.wanted = True
        self._news = asyncio.Event()
        """Something that is wanted of the daemon has changed."""
        self._runs = asyncio.Event()
        self._waiting = 0
        """Callers of ``ready`` that wait."""
        self._asked = -math.inf
        """When a share was last allocated (monotonic)."""
        self._servers: frozenset[int] = frozenset()
        self._failures = 0
        """Attempts that have failed since the daemon last ran."""
        self._has_begun = False
        self._has_ended = parts.has_ended

    def want(self, resource: MpsResource | None) -> None:
        """Serve this resource from now on; None: no rule shares it by MPS any more."""
        self.wanted = resource is not None
        self.resource = resource or self.resource
        self._news.set()

    def hold(self, holders: MpsHolders) -> None:
        """Note the holders of shares."""
        self._holders = holders
        self._news.set()

    @property
    def is_needed(self) -> bool:
        """Whether somebody has a share, may have one, or waits for one."""
        if self._waiting:
            return True
        if not self._holders.known and self.daemon is not None:
            return True
        return bool(self._held)

    @property
    def _held(self) -> Sequence[str]:
        if self.wanted:
            return self._holders.by_resource.get(self.resource.name, ())
        # No rule names the resource of these shares any more. Nobody new gets one of a GPU that the daemon has.
        return [holder for device in self.resource.devices for holder in self._holders.by_gpu.get(device.uuid, ())]

    def faults(self) -> Mapping[str, str]:
        """Why devices of the resource cannot be shared at the moment, by device name."""
        if not self.wanted:
            reason = (
                f"the MPS control daemon of {self.resource.name} runs until the pods have ended that got shares by an "
                "earlier rule"
            )
            return {} if self.daemon is None else {device.name: reason for device in self.resource.devices}
        if self.fault:
            return {device.name: f"MPS does not work: {self.fault}" for device in self.resource.devices}
        served = self.resource if self.daemon is None else self.daemon.resource
        own = {device.uuid for device in served.devices}
        reason = (
            f"the MPS control daemon of {self.resource.name} runs without it; it is added when no share of the "
            "resource is in use"
        )
        return {device.name: reason for device in self.resource.devices if device.uuid not in own}

    @property
    def is_ready(self) -> bool:
        """Whether shares of the resource can be allocated at once."""
        return self._runs.is_set() and not self.fault

    def give(self) -> None:
        """A share is allocated now; who has it is noted a moment later, and the daemon must run until then."""
        self._asked = self._clocks.monotonic()

    async def ready(self) -> None:
        """Return when the daemon runs; raises ``MpsError`` if it fails to start."""
        if self.fault:
            raise MpsError(self.fault)
        self._waiting += 1
        self._news.set()
        try:
            while not self._runs.is_set():
                if self._has_ended.is_set():
                    raise MpsError("the agent is stopping; the kubelet asks again when it is back")
                if self.fault:
                    raise MpsError(self.fault)
                if not self.wanted:
                    raise MpsError("its GPUs can no longer be shared by MPS; 'ostler devices' says why")
                # Look again soon at whether it failed.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await self._runs.wait()
        finally:
            self._waiting -= 1

    async def run(self) -> None:
        """Lead the daemon's life, over and over; returns when no rule shares the resource and its daemon has ended.

        May be called again after that.
        """
        if not self._has_begun:
            self._has_begun = True
            await self._take_over()
        while self.wanted or self.daemon is not None:
            if self.daemon is None and not (self.is_needed or self._failures):
                await self._changed()
                continue
            try:
                if self.daemon is None:
                    await self._start()
                self._failures = 0
                self._settle("")
                self._runs.set()
                reason = await self._watch()
            except (MpsError, ComputeModeError) as error:
                reason = str(error)
            self._runs.clear()
            if reason:
                self._failures += 1
                await self._fail(reason)
                if self.daemon is None:
                    await self._pause()
            elif self.daemon is not None:
                await self._stop()

    async def end(self) -> None:
        """The agent ends: stop a daemon that nobody needs, and leave another one to the next agent."""
        if self.daemon is None:
            return
        if self.is_needed:
            self.daemon.leave()
        else:
            await self._stop()

    async def _take_over(self) -> None:
        """Take over the daemon that an earlier agent left; if there is none, reset what it changed."""
        resource = self.resource
        # It stays on record until it is known to have ended: other resources may write the record meanwhile.
        process = self._record.daemons.get(resource.name)
        daemon = MpsDaemon(resource, self._home)
        if process is not None and await daemon.adopt(process):
            self.daemon = daemon
            self._modes.keep(resource.name, self._record, [device.uuid for device in daemon.resource.devices])
            self._reports.metrics.found(resource.name, 0, 0.0)
            log.info("MPS control daemon taken over", extra={"resource": resource.name, "pid": process.pid})
            if not self.wanted:
                self._on_changed()
            return
        self._record.daemons.pop(resource.name, None)
        if process is not None and self._held:
            reason = f"{_ENDED} with the agent, or while it was away"
            self._reports.crashed(resource, reason, self._held)
        if not self.is_needed:
            try:
                await self._give_back(resource)
            except MpsError as error:
                self._reports.failed(resource.name, str(error))
            self._reports.left(resource.name, await daemon.stop())

    async def _changed(self) -> None:
        """Wait for a change of the wanted state; outside conditions are checked again seldom."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pace.look if self.fault else None):
                await self._news.wait()
        self._news.clear()
        if self.fault:
            self._settle(await asyncio.to_thread(hindrance, self._home))

    async def _start(self) -> None:
        resource = self.resource
        daemon = MpsDaemon(resource, self._home)
        try:
            await self._modes.take(resource.name, self._record, [device.uuid for device in resource.devices])
            self._reports.left(resource.name, await daemon.start())
            assert daemon.process is not None
            self._record.daemons[resource.name] = daemon.process
            await asyncio.to_thread(self._record.write)
            await daemon.limit(resource)
        except BaseException as error:
            if isinstance(error, MpsError | ComputeModeError):
                await daemon.kill()  # Its logs stay for a person who looks for the reason.
            else:
                await daemon.stop()
            self._record.daemons.pop(resource.name, None)
            self._reports.metrics.started(resource.name, well=False)
            with contextlib.suppress(MpsError):
                await self._give_back(resource)
            raise
        self.daemon, self._servers = daemon, frozenset()
        self._reports.metrics.started(resource.name, well=True)
        log.info("MPS control daemon started", extra={"resource": resource.name, "pid": daemon.process.pid})

    async def _stop(self) -> None:
        daemon, self.daemon = self.daemon, None
        assert daemon is not None
        left = await daemon.stop()
        self._reports.ended(daemon.resource.name)
        self._reports.left(daemon.resource.name, left)
        self._record.daemons.pop(daemon.resource.name, None)
        log.info("MPS control daemon stopped", extra={"resource": daemon.resource.name})
        try:
            await self._give_back(daemon.resource)
        except MpsError as error:
            self._reports.failed(daemon.resource.name, str(error))

    async def _give_back(self, resource: MpsResource) -> None:
        """Give GPUs back that the daemon of this resource had; raises ``MpsError``."""
        await self._modes.give_back(resource.name, self._record, [device.uuid for device in resource.devices])

    async def _watch(self) -> str:
        """Watch the running daemon: why it is of no use any more, empty if nobody needs it."""
        daemon = self.daemon
        assert daemon is not None
        ended = asyncio.ensure_future(daemon.ended(self._pace.look))
        released = None
        try:
            while True:
                now, linger = self._clocks.monotonic(), self._pace.linger if self.wanted else 0.0
                if self.is_needed:
                    released = None
                    if daemon.resource != self.resource:
                        await self._adapt(daemon)
                else:
                    released = max(now if released is None else released, self._asked)
                    if now - released >= linger:
                        return ""
                rest = self._pace.look if released is None else released + linger - now
                changed = asyncio.ensure_future(self._news.wait())
                await asyncio.wait({ended, changed}, timeout=rest, return_when=asyncio.FIRST_COMPLETED)
                is_changed = changed.done()
                changed.cancel()
                self._news.clear()
                if ended.done():
                    return _ENDED
                if not is_changed and released is None:
                    try:
                        await self._look(daemon)
                    except MpsError:
                        if daemon.is_running:
                            raise
                        return _ENDED
        finally:
            ended.cancel()

    async def _adapt(self, daemon: MpsDaemon) -> None:
        """Give a running daemon other limits; it keeps its devices."""
        old, new = daemon.resource, self.resource
        if [device.uuid for device in old.devices] == [device.uuid for device in new.devices]:
            await daemon.limit(new)

    async def _look(self, daemon: MpsDaemon) -> None:
        """Whether it answers, whether one of its servers has gone, what it stores; raises ``MpsError``."""
        servers = await daemon.servers()
        gone, self._servers = self._servers - servers, servers
        if gone:
            # A pod that takes the daemon's place at its pipe can name thousands.
            pids = ", ".join(str(pid) for pid in sorted(gone)[:MOST_NAMED])
            reason = f"MPS server {pids} ended; see {daemon.log / 'server.log'}"
            self._reports.crashed(self.resource, reason, self._held)
        clients = await daemon.clients(servers)
        try:
            usage = await asyncio.to_thread(daemon.tidy)
        except OSError as error:
            log.warning("cannot read the folders of MPS", extra={"error": str(error)})
        else:
            self._reports.looked(daemon.resource, clients, usage, self._held)

    async def _fail(self, reason: str) -> None:
        """A daemon could not be started, or is of no use any more."""
        daemon, self.daemon = self.daemon, None
        if daemon is not None:
            self._reports.crashed(self.resource, reason, self._held)
            await daemon.kill()
            self._reports.ended(daemon.resource.name)
            self._record.daemons.pop(daemon.resource.name, None)
            return
        if reason != self.fault:
            self._reports.failed(self.resource.name, reason)
        self._settle(reason)

    async def _pause(self) -> None:
        """Wait before the next attempt; the first one after a crash, for which pods may wait, comes soon."""
        longest = min(self._pace.longest_pause, self._pace.first_pause * 2 ** min(self._failures - 1, 10))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest * (0.5 + self._clocks.random() / 2)):
                while self.wanted:
                    await self._news.wait()
                    self._news.clear()

    def _settle(self, fault: str) -> None:
        if fault != self.fault:
            self.fault = fault
            self._on_changed()
