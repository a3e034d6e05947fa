"""Corrects the books by the devices that pods really have.

The kubelet may give a pod other devices than the scheduler recorded for it. The agent of the node then says so in the
pod's annotations: ids that the kubelet gave, and the numbers that it put in the place of the recorded ones. Pods that
have each other's devices exchange their cells here, and a pod that has free ones moves to them, as long as every gang
keeps its guarantee (``scheduling.cells.moving``). The new places are written into the records of all pods of the gangs,
which nobody else writes. A pod whose cells cannot follow keeps them in the books, and an event says why; it is tried
again when something changes on its node, and every few seconds.

Users can write these annotations as well. By that they move their own pod to free cells, and no other pod is touched:
a pod is exchanged with another one only if that one's annotations say the same.

All functions are called with the tracker's lock held. What a restart finds is put in order by
``ostler.extender.recovering``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence

from ostler.extender.metrics import ExtenderMetrics
from ostler.extender.pods import GivenDevices
from ostler.extender.states import CellBooks, PodReporter, PodState, RecordWriter, TrackedPod
from scheduling.cells.decision import CellsUserError
from scheduling.cells.moving import PodMove
from scheduling.cells.pod import GroupMemberPlacement

log = logging.getLogger("ostler.extender")


_AT_ONCE = 50
"""Nodes that are tried again at once: nobody is answered meanwhile, and users can cause any number of them."""


class RecordMender:
    """Compares books and nodes. ``writer`` gets the records that changed."""

    def __init__(self, writer: RecordWriter, reporter: PodReporter, metrics: ExtenderMetrics) -> None:
        self._writer = writer
        self._reporter = reporter
        self._metrics = metrics
        self._unsettled: dict[str, None] = {}
        """Nodes with pods whose cells differ from their devices, those that were tried last at the end."""

    def pod_changed(self, books: CellBooks, tracked: TrackedPod) -> None:
        """A bound pod is new or has changed."""
        node = tracked.facts.node
        if node in self._unsettled or differs(books, tracked):
            self.node_changed(books, node)

    def devices_changed(self, books: CellBooks, nodes: Iterable[str]) -> None:
        """These nodes publish other devices, so that more of what pods have may be known by number."""
        known = frozenset(nodes)
        on_nodes = [each for each in books.pods.values() if each.facts.node in known and each.state is PodState.BOUND]
        for node in dict.fromkeys(each.facts.node for each in on_nodes if differs(books, each)):
            self.node_changed(books, node)

    def pod_gone(self, books: CellBooks, node: str) -> None:
        """A pod of the node is gone, and possibly an obstacle with it."""
        if node in self._unsettled:
            self.node_changed(books, node)

    def node_changed(self, books: CellBooks, node: str, claimed: Collection[int] = ()) -> None:
        """Move pods of the node to the devices that they have, as far as that is possible now.

        ``claimed``: devices that are left to others.
        """
        pods = {
            uid: each
            for uid, each in books.pods.items()
            if each.facts.node == node and each.state is PodState.BOUND and each.bind_info is not None
        }
        tried: set[frozenset[str]] = set()
        while True:
            moving = {uid for uid, each in pods.items() if differs(books, each)}
            if not moving:
                self._unsettled.pop(node, None)
                return
            self._unsettled[node] = None
            closed = {each for uid in moving if (each := _closed(books, pods, moving, uid)) <= moving}
            # Last all of them: pods that share a cell of their virtual cluster can only leave it together.
            sets = sorted({*closed, frozenset().union(*closed)} - tried, key=_by_size)
            if not sets:
                return
            for uids in sets:
                tried.add(uids)
                is_left = any(number in claimed for uid in uids & moving for number in devices_of(books, pods[uid]))
                if uids and not is_left and self._is_moved(books, [pods[uid] for uid in sorted(uids)]):
                    break

    def try_again(self, books: CellBooks) -> None:
        """Try again: the obstacle may have been elsewhere: a virtual cluster may have other cells left by now."""
        for node in list(self._unsettled)[:_AT_ONCE]:
            del self._unsettled[node]
            self.node_changed(books, node)

    def settle(self, books: CellBooks) -> None:
        """Compare all nodes; and bring the records of each gang into line, of which only some may have been written."""
        bound = [each for each in books.pods.values() if each.state is PodState.BOUND and each.bind_info is not None]
        for node in dict.fromkeys(each.facts.node for each in bound if differs(books, each)):
            self.node_changed(books, node)
        gangs: dict[str, list[TrackedPod]] = {}
        for each in bound:
            if each.spec is not None:
                gangs.setdefault(each.spec.group.name, []).append(each)
        for pods in gangs.values():
            first = pods[0].bind_info
            if first is not None and any(_places(each) != first.members for each in pods):
                for each in pods:
                    record = books.cells.record_of(each.cell_pod())
                    if record is not None and record != each.bind_info:
                        books.put_record(each, record)
        for each in bound:
            self.write(each)

    def write(self, tracked: TrackedPod) -> None:
        """Have the record of a bound pod written if it has changed."""
        if tracked.is_outdated and tracked.state is PodState.BOUND and tracked.bind_info is not None:
            tracked.is_outdated = False
            self._writer.write_later(tracked.facts.identity, tracked.bind_info)

    def _is_moved(self, books: CellBooks, pods: Sequence[TrackedPod]) -> bool:
        moves = [PodMove(each.cell_pod(), devices_of(books, each)) for each in pods]
        before = [books.cells.devices_of(move.pod) for move in moves]
        try:
            records = books.cells.move_allocated(moves)
        except CellsUserError as error:
            for each, move, cells in zip(pods, moves, before, strict=True):
                self._refuse(each, move, cells, str(error))
            return False
        for uid, info in records.items():
            tracked = books.pods.get(uid)
            if tracked is not None:
                books.put_record(tracked, info)
                self.write(tracked)
        for each, move, cells in zip(pods, moves, before, strict=True):
            each.reported = ()
            log.info(
                "pod moved to the cells of the devices that it has",
                extra={"pod": each.facts.key, "node": each.facts.node, "has": move.indices, "had": cells},
            )
        self._metrics.moves.add("moved", by=len(pods))
        return True

    def _refuse(self, tracked: TrackedPod, move: PodMove, cells: tuple[int, ...], problem: str) -> None:
        """Say once for these devices why the books do not follow; while the kubelet has not given them it may yet."""
        if not tracked.facts.given.ids or tracked.reported == move.indices:
            return
        tracked.reported = move.indices
        self._metrics.moves.add("refused")
        has, recorded = (",".join(map(str, sorted(each))) for each in (move.indices, cells))
        facts = {"pod": tracked.facts.key, "has": has, "recorded": recorded, "error": problem}
        log.warning("pod has other devices than its cells", extra=facts)
        text = (
            f"The kubelet gave this pod GPU {has} of node {tracked.facts.node}, and its cells are GPU {recorded}. They "
            f"cannot follow: {problem}; the extender counts GPU {recorded} as used. Delete the pod if that harms others"
        )
        self._reporter.warn(tracked.facts.identity, "CellsNotMoved", text)


def devices_of(books: CellBooks, tracked: TrackedPod) -> tuple[int, ...]:
    """The numbers of the devices that a bound pod has by its node; none if they are not known."""
    given: GivenDevices = tracked.facts.given
    numbers = books.nodes.numbers_of(tracked.facts.node, given.ids.split(",")) if given.ids else ()
    return tuple(sorted(numbers or given.numbers))


def differs(books: CellBooks, tracked: TrackedPod) -> bool:
    """Whether a pod has other devices than the books say."""
    if tracked.spec is None or tracked.bind_info is None:
        return False
    has = devices_of(books, tracked)
    if len(has) != tracked.spec.leaf_cell_number:
        return False
    cells = books.cells.devices_of(tracked.cell_pod())
    return bool(cells) and set(cells) != set(has)


def _closed(books: CellBooks, pods: dict[str, TrackedPod], moving: set[str], uid: str) -> frozenset[str]:
    """A pod and all others that must give it devices, and so on; also those that cannot, which are not in moving."""
    owners = {number: other for other, each in pods.items() for number in books.cells.devices_of(each.cell_pod())}
    found, left = {uid}, [uid]
    while left:
        current = left.pop()
        for number in devices_of(books, pods[current]) if current in moving else ():
            other = owners.get(number)
            if other is not None and other not in found:
                found.add(other)
                left.append(other)
    return frozenset(found)


def _by_size(uids: frozenset[str]) -> tuple[int, list[str]]:
    return len(uids), sorted(uids)


def _places(tracked: TrackedPod) -> tuple[GroupMemberPlacement, ...]:
    return tracked.bind_info.members if tracked.bind_info is not None else ()
