"""The record of devices that the DRA door has shown to the scheduler and that claims may still name.

The plugin door may allocate a device that moves there from claims only when it can no longer have been allocated to
anybody. After a kill the next agent must know that it has to wait, even if its rules do not mention claims. So a device
enters this record before it is first published, and leaves it when its withdrawal is confirmed
(``driver.publishing.withdrawal``). If the record cannot be read, every device counts as shown; that is remembered as
well.

The memory never has less than claims may get: a device counts as shown from the moment of the decision to show it
(``expect``), because the plugin door must not get it just before it is published. The disk may have more: if a full
disk cannot record a withdrawal, the next process confirms it once more, and nobody has to wait for the device until
then.

``cover`` and ``forget`` write to the disk and are for threads; the other methods do not block. A device that is
expected or covered while its withdrawal is being confirmed stays; the numbers serve that purpose.
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
    """The names of devices that count as shown; see the module."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / NAME
        self._disk = threading.Lock()
        """Held while the record is written; taken before ``_lock``, which is held only for moments."""
        self._lock = threading.Lock()
        self._names: frozenset[str] = frozenset()
        self._written: frozenset[str] = frozenset()
        self._everything = False
        self._serial = 0
        self._covered: dict[str, int] = {}

    def load(self) -> str:
        """Load what an earlier process left; returns the problem in words, empty if there is none.

        Call it once, before anything else.
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
        """Which of ``devices``, all that the node has, may still be free in a slice or named by a claim."""
        return self._names | frozenset(devices) if self._everything else self._names

    @property
    def serial(self) -> int:
        """A number for the present moment, for ``forget``."""
        return self._serial

    def expect(self, names: Iterable[str]) -> None:
        """Count these as shown from now on; they are about to be covered."""
        with self._lock:
            self._count(frozenset(names))

    def cover(self, names: Iterable[str]) -> frozenset[str]:
        """Write these to the disk before they are published; returns those that were not there yet.

        Raises WriteFailed; then the new ones must not be shown to anybody.
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
        """Whether the record on disk has it."""
        return name in self._written

    def forget(self, names: Iterable[str], as_of: int, devices: Iterable[str] = ()) -> tuple[frozenset[str], str]:
        """Forget these: their withdrawal was confirmed as of the number ``as_of``.

        Returns what is forgotten, and why it is still on disk, empty if it is not. ``devices``: all that the node has;
        with them the names are known even if the record could not be read.
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
                # Checked again: a device that was expected meanwhile stays, and is written before it is published.
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
        """Record on disk that nothing is known; returns the fault, if the next process will not find it out itself."""
        try:
            self._write(frozenset(), everything=True)
        except FileError as again:
            aside = error.aside if isinstance(error, RecordDamaged) else None
            # If the damaged file is still in its place, the next process cannot read it either.
            if aside is not None and not self._is_back(aside):
                return f", and a restart would not know that: {again}"
        return ""

    def _is_back(self, aside: Path) -> bool:
        """Put a damaged record back in its place: on a full disk, the damage shows the next process the same."""
        try:
            aside.rename(self._path)
        except OSError:
            return False  # The caller reports it.
        return True

    def _write(self, names: frozenset[str], *, everything: bool) -> None:
        if not names and not everything:
            # A missing file says that there is nothing to serve, which the start asks before anything is loaded.
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
                raise ValueError("devices must be a list")  # noqa: TRY004 - one exception type for every damage
            names = [name for name in devices if isinstance(name, str)]
            if len(names) < len(devices):
                raise ValueError("devices must contain only strings")
        except (KeyError, ValueError) as error:
            raise RecordDamaged(self._path, str(error), set_aside(self._path)) from error
        return frozenset(names), data.get("everything") is True


def _said(error: FileError) -> str:
    if isinstance(error, RecordSchemaUnknown):
        # Nothing is lost by overwriting a later version's record: that version can read this one's, which will say
        # more.
        return f"{error.path} has schema {error.found}, this version knows {error.known}"
    return str(error)
