"""The record of interfaces that are out of the node's network namespace, or about to leave it.

One file per claim, so that a damaged file costs one claim. It is written before the first interface moves and removed
after the last one is back, and it has all that is needed to take them back. A reboot ends every namespace and gives the
interfaces back as they were at boot, so the files need not outlive a power cut, and those of an earlier boot count for
nothing.

An interface that does not come back is lost, but not forgotten: by a record of its own (``LostInterface``) it is
restored when it appears (``driver.interfaces.lost``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from driver.claims.model import ClaimReference
from driver.nri.sandboxes import Sandbox
from node.files import FileError, RecordDamaged, WriteFailed, read_record, set_aside, write_record
from node.interfaces.model import AttachedInterface, HostSetup, MovableInterface
from node.value_data import from_data, to_data
from node.values import Value, value

SCHEMA = "claim-interfaces/v1"
LOST_SCHEMA = "lost-interface/v1"
_SUFFIX = ".json"
Made = TypeVar("Made", bound=Value)


@value
class InterfaceMove(Value):
    """An interface, and what it had on the node before it moved."""

    interface: MovableInterface
    setup: HostSetup


@value
class ClaimMove(Value):
    """The interfaces of a claim that move into a sandbox; ``boot``: the id of the boot in which they do.

    ``attached``: what they are in the pod, in the order of ``moves``; empty until all of them are there.
    """

    claim: ClaimReference
    boot: str
    sandbox: Sandbox
    moves: tuple[InterfaceMove, ...]
    attached: tuple[AttachedInterface, ...] = ()

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices whose interfaces move."""
        return tuple(each.interface.device for each in self.moves)


@value
class LostInterface(Value):
    """An interface that neither the node nor its pod had when it was to come back; it was moved in that ``boot``.

    ``since``: Unix seconds. ``within``: the devices that its own is a part of, as in ``Hold``.
    """

    claim: ClaimReference
    boot: str
    sandbox: Sandbox
    move: InterfaceMove
    since: float
    within: tuple[str, ...] = ()


class RecordFolder(Generic[Made]):
    """Records of one kind in ``folder``, which the first write creates. Blocking; one call per record at a time.

    ``name_of``: names a record's file; ``about`` says in messages what has that name.
    """

    def __init__(self, folder: Path, kind: type[Made], schema: str, about: str, name_of: Callable[[Made], str]) -> None:
        self.folder = folder
        self._kind = kind
        self._schema = schema
        self._about = about
        self._name_of = name_of

    def load(self) -> tuple[dict[str, Made], dict[str, str]]:
        """The records by name, and by name the reason for each that could not be read.

        Damaged files are set aside, and what killed writers left is removed.
        """
        records: dict[str, Made] = {}
        unreadable: dict[str, str] = {}
        for path in sorted(self.folder.glob(f"*{_SUFFIX}")):
            name = path.name.removesuffix(_SUFFIX)
            try:
                found = self._read(path, name)
            except FileError as error:
                unreadable[name] = str(error)
                continue
            if found is not None:
                records[name] = found
        for path in self.folder.glob(".*.tmp"):
            with contextlib.suppress(OSError):  # Nothing reads it; the next start tries again.
                path.unlink()
        return records, unreadable

    def write(self, record: Made) -> None:
        """Write the record in place of an earlier one; raises WriteFailed."""
        path, data = self.path(self._name_of(record)), to_data(record)
        write_below(self.folder, lambda: write_record(path, self._schema, data, durable=False, sweep=False))

    def remove(self, name: str) -> None:
        """Remove the record; there may be none. Raises WriteFailed."""
        remove_file(self.path(name))

    def path(self, name: str) -> Path:
        """The path of the record's file."""
        return self.folder / f"{name}{_SUFFIX}"

    def _read(self, path: Path, name: str) -> Made | None:
        data = read_record(path, self._schema)
        if data is None:
            return None
        try:
            found = from_data(self._kind, data)
            if self._name_of(found) != name:
                raise ValueError(f"it is about {self._about} {self._name_of(found)}")
        except ValueError as error:
            raise RecordDamaged(path, str(error), set_aside(path)) from error
        return found


class InterfaceJournal(RecordFolder[ClaimMove]):
    """Moves by the claim's UID."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, ClaimMove, SCHEMA, "claim", lambda move: move.claim.uid)


class LostJournal(RecordFolder[LostInterface]):
    """Lost interfaces by device."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, LostInterface, LOST_SCHEMA, "device", lambda lost: lost.move.interface.device)


def write_below(folder: Path, write: Callable[[], object]) -> None:
    """Write, after making the folder if it is missing; raises WriteFailed."""
    try:
        write()
    except WriteFailed as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        _make_folder(folder)
        write()


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise WriteFailed(folder, error.strerror or str(error)) from error


def remove_file(path: Path) -> None:
    """Remove the file, which may be gone already; raises WriteFailed."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise WriteFailed(path, error.strerror or str(error)) from error
