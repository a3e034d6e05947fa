"""NVIDIA's ``PartitionMaker``: MIG mode, a GPU instance at its place, and the compute instance that has all of it.

Safe against a crash between any two calls: an entry of the journal precedes the first one, and every step first reads
what exists. So no step is done twice, and what a crash left is known by its entry and found by its place, which only
one instance of a profile can have. An instance that has no entry is somebody else's: it is used as it is, and never
destroyed.

Trade-off: an entry names a place, so if somebody destroys a partition of ours with other tools and makes one of the
same profile in its place, that one counts as ours. It is destroyed only while nobody uses it.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from node.files import FileError
from node.inventory.model import Device, PartitionShape
from node.inventory.nvidia.layouts import LayoutError, plan_layout
from node.inventory.nvidia.nvml_binding import CallFailed, Handle
from node.inventory.nvidia.nvml_mig import GONE, ComputeInstance, GpuInstance, MigCalls
from node.inventory.nvidia.nvml_session import NvmlSessions
from node.inventory.nvidia.partition_journal import MadePart, PartitionEntry, PartitionJournal, with_device
from node.partitions import MigLayout, Partition, PartitionError
from node.values import replace

log = logging.getLogger("ostler.partitions")

_ENDS = frozenset({"IN_USE", "UNINITIALIZED", "TIMEOUT"})
"""Errors that pass by themselves, or when somebody else ends something."""
_HELD = (
    "programs hold the GPU without computing; end them (monitoring, persistence daemon, display). On Ampere ostler is "
    "one of them, so change the mode between 'ostler quiesce' and 'ostler resume'"
)
_RIGHTS = "run ostler as root in a privileged container, because the driver lets no other process change MIG"


class NvidiaPartitionMaker:
    """Implements ``node.partitions.PartitionMaker``. Calls about several GPUs may run at the same time.

    ``may_switch``: whether MIG mode of a GPU may be turned on and off. The caller knows from the ledger that the GPU is
    free; this class checks that nothing computes on it.
    """

    def __init__(
        self, sessions: NvmlSessions, journal: PartitionJournal, may_switch: Callable[[Device], bool] = lambda _: True
    ) -> None:
        self._sessions = sessions
        self._journal = journal
        self._may_switch = may_switch
        self._lock = threading.Lock()
        self._gpus: dict[str, threading.Lock] = {}

    def make(self, gpu: Device, shape: PartitionShape, owner: str) -> Partition:
        """See ``PartitionMaker``."""
        uuid = gpu.uuid or ""
        with self._gpu(uuid, gpu.name) as calls:
            handle = calls.gpu(uuid, gpu.index)
            other = self._journal.at(uuid, shape)
            if other is not None and other.partition.owner != owner:
                raise PartitionError(gpu.name, f"{_where(shape)} is made for {other.partition.owner}", pending=True)
            self._enter_mode(calls, handle, gpu)
            found = _at(calls, handle, shape)
            entry = self._enter(calls, gpu, shape, owner, found)
            try:
                instance = found or self._create(calls, handle, gpu, shape)
                compute = self._fill(calls, gpu, shape, instance, is_new=found is None)
            except (PartitionError, CallFailed):
                if entry.number is None:  # A partition that was complete before may be in use.
                    self._give_up(calls, handle, entry)
                raise
            done = with_device(entry, instance.number, calls.uuid(compute.device))
            self._journal.put(done)
            log.info("partition ready", extra={"gpu": gpu.name, "profile": shape.profile, "owner": owner})
            return done.partition

    def remove(self, owner: str) -> tuple[Partition, ...]:
        """See ``PartitionMaker``."""
        return tuple(self._remove(entry) for entry in self._journal.of(owner))

    def leave_partitioning(self, gpu: Device) -> None:
        """See ``PartitionMaker``."""
        uuid = gpu.uuid or ""
        with self._gpu(uuid, gpu.name) as calls:
            handle = calls.gpu(uuid, gpu.index)
            current, pending = calls.mode(handle)
            if not current and not pending:
                return
            if current:
                existing = self._existing(calls, handle, gpu)
                if existing:
                    raise PartitionError(
                        gpu.name, f"MIG mode stays on while it has instances: {existing}", pending=True
                    )
            self._switch(calls, handle, gpu, on=False)

    def sweep(self, owners: frozenset[str]) -> tuple[Partition, ...]:
        """See ``PartitionMaker``. Partitions of a layout stay: nobody owns them."""
        removed = []
        for entry in self._journal.entries():
            owner = entry.partition.owner
            if owner in owners or owner.startswith(LAYOUT):
                continue
            try:
                removed.append(self._remove(entry))
            except PartitionError as error:
                log.warning("cannot remove a partition that no claim has: %s", error)
        return tuple(removed)

    def made(self) -> tuple[Partition, ...]:
        """See ``PartitionMaker``. Those of layouts are not among them: nobody owns them."""
        entries = self._journal.entries()
        return tuple(entry.partition for entry in entries if not entry.partition.owner.startswith(LAYOUT))

    @property
    def fault(self) -> str:
        """See ``PartitionMaker``."""
        return self._journal.fault

    def layout_of(self, gpu: Device) -> tuple[PartitionShape, ...]:
        """The partitions made of a GPU for its layout."""
        return tuple(entry.partition.shape for entry in self._journal.of(f"{LAYOUT}{gpu.uuid}"))

    def apply_layout(self, gpu: Device, layout: MigLayout) -> None:
        """Divide a GPU that nothing uses, instead of as its former layout did; what others have made counts and stays.

        Raises PartitionError, also for what is in the way.
        """
        owner = f"{LAYOUT}{gpu.uuid}"
        entries = self._journal.of(owner)
        if not layout.enabled:
            self.remove(owner)
            self.leave_partitioning(gpu)
            return
        uuid, mine = gpu.uuid or "", {entry.partition.shape.place for entry in entries}
        with self._gpu(uuid, gpu.name) as calls:
            shapes = _planned(gpu, layout, calls.all_instances(calls.gpu(uuid, gpu.index)), mine)
        kept = {shape.place for shape in shapes}
        for entry in entries:
            if entry.partition.shape.place not in kept:
                self._remove(entry)
        with self._gpu(uuid, gpu.name) as calls:
            self._enter_mode(calls, calls.gpu(uuid, gpu.index), gpu)
        for shape in shapes:
            self.make(gpu, shape, owner)

    def _enter(
        self, calls: MigCalls, gpu: Device, shape: PartitionShape, owner: str, found: GpuInstance | None
    ) -> PartitionEntry:
        """The partition's entry; a new one is on disk before the first step."""
        uuid = gpu.uuid or ""
        known = self._journal.find(owner, uuid, shape)
        if known is not None and (known.makes is MadePart.ALL or found is not None):
            return known
        makes = MadePart.ALL
        if found is not None:
            computes = calls.compute_instances(found)
            pids = _processes(calls, computes)
            if pids:
                raise PartitionError(gpu.name, f"{_where(shape)} exists, and {pids} uses it", pending=True)
            makes = MadePart.NOTHING if computes else MadePart.COMPUTE
        entry = PartitionEntry(Partition(owner, gpu.name, uuid, replace(shape, capacity=())), makes, index=gpu.index)
        self._journal.put(entry)
        return entry

    def _create(self, calls: MigCalls, handle: Handle, gpu: Device, shape: PartitionShape) -> GpuInstance:
        try:
            return calls.create_instance(handle, shape.profile_id, shape.start, shape.size)
        except CallFailed as failed:
            if failed.error != "INSUFFICIENT_RESOURCES":
                raise
            # The driver returns this for a taken place as well as for used up engines.
            existing = self._existing(calls, handle, gpu, shape)
            taken = f": {existing}" if existing else ", because other instances use up its engines"
            raise PartitionError(gpu.name, f"the GPU has no room for {_where(shape)}{taken}", pending=True) from failed

    def _fill(
        self, calls: MigCalls, gpu: Device, shape: PartitionShape, instance: GpuInstance, *, is_new: bool
    ) -> ComputeInstance:
        """The compute instance that has all of the GPU instance."""
        profile_id, slices = calls.full_profile(instance)
        found = () if is_new else calls.compute_instances(instance)
        if not found:
            return calls.create_compute_instance(instance, profile_id)
        if found[0].slices != slices:
            raise PartitionError(
                gpu.name,
                f"{_where(shape)} is divided into {len(found)} compute instances, which ostler does not allocate "
                f"together; destroy them (nvidia-smi mig -i {gpu.index} -dci -gi {instance.number})",
            )
        return found[0]

    def _give_up(self, calls: MigCalls, handle: Handle, entry: PartitionEntry) -> None:
        """Undo an unfinished partition; what cannot be undone now stays on record for the next sweep."""
        try:
            self._take_away(calls, handle, entry)
            self._journal.drop(entry)
        except (CallFailed, PartitionError, FileError) as error:
            log.warning("a partition was made only in part and is removed later: %s", error)

    def _remove(self, entry: PartitionEntry) -> Partition:
        partition = entry.partition
        with self._gpu(partition.gpu_uuid, partition.gpu) as calls:
            if entry.makes is not MadePart.NOTHING:
                handle = calls.gpu(partition.gpu_uuid, entry.index)
                if calls.mode(handle)[0]:
                    self._take_away(calls, handle, entry)
            self._journal.drop(entry)
        log.info("partition removed", extra={"gpu": partition.gpu, "owner": partition.owner})
        return partition

    def _take_away(self, calls: MigCalls, handle: Handle, entry: PartitionEntry) -> None:
        """Destroy what is ours of a partition. Raises PartitionError while somebody uses it, and CallFailed."""
        shape, gpu = entry.partition.shape, entry.partition.gpu
        instance = None if entry.number is None else calls.instance(handle, entry.number)
        if instance is None or instance.place != shape.place:
            instance = _at(calls, handle, shape)
        if instance is None or entry.makes is MadePart.NOTHING:
            return
        computes = calls.compute_instances(instance)
        pids = _processes(calls, computes)
        if pids:
            raise PartitionError(gpu, f"{pids} still uses {_where(shape)}", pending=True)
        for compute in computes:
            with _unless_gone(gpu, shape):
                calls.destroy_compute_instance(compute)
        if entry.makes is MadePart.ALL:
            with _unless_gone(gpu, shape):
                calls.destroy_instance(instance)

    def _enter_mode(self, calls: MigCalls, handle: Handle, gpu: Device) -> None:
        if not calls.mode(handle)[0]:
            self._switch(calls, handle, gpu, on=True)

    def _switch(self, calls: MigCalls, handle: Handle, gpu: Device, *, on: bool) -> None:
        """Turn MIG mode on or off. Raises PartitionError, with the mode as it was."""
        words = "on" if on else "off"
        if not self._may_switch(gpu):
            raise PartitionError(
                gpu.name,
                f"its MIG mode would have to be turned {words}, which its rule does not allow; "
                f"turn it {words} (nvidia-smi -i {gpu.index} -mig {int(on)})",
            )
        pids = calls.processes(handle)
        if pids:
            raise PartitionError(
                gpu.name, f"MIG mode cannot be turned {words} while {_named(pids)} uses the GPU", pending=True
            )
        if calls.mode(handle)[0] == on:  # Only a pending change to the other mode is taken back.
            calls.set_mode(handle, on=on)
            return
        status = calls.set_mode(handle, on=on)
        if not status and calls.mode(handle)[0] == on:
            log.info("MIG mode changed", extra={"gpu": gpu.name, "mode": words})
            return
        if status == "RESET_REQUIRED":
            # It takes effect at the next start of the virtual machine, so it stays pending.
            raise PartitionError(
                gpu.name,
                f"MIG mode is pending: it is {words} after a reset of the GPU, which this machine cannot do by itself; "
                "restart the virtual machine",
                pending=True,
            )
        # Left pending, it would change whenever somebody resets the GPU, long after this.
        calls.set_mode(handle, on=not on)
        raise PartitionError(
            gpu.name, f"MIG mode cannot be turned {words} now ({status or 'it did not change'}): {_HELD}", pending=True
        )

    def _existing(self, calls: MigCalls, handle: Handle, gpu: Device, wanted: PartitionShape | None = None) -> str:
        """The GPU's instances in words, only those in the way of ``wanted`` if that is given; empty for none."""
        profiles = {shape.profile_id: shape.profile for shape in gpu.partitions}
        found = []
        for each in calls.all_instances(handle):
            if wanted is not None and not each.overlaps(wanted.start, wanted.size):
                continue
            profile = profiles.get(each.profile_id, f"profile {each.profile_id}")
            shape = PartitionShape(profile, each.profile_id, each.start, each.size)
            entry = self._journal.at(gpu.uuid or "", shape)
            by = f"made for {entry.partition.owner}" if entry is not None else "not made by ostler"
            found.append(f"{_where(shape)} ({by})")
        return ", ".join(found)

    @contextmanager
    def _gpu(self, uuid: str, name: str) -> Iterator[MigCalls]:
        """NVML for one GPU, which nobody else changes meanwhile; failures of calls and files become PartitionError."""
        with self._lock:
            lock = self._gpus.setdefault(uuid, threading.Lock())
        binding = self._sessions.current
        if binding is None:
            raise PartitionError(name, "NVML is not open", pending=True)
        with lock:
            try:
                with binding.shared():
                    yield MigCalls(binding)
            except CallFailed as failed:
                advice = f"; {_RIGHTS}" if failed.error == "NO_PERMISSION" else ""
                raise PartitionError(name, f"{failed}{advice}", pending=failed.error in _ENDS) from failed
            except FileError as error:
                raise PartitionError(
                    name, f"{error}; no partition is made without a record of it", pending=True
                ) from error


