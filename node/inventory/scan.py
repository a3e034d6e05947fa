"""One scan: every source read, facts made into devices. Runs in the inventory's worker thread.

No fault of a source or of the assembly ends the agent: a source that raises has a bug, is logged with its traceback and
keeps its previous facts; an assembly that raises keeps the previous devices. Both appear as a failed source, so that
people see it, and not as devices that disappear.

While the driver must be left alone (quiesce), sources that hold it are closed and not read; their last facts stay with
the status QUIESCED, which keeps devices and their ids, unusable. A source that could not close the driver counts as
failed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from operator import attrgetter

from node.clocks import Clocks
from node.inventory.devices import devices_of, host_of, statuses_of
from node.inventory.facts import NodeFacts, NvmlFacts, merge
from node.inventory.identity import Identities, IdentityStore
from node.inventory.model import NIC_KINDS, Device, DeviceKind, Snapshot, SourceState, SourceStatus
from node.inventory.nics.devices import nic_devices
from node.inventory.nics.use import LingeringUses
from node.inventory.nvidia.health import QUIESCED
from node.inventory.places import places_of
from node.inventory.retention import retained
from node.inventory.source import DriverHeld, DriverHolder, GpuReader, Source
from node.quiesce import Quiesce
from node.topology.cells import topology_of
from node.topology.model import PlaceOverride, Topology
from node.values import Value, replace, value

log = logging.getLogger("ostler.inventory")

_ASSEMBLY = "assembly"
_PLACED = (DeviceKind.GPU, *NIC_KINDS)
"""The kinds of devices that topology knows; MIG devices come and go without a change of it."""


@value
class _Settled(Value):
    """The inputs of a snapshot's devices; equal inputs give equal devices, whatever the time."""

    facts: NodeFacts
    identities: Identities
    overrides: tuple[PlaceOverride, ...]
    devices: tuple[Device, ...]


