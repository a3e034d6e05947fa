"""Decides which resources need an MPS daemon, reports the holders of shares to the supervisor, and lets Allocate wait.

Made if a rule shares devices by MPS, or if an earlier agent left daemons or compute modes of MPS. A recorded node has
no driver, so its devices cannot be shared by MPS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

import grpc

from node.clocks import Clocks
from node.events import EventBus, EventRecorder
from node.inventory.model import Snapshot, SourceState
from node.ledger.offer_context import NOTHING_HELD, OfferContext
from node.mps.daemon import MpsDevice, MpsError, MpsHome, MpsResource
from node.mps.modes import RECORD, ExclusiveModes, MpsRecord
from node.mps.mounts import KernelMounts, Mounts
from node.mps.reports import MpsMetrics
from node.mps.service import MpsHolders
from node.mps.supervisor import MpsSupervisor
from node.offer import OfferedDevice
from node.rules import Door, Rule, rule_for
from node.sharing import MEMORY, SharingStrategy, replica_of, whole_amounts
from node.values import replace
from ostler.config.settings import Settings
from plugin.admission import DevicePluginError

STARTED_WITHIN = 30.0
"""Seconds for which an Allocate waits for a daemon: the kubelet, which admits no other pod meanwhile, has no limit."""
_NO_DRIVER = "a recorded node has no driver that could run MPS; use strategy timeSlicing"


class MpsUnavailable(DevicePluginError):
    """A share cannot be allocated, because the MPS control daemon of its resource does not run."""

    code = grpc.StatusCode.UNAVAILABLE

    def __init__(self, resource: str, reason: str) -> None:
        super().__init__(f"{resource}: MPS does not work: {reason}")


def mps_resources(
    snapshot: Snapshot, rules: Iterable[Rule], context: OfferContext = NOTHING_HELD
) -> tuple[MpsResource, ...]:
    """The resources that need daemons, each with the GPUs that can be shared now.

    A GPU that somebody has held as a whole since before its rule shared it is not among them: its processes, or the MPS
    daemon of its claim, would keep the resource's daemon out of it, and its compute mode is theirs.
    """
    rules = tuple(rules)
    devices: dict[str, list[MpsDevice]] = {}
    percentages: dict[str, int] = {}
    for device in snapshot.devices:
        rule = rule_for(device, rules)
        if rule is None or rule.sharing is None or rule.sharing.strategy is not SharingStrategy.MPS:
            continue
        sharing, name = rule.sharing, rule.resource_of(device)
        replicas = sharing.replicas_of(device)
        if replicas <= 1 or sharing.unsuited(device) or device.uuid is None or not device.health.usable:
            continue
        if any(not hold.share for hold in context.own(device.name)):
            continue
        if rule.door.has(Door.DRA):
            # Clients get their limits with their shares: a claim may consume more than a replica's part.
            devices.setdefault(name, []).append(MpsDevice(device.name, device.uuid))
            continue
        memory = dict(whole_amounts(device)).get(MEMORY)
        limit = sharing.memory_limit or (None if memory is None else memory // replicas)
        devices.setdefault(name, []).append(MpsDevice(device.name, device.uuid, limit))
        # One number for all GPUs of a daemon: that of the GPU with the fewest shares, an upper bound for all of them.
        percentages[name] = max(percentages.get(name, 0), sharing.thread_percentage or 100 // replicas)
    return tuple(MpsResource(name, tuple(those), percentages.get(name)) for name, those in devices.items())


def _with_shares(name: str, context: OfferContext) -> tuple[str, ...]:
    """Who has shares of a device, by the present rule or an earlier one."""
    own = context.own(name)
    return tuple(sorted({hold.holder for hold in own if hold.share or any(replica_of(id_)[1] for _, id_ in hold.ids)}))


def mps_home(settings: Settings, mounts: Mounts | None = None) -> MpsHome:
    """Where MPS is on this node; ``mounts``: the kernel's, unless given."""
    nvidia, proc = settings.nvidia, settings.roots.proc
    return MpsHome(Path(nvidia.mps_root), nvidia.driver_root_mount, proc, nvidia.mps_size, mounts or KernelMounts())