LAYOUT = "layout/"
"""The owner of a layout's partition begins with this; the GPU's UUID follows."""


def _planned(
    gpu: Device, layout: MigLayout, existing: Sequence[GpuInstance], mine: set[tuple[int, int]]
) -> tuple[PartitionShape, ...]:
    """Where the instances of a layout go that others have not made already. Raises PartitionError."""
    shapes = {shape.place: shape for shape in gpu.partitions}
    there = [shapes[each.place] for each in existing if each.place in shapes]
    others = [shape for shape in there if shape.place not in mine]
    wanted = Counter(layout.profiles) - Counter(shape.profile for shape in others)
    try:
        return plan_layout(gpu, sorted(wanted.elements()), mine, others)
    except LayoutError as error:
        raise PartitionError(gpu.name, f"its layout cannot be made: {error.problem}; {error.fix}") from error


def _at(calls: MigCalls, gpu: Handle, shape: PartitionShape) -> GpuInstance | None:
    """The instance of this shape, whoever made it."""
    found = calls.instances(gpu, shape.profile_id)
    return next((each for each in found if (each.start, each.size) == (shape.start, shape.size)), None)


def _processes(calls: MigCalls, computes: Sequence[ComputeInstance]) -> str:
    """What computes there, in words; empty for nothing."""
    pids = {pid for compute in computes for pid in calls.processes(compute.device)}
    return _named(sorted(pids)) if pids else ""


def _named(pids: Sequence[int]) -> str:
    return f"process{'es' if len(pids) > 1 else ''} {', '.join(map(str, pids))}"


def _where(shape: PartitionShape) -> str:
    if shape.size == 1:
        return f"{shape.profile} at memory slice {shape.start}"
    return f"{shape.profile} at memory slices {shape.start}-{shape.start + shape.size - 1}"


@contextmanager
def _unless_gone(gpu: str, shape: PartitionShape) -> Iterator[None]:
    """Destroying what does not exist any more is done; what is in use raises PartitionError."""
    try:
        yield
    except CallFailed as failed:
        if failed.error == "IN_USE":
            raise PartitionError(gpu, f"{_where(shape)} is in use", pending=True) from failed
        if failed.error not in GONE:
            raise
