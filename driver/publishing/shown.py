"""Which devices the DRA door has shown to the scheduler and may still be asked for, on disk.

A device that moves from claims to the plugin door is given out there only when nobody can have been allocated it any
more. An agent that was killed in between must know that it has to wait, also when its rules do not mention claims: so a
device is in this record before it is published for the first time, and leaves it when its withdrawal is confirmed
(``driver.publishing.withdrawal``). Where the record cannot be read, every device counts as shown; that is remembered,
too.

What is in memory is never less than what claims may get: a device counts as shown from the moment in which it is
decided that it will be (``expect``), since the plugin door must not have it in the moment before it is published. What
is on the disk may be more: a withdrawal that a full disk does not remember is confirmed once more by the next process,
and keeps nobody from the device until then.

``cover`` and ``forget`` write to the disk and are for threads; the rest waits for nobody. A device that is expected or
covered while somebody confirms its withdrawal stays, which is what the numbers are for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

from node.files import (
    FileError,
    JsonValue,
    RecordDamaged,
    RecordSchemaUnknown,
    read_record,
    set_aside,
    write_record,
)

NAME = "dra-door.json"
SCHEMA = "dra-door/v1"


class ShownDevices:
    """Names of devices; see the module."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / NAME
        self._disk = threading.Lock()
        """Held while the record is written; taken before ``_lock``, which is held for moments."""
        self._lock = threading.Lock()
        self._names: frozenset[str] = frozenset()
        self._written: frozenset[str] = frozenset()
        self._everything = False
        self._serial = 0
        self._covered: dict[str, int] = {}

    def load(self) -> str:
        """Take what an earlier process left; in words what is wrong with it, empty for nothing.

        To be called once, before anything else.
        """
        try:
            self._names, self._everything = self._read()
        except FileError as error:
            self._everything = True
            unknown = "every device counts as shown to claims until its withdrawal is confirmed"
            return f"{_said(error)}; {unknown}{self._kept(error)}"
        self._written = self._names
        return ""

    def among(self, devices: Iterable[str]) -> frozenset[str]:
        """What may still be free in a slice, or named by a claim; ``devices`` are all that the node has."""
        return self._names | frozenset(devices) if self._everything else self._names

    @property
    def serial(self) -> int:
        """A number for now, for ``forget``."""
        return self._serial

    def expect(self, names: Iterable[str]) -> None:
        """These are about to be covered, and count as shown from now on."""
        with self._lock:
            self._count(frozenset(names))

    def cover(self, names: Iterable[str]) -> frozenset[str]:
        """Write these to the disk, because they are about to be published; returns those that are new there.

        Raises WriteFailed; then nobody may be shown what was new.
        """
        wanted = frozenset(names)
        with self._disk:
            with self._lock:
                self._count(wanted)
                known, everything = self._names, self._everything
            new = wanted - self._written
            if new:
                self._write(known, everything=everything)
            return new

    def on_disk(self, name: str) -> bool:
        """Whether the record has it."""
        return name in self._written

    def forget(self, names: Iterable[str], as_of: int, devices: Iterable[str] = ()) -> tuple[frozenset[str], str]:
        """The withdrawal of these is confirmed, as things were at the number ``as_of``.

        Returns what is forgotten, and why the disk still has it, empty for nothing. ``devices``: all that the node has;
        what they are is known then, also where the record could not be read.
        """
        everybody, confirmed, problem = frozenset(devices), frozenset(names), ""
        with self._disk:
            with self._lock:
                left = self.among(everybody) - self._not_counted_since(confirmed, as_of)
                outdated = left != self._written or self._everything
            if outdated:
                try:
                    self._write(left, everything=False)
                except FileError as error:
                    problem = str(error)
            with self._lock:
                # Looked at again: what was expected meanwhile stays, and is written before it is published.
                ended = self._not_counted_since(confirmed, as_of)
                self._names, self._everything = self.among(everybody) - ended, False
                for name in ended:
                    self._covered.pop(name, None)
        return ended, problem

    def _count(self, names: frozenset[str]) -> None:
        self._serial += 1
        self._covered.update(dict.fromkeys(names, self._serial))
        self._names |= names

    def _not_counted_since(self, names: frozenset[str], as_of: int) -> frozenset[str]:
        return frozenset(name for name in names if self._covered.get(name, 0) <= as_of)

    def _kept(self, error: FileError) -> str:
        """Have it on the disk that nothing is known; what went wrong, if the next process will not find that out."""
        try:
            self._write(frozenset(), everything=True)
        except FileError as again:
            aside = error.aside if isinstance(error, RecordDamaged) else None
            # What is still in its place the next process cannot read either.
            if aside is not None and not self._is_back(aside):
                return f", and a restart would not know that: {again}"
        return ""

    def _is_back(self, aside: Path) -> bool:
        """Have a damaged record where it was: that it is damaged says as much to the next process, on a full disk."""
        try:
            aside.rename(self._path)
        except OSError:
            return False  # The caller reports it.
        return True

    def _write(self, names: frozenset[str], *, everything: bool) -> None:
        if not names and not everything:
            # No file says that there is nothing to serve, which the start asks before anything is loaded.
            self._remove()
        else:
            devices: list[JsonValue] = [*sorted(names)]
            write_record(self._path, SCHEMA, {"devices": devices, "everything": everything})
        self._written = names

    def _remove(self) -> None:
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise FileError(self._path, f"{self._path} cannot be removed: {error.strerror or error}") from error

    def _read(self) -> tuple[frozenset[str], bool]:
        data = read_record(self._path, SCHEMA)
        if data is None:
            return frozenset(), False
        try:
            devices = data["devices"] if isinstance(data, dict) else None
            if not isinstance(devices, list) or not isinstance(data, dict):
                raise ValueError("it has no list of devices")  # noqa: TRY004 - one exception type for every damage
            names = [name for name in devices if isinstance(name, str)]
            if len(names) < len(devices):
                raise ValueError("devices contains something that is not a string")
        except (KeyError, ValueError) as error:
            raise RecordDamaged(self._path, str(error), set_aside(self._path)) from error
        return frozenset(names), data.get("everything") is True


def _said(error: FileError) -> str:
    if isinstance(error, RecordSchemaUnknown):
        # Nothing is lost by writing over a later version's record, which can read this one's: it will say more.
        return f"{error.path} has schema {error.found}, this version knows {error.known}"
    return str(error)