class MpsService:
    """Runs the daemons that the offered devices need; for the event loop only.

    ``modes``: None without a driver. ``mounts``: see ``mps_home``.
    """

    def __init__(
        self,
        settings: Settings,
        modes: ExclusiveModes | None,
        *,
        clocks: Clocks,
        events: EventRecorder,
        bus: EventBus,
        metrics: MpsMetrics,
        on_changed: Callable[[], None],
        mounts: Mounts | None = None,
    ) -> None:
        self._supervisor = (
            None
            if modes is None
            else MpsSupervisor(
                mps_home(settings, mounts),
                modes,
                MpsRecord(settings.state_dir / RECORD),
                clocks=clocks,
                events=events,
                bus=bus,
                metrics=metrics,
                on_changed=on_changed,
            )
        )
        self._resources: tuple[MpsResource, ...] = ()
        self._gpus: dict[str, str] = {}
        """UUIDs by name."""
        self._observed = asyncio.Event()
        self._read: OfferContext | None = None

    def observe(self, snapshot: Snapshot, rules: Iterable[Rule], context: OfferContext = NOTHING_HELD) -> Snapshot:
        """Follow devices, rules and holds; returns the snapshot with the reasons why devices cannot be shared."""
        self._resources = mps_resources(snapshot, rules, context)
        self._gpus = {device.name: device.uuid for device in snapshot.devices if device.uuid is not None}
        if self._supervisor is None:
            names = [device.name for resource in self._resources for device in resource.devices]
            faults = tuple((name, _NO_DRIVER) for name in names)
        else:
            self._supervisor.use(self._resources)
            # Of a daemon that an earlier agent started for another rule only the UUIDs of its GPUs are known.
            known = {uuid: name for name, uuid in self._gpus.items()}
            faults = tuple(sorted((known.get(name, name), text) for name, text in self._supervisor.faults().items()))
        if self._resources or any(each.name == "nvml" and each.state is SourceState.OK for each in snapshot.sources):
            self._observed.set()
        return replace(snapshot, host=replace(snapshot.host, mps_faults=faults)) if faults else snapshot

    def hold(self, context: OfferContext) -> None:
        """Follow who holds shares of the devices, through either door."""
        if self._supervisor is None or context is self._read:
            return
        self._read = context
        found = {}
        for resource in self._resources:
            holders = {
                hold.holder
                for device in resource.devices
                for hold in context.holds.get(device.name, ())
                if hold.device == device.name and hold.share
            }
            if holders:
                found[resource.name] = tuple(sorted(holders))
        by_gpu = {uuid: those for name, uuid in self._gpus.items() if (those := _with_shares(name, context))}
        self._supervisor.hold(MpsHolders(found, context.known, by_gpu))

    def starting(self, resource: str, devices: Sequence[OfferedDevice]) -> Coroutine[Any, Any, None] | None:
        """The condition to await before shares are allocated (raises ``MpsUnavailable``); None if there is none."""
        if self._supervisor is None or not any(device.share for device in devices):
            return None
        self._supervisor.give(resource)
        if self._supervisor.is_ready(resource):
            return None
        return self._started(self._supervisor, resource)

    async def ready(self, resource: str) -> None:
        """Return when shares of the resource can be used; raises ``MpsError``."""
        if self._supervisor is None:
            raise MpsError(_NO_DRIVER)
        if all(each.name != resource for each in self._resources):
            raise MpsError("none of its GPUs can be shared at the moment; 'ostler devices' says why")
        await self._supervisor.ready(resource)

    @staticmethod
    async def _started(supervisor: MpsSupervisor, resource: str) -> None:
        try:
            async with asyncio.timeout(STARTED_WITHIN):
                await supervisor.ready(resource)
        except TimeoutError as error:
            late = f"its control daemon does not start within {STARTED_WITHIN:g} s"
            raise MpsUnavailable(resource, late) from error
        except MpsError as error:
            raise MpsUnavailable(resource, str(error)) from error

    async def run(self) -> None:
        """Supervise until cancelled."""
        if self._supervisor is not None:
            # Only once devices are known: before, no resource would need the daemons that an earlier agent left.
            await self._observed.wait()
            await self._supervisor.run()
