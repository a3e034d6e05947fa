"""Moves all interfaces of a claim into a sandbox, or none of them, and takes them back.

The order of the steps makes a kill between any two of them harmless:

- Moving: journal, a pin of the namespace (``node.interfaces.pins``), interfaces one after the other, journal with what
  they are in the pod, guard. The caller writes the guard (``guard``), after what containers must find when they start.
- Taking back: guard, interfaces in reverse order, pin, journal.

A restart that finds a move on record without its guard finishes it, or takes back what has moved. ``InterfaceStep`` has
the steps for tests that end the process there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from driver.claims.model import ClaimReference
from driver.interfaces.guard import Guards
from driver.interfaces.journal import ClaimMove, InterfaceJournal, InterfaceMove, LostInterface, LostJournal
from driver.nri.sandboxes import Sandbox
from node.files import FileError
from node.interfaces.model import AttachedInterface, HostSetup, InterfaceError, MovableInterface
from node.interfaces.mover import InterfaceMover, subject_of
from node.interfaces.pins import NamespacePins
from node.values import Value, replace, value


class InterfaceStep(StrEnum):
    """The step that was just done."""

    RECORDED = "move: the journal has it"
    PINNED = "move: the namespace is pinned"
    ATTACHED = "move: one interface is in the pod"
    COMPLETED = "move: the journal has what they are in the pod"
    GUARDED = "move: the guard is written"
    UNGUARDED = "take back: the guard is removed"
    DETACHED = "take back: one interface is on the node"
    FORGOTTEN = "take back: the journal has forgotten it"


class InterfaceSteps:
    """Does nothing; tests end the process at a step. Called in the thread that did the step."""

    def reached(self, step: InterfaceStep, uid: str) -> None:
        """The step is done for the claim with this UID."""


class InterfaceMissing(InterfaceError):
    """The ``missing`` ones are neither on the node nor in the pod; the kernel may bring them back in a moment."""

    def __init__(self, missing: tuple[InterfaceMove, ...]) -> None:
        subjects = ", ".join(subject_of(each.interface) for each in missing)
        super().__init__(f"{subjects}: not found on the node or in the pod")
        self.missing = missing


class MoveFailed(InterfaceError):
    """The interfaces of a claim cannot be moved; ``left``: the move that could not be undone, None if all are back."""

    def __init__(self, text: str, left: ClaimMove | None) -> None:
        super().__init__(text)
        self.left = left


@value
class FoundMoves(Value):
    """The moves that an earlier process left, by the claim's UID, and the claims whose file was damaged, with why.

    ``stuck``: why files that count no more could not be removed.
    """

    moves: dict[str, ClaimMove]
    unreadable: dict[str, str]
    stuck: tuple[str, ...] = ()


class InterfaceMoves:
    """Works for one claim per call and thread, and for one call per claim at a time.

    ``state_dir``: of the agent. ``guard_dir``: of the guards, the same path on the host. ``mover`` makes the mover in
    a worker thread, when ``warm`` is called or the first interface moves.
    """

    def __init__(
        self,
        state_dir: Path,
        guard_dir: Path,
        mover: Callable[[], InterfaceMover],
        boot: str,
        steps: InterfaceSteps | None = None,
    ) -> None:
        self.journal = InterfaceJournal(state_dir / "interfaces" / "journal")
        self.lost = LostJournal(state_dir / "interfaces" / "lost")
        self.guards = Guards(guard_dir)
        self._pins = NamespacePins(state_dir / "interfaces" / "namespaces")
        self._make_mover = mover
        self._boot = boot
        self._steps = steps or InterfaceSteps()

    @cached_property
    def _mover(self) -> InterfaceMover:
        return self._make_mover()

    def warm(self) -> None:
        """Load the means of the first move, which takes tens of milliseconds, before a pod waits for it."""
        self._mover  # noqa: B018 - made on first use

    def load(self) -> FoundMoves:
        """Load the moves that an earlier process of this boot left; remove older ones.

        A move without its guard was not completed, or its end had begun.
        """
        (found, unreadable), guards = self.journal.load(), self.guards.uids()
        moves = {
            uid: move if self.guards.is_open(uid) else replace(move, attached=())
            for uid, move in found.items()
            if not self._is_of_earlier_boot(move.boot)
        }
        outdated = found.keys() - moves.keys()
        stuck = []
        for uid in sorted({*guards, *outdated} - {uid for uid, move in moves.items() if move.attached}):
            try:
                self.guards.remove(uid)
                if uid in outdated:
                    self.journal.remove(uid)
            except FileError as error:
                left = f"what an earlier agent left of the interfaces of claim {uid}"
                stuck.append(f"{left} still lets its containers start: {error}")
        self._pins.keep_only({*moves, *unreadable})
        return FoundMoves(moves, unreadable, tuple(stuck))

    def load_lost(self) -> tuple[dict[str, LostInterface], dict[str, str]]:
        """The lost interfaces of this boot by device, and by device why a record is of no use; older ones are removed.

        A reboot has given back those of earlier boots.
        """
        found, unreadable = self.lost.load()
        for device in [device for device, lost in found.items() if self._is_of_earlier_boot(lost.boot)]:
            del found[device]
            with suppress(FileError):  # The next start tries again.
                self.lost.remove(device)
        return found, unreadable

    def _is_of_earlier_boot(self, boot: str) -> bool:
        return bool(self._boot and boot and boot != self._boot)

    def move(
        self,
        claim: ClaimReference,
        sandbox: Sandbox,
        interfaces: tuple[MovableInterface, ...],
        begun: ClaimMove | None = None,
    ) -> ClaimMove:
        """Move the claim's interfaces into the sandbox; ``begun``: what an earlier process has begun there.

        Raises MoveFailed.
        """
        if begun is None:
            try:
                moves = tuple(InterfaceMove(each, self._mover.look(each)) for each in interfaces)
                begun = ClaimMove(claim, self._boot, replace(sandbox, containers=()), moves)
                self.journal.write(begun)
            except (InterfaceError, FileError) as error:
                raise MoveFailed(f"claim {claim}: {error}", None) from error
        self._steps.reached(InterfaceStep.RECORDED, claim.uid)
        self._pins.pin(claim.uid, Path(begun.sandbox.netns))
        self._steps.reached(InterfaceStep.PINNED, claim.uid)
        try:
            attached = tuple(self._attach(each, begun) for each in begun.moves)
            done = replace(begun, attached=attached)
            self.journal.write(done)
        except Exception as error:  # Whatever it is, a part of the claim must not stay in the pod.
            raise self._undone(begun, str(error)) from error
        self._steps.reached(InterfaceStep.COMPLETED, claim.uid)
        return done

    def guard(self, move: ClaimMove) -> None:
        """Write the guard of a completed move unless it is there; raises MoveFailed, with the interfaces taken back."""
        try:
            if not self.guards.is_open(move.claim.uid):
                self.guards.write(move.claim.uid, move.attached)
        except (FileError, OSError) as error:
            raise self._undone(move, f"{error}; check the state folder and its disk") from error
        self._steps.reached(InterfaceStep.GUARDED, move.claim.uid)

    def take_back(self, move: ClaimMove) -> tuple[str, ...]:
        """Take the interfaces back and forget the move; returns in words which ones have another name now.

        Raises InterfaceMissing if the kernel has an interface nowhere, and InterfaceError if something that is there
        cannot be taken back; the call may be repeated.
        """
        uid, problems, missing, renamed = move.claim.uid, list[str](), list[InterfaceMove](), list[str]()
        try:
            self.guards.remove(uid)
        except FileError as error:
            raise InterfaceError(f"{error}; check the state folder and its disk") from error
        self._steps.reached(InterfaceStep.UNGUARDED, uid)
        # The sandbox may have ended while nobody took its interfaces back.
        netns = self._pins.path(uid) or namespace_of(move.sandbox)
        for each in reversed(move.moves):
            try:
                name = self._mover.detach(each.interface, each.setup, netns)
                if not name:
                    missing.append(each)
                elif name != each.setup.interface:
                    renamed.append(_renamed(each, name))
            except InterfaceError as error:
                problems.append(str(error))
            except OSError as error:
                problems.append(f"{subject_of(each.interface)}: {error}")
            self._steps.reached(InterfaceStep.DETACHED, uid)
        if problems:
            raise InterfaceError("; ".join(problems))
        if missing:
            raise InterfaceMissing(tuple(missing))
        self.forget(move)
        return tuple(renamed)

    def forget(self, move: ClaimMove) -> None:
        """Remove the move from the journal; raises InterfaceError."""
        self._pins.release(move.claim.uid)
        try:
            self.journal.remove(move.claim.uid)
        except FileError as error:
            raise InterfaceError(f"{error}; check the state folder and its disk") from error
        self._steps.reached(InterfaceStep.FORGOTTEN, move.claim.uid)

    def recall(self, lost: LostInterface) -> str:
        """Restore a lost interface if the node or its old pod has it; its name then. Raises InterfaceError."""
        return self._mover.detach(lost.move.interface, lost.move.setup, namespace_of(lost.sandbox))

    def is_gone(self, move: InterfaceMove) -> bool:
        """Whether a missing interface can never come back; raises InterfaceError."""
        return self._mover.is_gone(move.interface, move.setup)

    def found(self, claim: ClaimReference, interfaces: tuple[MovableInterface, ...], sandbox: Sandbox) -> ClaimMove:
        """A move for a claim whose journal is lost, by the marks that interfaces of ours have; without moves for none.

        What they had on the node is lost as well, so only their names are restored.
        """
        devices, netns = {each.device for each in interfaces}, namespace_of(sandbox)
        marked = {**self._mover.marked(devices, netns), **self._mover.marked(devices)}
        moves = tuple(
            InterfaceMove(each, HostSetup(each.interface, 0, "", 0, up=True))
            for each in interfaces
            if each.device in marked
        )
        return ClaimMove(claim, self._boot, sandbox, moves)

    def _attach(self, move: InterfaceMove, claim: ClaimMove) -> AttachedInterface:
        attached = self._mover.attach(move.interface, move.setup, Path(claim.sandbox.netns))
        self._steps.reached(InterfaceStep.ATTACHED, claim.claim.uid)
        return attached

    def _undone(self, move: ClaimMove, problem: str) -> MoveFailed:
        """The error for a move that failed, after taking back what had moved."""
        text = f"claim {move.claim}: {problem}"
        try:
            self.take_back(move)
        except InterfaceError as error:
            return MoveFailed(f"{text}; moreover {error}", move)
        return MoveFailed(text, None)


def _renamed(move: InterfaceMove, name: str) -> str:
    return f"{subject_of(move.interface)} is called {name} now, because another interface has the name it had"


def namespace_of(sandbox: Sandbox) -> Path | None:
    """The sandbox's network namespace; None if it is gone."""
    path = Path(sandbox.netns)
    return path if sandbox.netns and path.exists() else None
