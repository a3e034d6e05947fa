"""The files of claims: a record and a CDI file for each, so that a damaged file costs one claim.

Blocking; for worker threads. Several threads may write at once, but only one thread per claim. A prefix in the names of
our CDI files distinguishes them from the files of others. The names of devices in a CDI file contain the claim's UID
and are never reused, so a leftover file gives nothing away.
"""

from __future__ import annotations

import os
from pathlib import Path

from driver.claims.model import RecordState, Unavailable
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
    write_whole,
)
from node.opening import read_regular
from node.values import Value, value

_SUFFIX = ".json"


@value
class StoredClaims(Value):
    """The records found, by UID, and the reason for each that could not be read.

    ``foreign``: those of them that another version wrote; their files are left alone.
    """

    records: dict[str, ClaimRecord]
    unreadable: dict[str, str]
    foreign: frozenset[str] = frozenset()


class RecordStore:
    """Records in ``folder``, which the first write creates.

    A record that another version wrote stays as it is until this version has something new to write about the claim;
    then it is set aside.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._foreign: set[str] = set()

    def load(self) -> StoredClaims:
        """Load every record; damaged files are set aside. Raises ReadFailed if the folder cannot be listed."""
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
        return StoredClaims(records, unreadable, frozenset(self._foreign))

    def write(self, record: ClaimRecord) -> None:
        """Write the record; raises WriteFailed.

        A record that is only started need not survive a power cut: either the kubelet got no answer, or it has
        everything on record itself.
        """
        path = self.path(record.claim.uid)
        if record.claim.uid in self._foreign:
            set_aside(path)
            self._foreign.discard(record.claim.uid)
        data, durable = record_json(record), record.state is RecordState.COMPLETED
        try:
            write_record(path, SCHEMA, data, durable=durable, sweep=False)
        except WriteFailed as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            self._make_folder()
            write_record(path, SCHEMA, data, durable=durable, sweep=False)

    def remove(self, uid: str) -> None:
        """Remove the claim's record; it may be gone already. Raises WriteFailed.

        A power cut may bring the record back. It then belongs to an earlier boot, and is collected as soon as the API
        server says that nobody uses the claim.
        """
        path = self.path(uid)
        try:
            path.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            # A read-only disk refuses to remove even a file that does not exist.
            if os.path.lexists(path):
                raise WriteFailed(path, error.strerror or str(error)) from error

    def sweep_unfinished(self) -> None:
        """Remove files that a killed process left unfinished; call it only while no other process of ours writes.

        Raises ReadFailed if the folder cannot be listed.
        """
        for name in self._names():
            if name.startswith(".") and name.endswith(".tmp"):
                try:
                    (self.folder / name).unlink(missing_ok=True)
                except OSError:
                    continue  # Nothing reads it; the next start tries again.

    def path(self, uid: str) -> Path:
        """The path of the claim's file."""
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


_MODE = 0o644
"""Container runtimes may run as any user; a spec contains no secret."""


class ClaimSpecs:
    """Files ``<prefix><uid>.json`` in ``folder``; several for one claim have something after its UID."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self.folder = folder
        self._prefix = prefix

    def path(self, uid: str) -> Path:
        """The path of the claim's file."""
        return self.folder / f"{self._prefix}{uid}.json"

    def ensure(self, uid: str, text: str) -> bool:
        """Write this content to the claim's file, or remove the file if it is empty; returns whether anything changed.

        A power cut may lose the file: it voids the preparation as well, so the kubelet asks again before a container
        needs it. Raises Unavailable with the fix.
        """
        if not text:
            return self.remove(uid)
        path = self.path(uid)
        data = text.encode()
        try:
            if read_regular(path, len(data)) == data:
                return False
        except OSError:
            pass  # Missing or unreadable: the write below replaces it or reports the fault.
        try:
            try:
                write_whole(path, data, _MODE, sweep=False, replaceable=True)
            except WriteFailed as error:
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise
                self._make_folder()
                write_whole(path, data, _MODE, sweep=False, replaceable=True)
        except (WriteFailed, OSError) as error:
            raise _fault(path, "written", error) from error
        return True

    def remove(self, uid: str) -> bool:
        """Remove the claim's file; returns whether there was one. Raises Unavailable with the fix."""
        path = self.path(uid)
        try:
            path.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise _fault(path, "removed", error) from error
        return True

    def uids(self) -> frozenset[str]:
        """Claims that have a file; empty if the folder cannot be read."""
        return frozenset(
            name[len(self._prefix) : -len(".json")]
            for name in self._names()
            if name.startswith(self._prefix) and name.endswith(".json")
        )

    def text(self, uid: str) -> str:
        """The content of a claim's file; empty if it is missing, unreadable, or larger than any file of ours."""
        from node.cdi.spec import LARGEST  # The start does not need it.

        try:
            return read_regular(self.path(uid), LARGEST).decode()
        except (OSError, ValueError):
            return ""

    def sweep_unfinished(self) -> None:
        """Remove files that a killed process left unfinished; call it only while no other process of ours writes."""
        for name in self._names():
            if name.startswith(f".{self._prefix}") and name.endswith(".tmp"):
                try:
                    (self.folder / name).unlink(missing_ok=True)
                except OSError:
                    continue  # Runtimes do not see hidden files; the next start tries again.

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.folder)  # noqa: PTH208 - names are all that is wanted
        except OSError:
            return []

    def _make_folder(self) -> None:
        for folder in reversed((self.folder, *self.folder.parents)):
            if not folder.is_dir():
                folder.mkdir(exist_ok=True)
                # The agent's umask keeps its own files private, but runtimes must be able to read this folder.
                folder.chmod(0o755)


def _fault(path: Path, done: str, error: WriteFailed | OSError) -> Unavailable:
    reason = error.reason if isinstance(error, WriteFailed) else error.strerror or str(error)
    return Unavailable(f"CDI file {path} cannot be {done} ({reason}); check the folder and its disk")
