"""The folder of claim records: one file per claim, so that a damaged one costs one claim.

Blocking; for worker threads. Different claims may be written at the same time, one claim only by one thread.
"""

from __future__ import annotations

import os
from pathlib import Path

from driver.claims.model import ClaimReference, ClaimState
from driver.claims.record import SCHEMA, ClaimRecord, record_json, record_of
from node.files import (
    FileError,
    ReadFailed,
    RecordDamaged,
    RecordSchemaUnknown,
    WriteFailed,
    read_record,
    set_aside,
    write_record,
)
from node.values import Value, value

_SUFFIX = ".json"


@value
class Stored(Value):
    """What was found: records by UID, and those that could not be read with the reason.

    ``foreign``: of these the ones that another version wrote; their files are left as they are.
    """

    records: dict[str, ClaimRecord]
    unreadable: dict[str, str]
    foreign: frozenset[str] = frozenset()


class RecordStore:
    """Records in ``folder``, which is made at the first write.

    A record that another version wrote is left as it is until this version has something else to say of the claim,
    and is set aside then.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._foreign: set[str] = set()

    def load(self) -> Stored:
        """Everything there is; damaged files are set aside. Raises ReadFailed when the folder cannot be listed."""
        records: dict[str, ClaimRecord] = {}
        unreadable: dict[str, str] = {}
        self._foreign.clear()
        for uid in self._uids():
            try:
                record = self._read(uid)
            except FileError as error:
                unreadable[uid] = str(error)
                if isinstance(error, RecordSchemaUnknown):
                    self._foreign.add(uid)
                continue
            if record is not None:
                records[uid] = record
        return Stored(records, unreadable, frozenset(self._foreign))

    def write(self, record: ClaimRecord) -> None:
        """Have the record on the disk; raises WriteFailed.

        One that is only started need not outlive a power cut: the kubelet was not answered, or has all of it on record
        itself.
        """
        path = self.path(record.claim.uid)
        if record.claim.uid in self._foreign:
            set_aside(path)
            self._foreign.discard(record.claim.uid)
        data, durable = record_json(record), record.state is ClaimState.COMPLETED
        try:
            write_record(path, SCHEMA, data, durable=durable, sweep=False)
        except WriteFailed as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            self._make_folder()
            write_record(path, SCHEMA, data, durable=durable, sweep=False)

    def remove(self, uid: str) -> None:
        """Forget the claim, on the disk too; one that is not there is forgotten. Raises WriteFailed.

        A power cut may bring the record back. It is of an earlier boot then, and collected as soon as the API server
        says that nobody has the claim.
        """
        path = self.path(uid)
        try:
            path.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            # A disk that is read-only refuses that for a file that is not there, too.
            if os.path.lexists(path):
                raise WriteFailed(path, error.strerror or str(error)) from error

    def sweep_unfinished(self) -> None:
        """Remove what a killed process was writing; only while no other process of ours writes.

        Raises ReadFailed when the folder cannot be listed.
        """
        for name in self._names():
            if name.startswith(".") and name.endswith(".tmp"):
                try:
                    (self.folder / name).unlink(missing_ok=True)
                except OSError:
                    continue  # Never read; the next start tries again.

    def path(self, uid: str) -> Path:
        """The claim's file."""
        return self.folder / f"{uid}{_SUFFIX}"

    def _read(self, uid: str) -> ClaimRecord | None:
        path = self.path(uid)
        data = read_record(path, SCHEMA)
        if data is None:
            return None
        try:
            return record_of(data, uid)
        except ValueError as error:
            raise RecordDamaged(path, str(error), set_aside(path)) from error

    def _uids(self) -> list[str]:
        visible = (name for name in self._names() if name.endswith(_SUFFIX) and not name.startswith("."))
        return sorted(name.removesuffix(_SUFFIX) for name in visible)

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.folder)  # noqa: PTH208 - names are all that is wanted
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ReadFailed(self.folder, error.strerror or str(error)) from error

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise WriteFailed(self.folder, error.strerror or str(error)) from error


def unnamed(uid: str) -> ClaimReference:
    """A claim of which only the UID is known."""
    return ClaimReference("", "", uid)
