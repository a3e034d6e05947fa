"""The partitions that ostler makes, has made or uses, on disk: it finds again what a crash left half made.

An entry is written before the first call to the driver, and removed after everything else. So an instance without an
entry is somebody else's, and is never destroyed. A disk that takes no more keeps no partition from being removed: the
entry stays on it until the next write, and if the agent starts before that, it finds nothing at the entry's place.

Instances end with the boot. An entry of another boot is void: what stands in its place now was made by others. For the
same reason the file need not outlive a power cut, and is written without waiting for the disk. One that is damaged is
set aside; the partitions that it named then count as somebody else's, and ostler goes on offering them unchanged.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from node.files import FileError, JsonValue, RecordSchemaUnknown, WriteFailed, read_record, set_aside, write_record
from node.inventory.model import PartitionShape
from node.partitions import Partition
from node.values import Value, replace, value

log = logging.getLogger("ostler.partitions")

SCHEMA = "partitions/v1"
FILE = "partitions.json"


class MadePart(StrEnum):
    """The parts of a partition that ostler made, and so removes."""

    ALL = "all"
    """The GPU instance and its compute instance."""
    COMPUTE = "compute"
    """The compute instance; somebody else has made the GPU instance."""
    NOTHING = "nothing"
    """Nothing: it existed before, and stays."""


@value
class PartitionEntry(Value):
    """A partition on record; ``number``: of its GPU instance, None as long as it may not exist yet.

    ``index``: the number that the GPU had.
    """

    partition: Partition
    makes: MadePart
    number: int | None = None
    index: str | None = None

    @property
    def key(self) -> tuple[str, str, int, int]:
        """Owner, GPU and place; one owner may have several partitions of a GPU."""
        return self.partition.owner, self.partition.gpu_uuid, *self.partition.shape.place


class PartitionJournal:
    """The entries, in memory and in ``folder``; ``boot``: the kernel's id of this boot, empty where there is none.

    All methods may be called from any thread.
    """

    def __init__(self, folder: Path, boot: str) -> None:
        self.path = folder / FILE
        self._boot = boot
        self._lock = threading.Lock()
        self._foreign = False
        self._swept = False
        """Whether this process has removed what killed ones left of the file."""
        self.fault = ""
        """Why what an earlier process wrote is not known; empty if it is."""
        self._unreadable: FileError | None = None
        self._stale = False
        """Whether the file has entries that were dropped."""
        self._entries = {entry.key: entry for entry in self._load()}

    def entries(self) -> tuple[PartitionEntry, ...]:
        """Everything, sorted."""
        with self._lock:
            return tuple(self._entries[key] for key in sorted(self._entries))

    def of(self, owner: str) -> tuple[PartitionEntry, ...]:
        """The entries of an owner."""
        return tuple(entry for entry in self.entries() if entry.partition.owner == owner)

    def find(self, owner: str, gpu_uuid: str, shape: PartitionShape) -> PartitionEntry | None:
        """The entry of this owner at this place."""
        with self._lock:
            return self._entries.get((owner, gpu_uuid, *shape.place))

    def at(self, gpu_uuid: str, shape: PartitionShape) -> PartitionEntry | None:
        """The entry at this place, whoever owns it."""
        place = gpu_uuid, *shape.place
        return next((entry for entry in self.entries() if entry.key[1:] == place), None)

    def put(self, entry: PartitionEntry) -> None:
        """Record an entry, in place of the one with its key. Raises FileError; then nothing is changed."""
        with self._lock:
            self._write({**self._entries, entry.key: entry})

    def drop(self, entry: PartitionEntry) -> None:
        """Forget an entry, whose parts that ostler made are gone. Raises FileError if the file cannot be read."""
        with self._lock:
            left = {key: each for key, each in self._entries.items() if key != entry.key}
            try:
                self._write(left)
            except WriteFailed as error:
                log.warning("%s; the next write removes the entry of a partition that is gone", error)
                self._entries, self._stale = left, True

    def _write(self, entries: dict[tuple[str, str, int, int], PartitionEntry]) -> None:
        if self._unreadable is not None:
            # Overwriting the file would lose the entries that it may have.
            raise self._unreadable
        if entries == self._entries and not self._stale:
            return
        if self._foreign:
            set_aside(self.path)
            self._foreign = False
        data: JsonValue = {"boot": self._boot, "made": [_json(entries[key]) for key in sorted(entries)]}
        try:
            write_record(self.path, SCHEMA, data, durable=False, sweep=not self._swept)
        except WriteFailed as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            try:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as refused:
                raise WriteFailed(self.path.parent, refused.strerror or str(refused)) from refused
            write_record(self.path, SCHEMA, data, durable=False)
        self._swept, self._stale = True, False
        self._entries = entries

    def _load(self) -> Iterable[PartitionEntry]:
        try:
            data = read_record(self.path, SCHEMA)
        except RecordSchemaUnknown as error:
            log.warning("%s; the agent treats the partitions that it names as foreign", error)
            self.fault, self._foreign = str(error), True
            return ()
        except FileError as error:
            log.warning("%s; the agent treats the partitions that it names as foreign", error)
            self.fault = str(error)
            # A file that was set aside does no harm; one that cannot be read may be readable later.
            self._unreadable = error if self.path.exists() else None
            return ()
        found = data if isinstance(data, dict) else {}
        made = found.get("made")
        entries = [entry for each in made if (entry := _entry(each))] if isinstance(made, list) else []
        if entries and self._boot and found.get("boot") != self._boot:
            log.info("%d partitions of an earlier boot are gone", len(entries))
            return ()
        return entries


def _json(entry: PartitionEntry) -> JsonValue:
    partition, shape = entry.partition, entry.partition.shape
    return {
        "owner": partition.owner,
        "gpu": partition.gpu,
        "gpuUUID": partition.gpu_uuid,
        "gpuIndex": entry.index,
        "profile": shape.profile,
        "profileID": shape.profile_id,
        "start": shape.start,
        "size": shape.size,
        "makes": entry.makes.value,
        "gpuInstance": entry.number,
        "uuid": partition.uuid,
    }


def _entry(data: JsonValue) -> PartitionEntry | None:
    """An entry, None for an invalid one: the others still hold."""
    match data:
        case {
            "owner": str(owner),
            "gpu": str(gpu),
            "gpuUUID": str(gpu_uuid),
            "profile": str(profile),
            "profileID": int(profile_id),
            "start": int(start),
            "size": int(size),
            "makes": ("all" | "compute" | "nothing") as makes,
            "uuid": str(uuid),
            "gpuInstance": (int() | None) as number,
            "gpuIndex": (str() | None) as index,
        }:
            shape = PartitionShape(profile, profile_id, start, size)
            return PartitionEntry(Partition(owner, gpu, gpu_uuid, shape, uuid), MadePart(makes), number, index)
        case _:
            return None


def with_device(entry: PartitionEntry, number: int, uuid: str) -> PartitionEntry:
    """The entry of a partition that exists."""
    return replace(entry, number=number, partition=replace(entry.partition, uuid=uuid))
