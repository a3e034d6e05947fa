"""The record of interfaces that are out of the node's network namespace, or about to leave it.

One file per claim, so that a damaged file costs one claim. It is written before the first interface moves and removed
after the last one is back, and it has all that is needed to take them back. A reboot ends every namespace and gives the
interfaces back as they were at boot, so the files need not outlive a power cut, and those of an earlier boot count for
nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from driver.claims.model import ClaimReference
from driver.nri.sandboxes import Sandbox
from node.files import FileError, RecordDamaged, WriteFailed, read_record, set_aside, write_record
from node.interfaces.model import AttachedInterface, HostSetup, MovableInterface
from node.value_data import from_data, to_data
from node.values import Value, value

SCHEMA = "claim-interfaces/v1"
_SUFFIX = ".json"


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
class JournalContent(Value):
    """The moves on record by the claim's UID, and by UID the reason for each that could not be read."""

    moves: dict[str, ClaimMove]
    unreadable: dict[str, str]


class InterfaceJournal:
    """Moves in ``folder``, which the first write creates. Blocking; one call per claim at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self) -> JournalContent:
        """Every move on record; damaged files are set aside, and what killed writers left is removed."""
        moves: dict[str, ClaimMove] = {}
        unreadable: dict[str, str] = {}
        for path in sorted(self.folder.glob(f"*{_SUFFIX}")):
            uid = path.name.removesuffix(_SUFFIX)
            try:
                found = self._read(path, uid)
            except FileError as error:
                unreadable[uid] = str(error)
                continue
            if found is not None:
                moves[uid] = found
        for path in self.folder.glob(".*.tmp"):
            with contextlib.suppress(OSError):  # Nothing reads it; the next start tries again.
                path.unlink()
        return JournalContent(moves, unreadable)

    def write(self, move: ClaimMove) -> None:
        """Write the move; raises WriteFailed."""
        path, data = self.path(move.claim.uid), to_data(move)
        write_below(self.folder, lambda: write_record(path, SCHEMA, data, durable=False, sweep=False))

    def remove(self, uid: str) -> None:
        """Forget the claim's move; it may be forgotten already. Raises WriteFailed."""
        remove_file(self.path(uid))

    def path(self, uid: str) -> Path:
        """The path of the claim's file."""
        return self.folder / f"{uid}{_SUFFIX}"

    def _read(self, path: Path, uid: str) -> ClaimMove | None:
        data = read_record(path, SCHEMA)
        if data is None:
            return None
        try:
            move = from_data(ClaimMove, data)
            if move.claim.uid != uid:
                raise ValueError(f"it is about claim {move.claim.uid}")
        except ValueError as error:
            raise RecordDamaged(path, str(error), set_aside(path)) from error
        return move


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