class Scanner:
    """Reads sources; ``reading`` names the one that is being read or closed, empty in between.

    ``held``: why a quiesced driver is still in use, according to the last scan; empty where it is free. ``quiesce``
    says why the driver must not be used; without it the driver may always be.
    """

    def __init__(
        self,
        sources: tuple[Source, ...],
        identities: IdentityStore,
        clocks: Clocks,
        quiesce: Quiesce | None = None,
    ) -> None:
        self._sources = sources
        self._identities = identities
        self._clock = clocks.clock
        self._quiesce = quiesce
        self._uses = LingeringUses()
        self._overrides: tuple[PlaceOverride, ...] = ()
        self._ended: frozenset[str] = frozenset()
        """UUIDs of MIG devices that were removed on purpose, until a scan no longer sees them."""
        self._lock = threading.Lock()
        self._facts: dict[str, NodeFacts] = {}
        self._faults: dict[str, str] = {}
        self._settled: tuple[_Settled, Snapshot] | None = None
        self._nics: tuple[Device, ...] | None = None
        """The NICs by the facts of the last scan of everything."""
        self._topology: tuple[tuple[Device, ...], tuple[PlaceOverride, ...], Topology] | None = None
        """The last topology, after what it was made from."""
        self.reading = ""
        self.held = ""

    def override(self, overrides: tuple[PlaceOverride, ...]) -> None:
        """Place devices as these say, from the next scan on: the machine's PCIe tree does not show where they are."""
        self._overrides = overrides

    def forget(self, uuids: Iterable[str]) -> None:
        """Do not show these MIG devices as gone once they are: they were removed on purpose."""
        with self._lock:
            self._ended |= frozenset(uuids)

    def scan(self, previous: Snapshot, gpus: frozenset[str] = frozenset()) -> Snapshot:
        """Read everything; unchanged devices are the very objects of ``previous``, so that memory does not grow.

        The caller numbers what is new: the generation of the answer is 0.
        With ``gpus`` (UUIDs) only these must be read again: facts about others may be from the last scan.
        """
        faults: dict[str, str] = {}
        reason = None if self._quiesce is None else self._quiesce.reason
        facts = merge(tuple(self._read(source, faults, gpus, quiesced=reason is not None) for source in self._sources))
        self.held = ""
        if reason is not None:
            facts = _left_alone(facts, reason)
            holders = [source.name for source in self._sources if isinstance(source, DriverHolder)]
            self.held = "; ".join(faults[name] for name in holders if name in faults)
        self.reading = ""
        try:
            reading = self._assembled(facts, previous, gpus_alone=bool(gpus))
        except Exception as error:  # noqa: BLE001 - a bug of ours; the log and the source's status tell
            self._report(_ASSEMBLY, error, faults)
            reading = Snapshot(
                devices=previous.devices,
                sources=statuses_of(NodeFacts()),
                host=previous.host,
                topology=previous.topology,
            )
        self._faults = faults
        return replace(reading, sources=_with_faults(reading.sources, faults))

    def close(self) -> None:
        """Close every source, even if another fails to close."""
        for source in self._sources:
            self.reading = source.name
            try:
                source.close()
            except Exception:  # The agent is ending; the log tells.
                log.exception("a source could not be closed", extra={"source": source.name})
        self.reading = ""

    def _read(self, source: Source, faults: dict[str, str], gpus: frozenset[str], *, quiesced: bool) -> NodeFacts:
        self.reading = source.name
        try:
            if quiesced and isinstance(source, DriverHolder):
                self._let_go(source, faults)
                return self._facts.get(source.name, NodeFacts(nvml=NvmlFacts()))
            facts = source.read_gpus(gpus) if gpus and isinstance(source, GpuReader) else source.read()
        except Exception as error:  # noqa: BLE001 - a bug of the source; the log and its status tell
            self._report(source.name, error, faults)
            return self._facts.get(source.name, NodeFacts())
        self._facts[source.name] = facts
        return facts

    def _let_go(self, source: Source, faults: dict[str, str]) -> None:
        """Close a source that holds its driver, which another thread's call into the driver can prevent."""
        try:
            source.close()
        except DriverHeld as error:
            # No bug of ours: the source has logged it, and its status and the answer to quiesce report it.
            faults[source.name] = str(error)

    def _report(self, name: str, error: Exception, faults: dict[str, str]) -> None:
        text = f"internal error: {type(error).__name__}: {error}"
        faults[name] = text
        # The traceback once: the same bug returns with every scan.
        log.error("a scan hit a bug", extra={"source": name, "error": text}, exc_info=self._faults.get(name) != text)

    def _expected(self, previous: tuple[Device, ...], present: tuple[Device, ...]) -> tuple[Device, ...]:
        """The previous devices without those that ended on purpose; ``present``: those that the facts show."""
        with self._lock:
            ended = self._ended
            self._ended &= {device.uuid for device in present}
        return tuple(device for device in previous if device.uuid not in ended) if ended else previous

    def _assembled(self, facts: NodeFacts, previous: Snapshot, *, gpus_alone: bool) -> Snapshot:
        """The devices by these facts. ``gpus_alone``: only of GPUs are they newer than those of the last scan."""
        identities = self._identities.load()
        now = self._clock()
        asked = _Settled(facts, identities, self._overrides, previous.devices)
        if self._settled is not None and self._settled[0] == asked:
            # Nearly always so: hardware hardly changes. Only subscribers that count the time, or try again, need it.
            self._uses.applied(previous.devices, now)
            self._identities.save(identities)
            return self._settled[1]
        self._settled = None
        known_nics = self._nics if gpus_alone else None
        nics = self._nics = tuple(nic_devices(facts, identities)) if known_nics is None else known_nics
        present = devices_of(facts, identities, nics=nics)
        devices = retained(present, self._expected(previous.devices, present), facts.sysfs, now)
        learned = identities.updated(devices, facts if known_nics is None else None)
        self._identities.save(learned)
        devices = self._uses.applied(devices, now)
        known = {device.name: device for device in previous.devices}
        carried = tuple(_carried(device, known.get(device.name), now) for device in devices)
        reading = Snapshot(
            devices=carried,
            sources=statuses_of(facts, identities),
            host=host_of(facts),
            topology=self._topology_of(carried, previous.topology),
            former=learned.former,
        )
        # What is kept for a while ends by the clock, and the next full scan reads NICs.
        if devices == present and known_nics is None:
            self._settled = asked, reading
        return reading

    def _topology_of(self, devices: tuple[Device, ...], previous: Topology) -> Topology:
        """The topology of these devices, the last one if those that it knows are the same."""
        placed = tuple(device for device in devices if device.kind in _PLACED)
        last = self._topology
        if last is not None and last[:2] == (placed, self._overrides):
            return last[2]
        topology = topology_of(places_of(placed), self._overrides, previous)
        self._topology = placed, self._overrides, topology
        return topology


def _left_alone(facts: NodeFacts, reason: str) -> NodeFacts:
    if facts.nvml is None:
        return facts
    return replace(facts, nvml=replace(facts.nvml, status=QUIESCED, detail=reason, errors=()))


def _carried(device: Device, previous: Device | None, now: float) -> Device:
    health = device.health.carried(previous.health if previous is not None else None, now)
    if previous is not None and health == previous.health and _described(device) == _described(previous):
        return previous
    return replace(device, health=health)


_described = attrgetter(*(name for name in Device.__slots__ if name != "health"))
"""Everything about a device but its health."""


def _with_faults(statuses: tuple[SourceStatus, ...], faults: dict[str, str]) -> tuple[SourceStatus, ...]:
    by_name = {status.name: status for status in statuses}
    by_name.update({name: SourceStatus(name, SourceState.FAILED, text) for name, text in faults.items()})
    return tuple(by_name[name] for name in sorted(by_name))
