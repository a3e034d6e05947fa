"""Holds of cells for jobs that have no pods yet, on the tracked pods and nodes.

A hold is known here by the UID of whoever holds (a Workload), and in the scheduler of cells by its group. The scheduler
may end it (``scheduling.cells.holds``); ``problem`` says so when it is asked, and tries to get the hold back first.
"""

from __future__ import annotations

from ostler.extender.records import check_gang, check_record
from ostler.extender.states import CellBooks, CellHold
from ostler.extender.tracking import CellTracker
from scheduling.cells.decision import CellsUserError, Decision, PodPlaced, PodPreempting, PodWaiting
from scheduling.cells.pod import BindInfo, CellPod


class CellHolds:
    """Thread-safe."""

    def __init__(self, tracker: CellTracker) -> None:
        self._tracker = tracker

    def take(self, pod: CellPod) -> Decision:
        """Hold cells, or say why not; the same hold again is the same answer. Raises ``CellsUserError``."""
        with self._tracker.locked() as books:
            known = books.holds.get(pod.uid)
            if known is not None:
                if known.pod == pod and known.bind_info is not None and not books.cells.hold_problem(pod):
                    return PodPlaced(known.bind_info)
                _end(books, pod.uid)
            check_gang(pod.spec)
            decision = books.cells.hold(pod, books.nodes.healthy)
            if not isinstance(decision, PodWaiting):
                info = decision.bind_info if isinstance(decision, PodPlaced) else None
                books.keep_hold(CellHold(pod, info))
            if isinstance(decision, PodPlaced):
                try:
                    check_record(pod.spec.group.name, decision.bind_info)
                except CellsUserError:
                    _end(books, pod.uid)
                    raise
            return decision

    def never_fits(self, pod: CellPod) -> str:
        """Why the gang cannot fit even if nothing else runs, empty if it may. Raises ``CellsUserError``."""
        with self._tracker.locked() as books:
            return books.cells.never_fits(pod.spec)

    def victims(self, decision: PodPreempting) -> dict[str, tuple[str, ...]]:
        """The victims by node, as people know them."""
        with self._tracker.locked() as books:
            return {
                node: tuple(sorted(books.pods[uid].facts.key if uid in books.pods else uid for uid in uids))
                for node, uids in sorted(decision.victims.items())
            }

    def restore(self, pod: CellPod, info: BindInfo | None) -> str:
        """Take up a hold from before a restart; why that is not possible, empty if it is."""
        with self._tracker.locked() as books:
            if pod.uid not in books.holds:
                books.keep_hold(CellHold(pod, info))
            return _problem(books, pod.uid)

    def problem(self, uid: str) -> str:
        """Why a hold is worth nothing any more, empty if it holds or is unknown."""
        with self._tracker.locked() as books:
            return _problem(books, uid)

    def end(self, uid: str) -> None:
        """The holder does not need its hold any more; an unknown one is no error."""
        with self._tracker.locked() as books:
            _end(books, uid)

    def has(self, uid: str) -> bool:
        """Whether a holder is known."""
        with self._tracker.locked() as books:
            return uid in books.holds

    def holders(self) -> tuple[str, ...]:
        """The UIDs of all holders."""
        with self._tracker.locked() as books:
            return tuple(books.holds)


def _problem(books: CellBooks, uid: str) -> str:
    hold = books.holds.get(uid)
    if hold is None:
        return ""
    pod = hold.pod
    if not books.cells.hold_problem(pod):
        return ""
    try:
        # A group that goes on by its own pods is taken up again.
        books.cells.restore_hold(pod, hold.bind_info, books.nodes.healthy)
    except CellsUserError as error:
        is_running = any(
            each.facts.node and each.spec is not None and each.spec.group.name == pod.spec.group.name
            for each in books.pods.values()
        )
        # Pods that run without cells are reported on the pods; ending their job would not help them.
        return "" if is_running and not _has_cells(books, pod) else str(error)
    return books.cells.hold_problem(pod)


def _has_cells(books: CellBooks, pod: CellPod) -> bool:
    try:
        books.cells.group(pod.spec.group.name)
    except CellsUserError:
        return False
    return True


def _end(books: CellBooks, uid: str) -> None:
    if (hold := books.drop_hold(uid)) is not None:
        books.cells.end_hold(hold.pod)
