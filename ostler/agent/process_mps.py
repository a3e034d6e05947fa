"""MPS in this process: loaded, made and run once a rule needs it; a node without MPS pays for none of it.

The daemons of shared resources and those of single claims have their counters and the GPUs' compute modes in common.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from node.clocks import Clocks
from node.events import EventBus, EventRecorder
from node.inventory.source import Source
from node.offer import OfferedDevice
from ostler.agent.doors import needs_mps
from ostler.agent.loading import load
from ostler.agent.publisher import Publisher
from ostler.agent.sources import nvml_sessions
from ostler.config.settings import Settings

if TYPE_CHECKING:
    from node.mps.modes import ExclusiveModes
    from node.mps.reports import MpsMetrics
    from node.mps.supervisor import MpsSupervisor
    from ostler.agent.mps import MpsService


class ProcessMps:
    """The MPS daemons of this node's shared resources: ``driver.claims.sharing.ShareDaemons``."""

    def __init__(
        self, sources: Sequence[Source], publisher: Publisher, *, clocks: Clocks, events: EventRecorder, bus: EventBus
    ) -> None:
        self._sources = sources
        self._publisher = publisher
        self._clocks = clocks
        self._events = events
        self._bus = bus
        self._service: MpsService | None = None
        self._task: asyncio.Task[None] | None = None
        self._metrics: MpsMetrics | None = None
        self._modes: ExclusiveModes | None = None

    async def load(self, settings: Settings) -> None:
        """Load what these settings need, so that ``open`` does not have to wait."""
        if self._service is None and needs_mps(settings):
            await load("ostler.agent.mps")

    def open(self, settings: Settings) -> None:
        """Make what runs MPS if it is needed; it stays for the life of the process."""
        if self._service is not None or not needs_mps(settings):
            return
        from ostler.agent.mps import MpsService

        self._service = MpsService(
            settings,
            None if nvml_sessions(self._sources) is None else self.modes(),
            clocks=self._clocks,
            events=self._events,
            bus=self._bus,
            metrics=self.metrics(),
            on_changed=self._publisher.on_holds_changed,
        )
        self._publisher.follow_mps(self._service)

    @property
    def is_to_run(self) -> bool:
        """Whether it is open and does not run yet."""
        return self._service is not None and self._task is None

    def run(self, group: asyncio.TaskGroup) -> None:
        """Run it by a task of ``group``; the ledger must hold shares from then on."""
        if self._service is not None and self._task is None:
            self._task = group.create_task(self._service.run(), name="MPS")

    def doubted(
        self, doubt: Awaitable[None] | None, resource: str, devices: Sequence[OfferedDevice]
    ) -> Awaitable[None] | None:
        """The condition that an Allocate must await: the ledger's ``doubt``, then the daemon; None if there is
        neither."""
        if self._service is None:
            return doubt
        if doubt is None:
            return self._service.starting(resource, devices)
        return self._cleared(self._service, doubt, resource, devices)

    @staticmethod
    async def _cleared(
        service: MpsService, doubt: Awaitable[None], resource: str, devices: Sequence[OfferedDevice]
    ) -> None:
        await doubt
        # Checked only now: a daemon that ran before may have been stopped meanwhile.
        starting = service.starting(resource, devices)
        if starting is not None:
            await starting

    async def shares_ready(self, resource: str) -> None:
        """See ``driver.claims.sharing.ShareDaemons``."""
        if self._service is not None:
            await self._service.ready(resource)

    def claim_daemons(self, settings: Settings) -> MpsSupervisor:
        """The runner of single claims' daemons; made when the first claim needs one."""
        from driver.claims.sharing import CLAIMS_RECORD, is_of_claim
        from node.mps.modes import MpsRecord
        from node.mps.service import MpsPace
        from node.mps.supervisor import MpsSupervisor
        from ostler.agent.mps import mps_home

        return MpsSupervisor(
            mps_home(settings),
            self.modes(),
            MpsRecord(settings.state_dir / CLAIMS_RECORD),
            clocks=self._clocks,
            events=self._events,
            on_changed=lambda: None,
            bus=self._bus,
            metrics=self.metrics(),
            pace=MpsPace(linger=0.0),
            owns=is_of_claim,
        )

    def metrics(self) -> MpsMetrics:
        """The counters of MPS daemons, of resources and of claims; made when the first daemon is needed."""
        if self._metrics is None:
            from node.mps.reports import MpsMetrics

            self._metrics = MpsMetrics()
        return self._metrics

    @property
    def figures(self) -> MpsMetrics | None:
        """The same for a scrape; None until MPS is needed."""
        return self._metrics

    def modes(self) -> ExclusiveModes:
        """The compute modes of GPUs for all MPS daemons of the process; made when the first is needed."""
        if self._modes is None:
            from node.inventory.nvidia.compute_modes import NvmlComputeModes
            from node.mps.modes import ExclusiveModes

            sessions = nvml_sessions(self._sources)
            assert sessions is not None, "asked for where there is a driver"
            self._modes = ExclusiveModes(NvmlComputeModes(sessions))
        return self._modes
