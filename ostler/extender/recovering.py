"""Recovers the cells after a restart that interrupted the writing of records.

Records are written one by one (``ostler.extender.mending``), so a restart may find a gang with old and new ones, or two
gangs that claim one device. Then the devices that pods really have decide, and after that what pods have by their own
records. Places that no pod has count last: they may be others' by now, and become unknown if something runs there.

Users can write records. So the time of all this is bounded: each pod is looked at a few times, each gang once a round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ostler.extender.mending import RecordMender, devices_of, differs
from ostler.extender.states import CellBooks, PodState, TrackedPod
from ostler.extender.wire import ExtenderError
from scheduling.cells.decision import CellsUserError
from scheduling.cells.pod import BindInfo, GroupMemberPlacement, PodPlacement
from scheduling.cells.recovery import recorded_position

_UNKNOWN = -1
"""In a record the number of a device that the configuration does not have."""
_ROUNDS = 8
"""Most attempts to enter pods, each after others were entered or moved; twice that in all."""
_Place = tuple[str, tuple[int, ...]]
"""A node and devices."""


@dataclass(frozen=True, slots=True)
class UnenteredPod:
    """A bound pod whose record could not be entered, and why."""

    tracked: TrackedPod
    record: BindInfo
    problem: str


class CellRecovery:
    """One recovery, while nothing else happens."""

    def __init__(self, books: CellBooks, mender: RecordMender) -> None:
        self._books = books
        self._mender = mender

    def enter(self, unentered: Sequence[UnenteredPod]) -> list[UnenteredPod]:
        """Enter what could not be entered by the records alone, and let all pods follow their devices.

        Returns the pods that still have no cells.
        """
        left = list(unentered)
        for what_runs_counts in (False, True):
            for _ in range(_ROUNDS):
                if not left:
                    break
                if what_runs_counts:
                    self._vacate(has_record=False)
                self._move(left, keeps_claims=not what_runs_counts)
                before = len(left)
                left = self._still_unentered(left, may_vacate=what_runs_counts)
                if len(left) == before:
                    break
        self._vacate(has_record=True)
        self._mender.settle(self._books)
        return left

    def _move(self, left: Sequence[UnenteredPod], *, keeps_claims: bool) -> None:
        """Move pods on the nodes of these; ``keeps_claims``: not to devices that these claim."""
        claims: dict[str, set[int]] = {}
        for each in left:
            claims.setdefault(each.tracked.facts.node, set()).update(each.record.leaf_cell_isolation)
        nodes = {each.facts.node for each in self._books.pods.values() if differs(self._books, each)}
        for node in sorted(nodes.intersection(claims)):
            self._mender.node_changed(self._books, node, claims[node] if keeps_claims else ())

    def _vacate(self, *, has_record: bool) -> None:
        """Take the devices that pods really have from places that no pod has; ``has_record``: if their records agree.

        An older record of the pod's gang has put it elsewhere, or one of another gang is older.
        """
        for each in list(self._books.pods.values()):
            if each.bind_info is not None and differs(self._books, each):
                has = devices_of(self._books, each)
                if not has_record or has == tuple(sorted(each.bind_info.leaf_cell_isolation)):
                    cells = self._books.cells.devices_of(each.cell_pod())
                    self._books.cells.vacate(each.facts.node, set(has).difference(cells))

    def _still_unentered(self, left: Sequence[UnenteredPod], *, may_vacate: bool) -> list[UnenteredPod]:
        places = self._places(left)
        return [each for each in left if not self._is_entered(each, places, may_vacate=may_vacate)]

    def _places(self, left: Sequence[UnenteredPod]) -> dict[str, dict[tuple[int, int], _Place]]:
        """By gang of these pods the places of its pods, by size and position."""
        records = {each.tracked.facts.uid: each.record for each in left}
        gangs = {each.tracked.spec.group.name for each in left if each.tracked.spec is not None}
        taken: dict[str, dict[int, str]] = {}
        members: list[tuple[TrackedPod, BindInfo]] = []
        for each in self._books.pods.values():
            info = each.bind_info or records.get(each.facts.uid)
            if each.spec is None or info is None or each.state is not PodState.BOUND:
                continue
            if each.spec.group.name in gangs:
                members.append((each, info))
            if each.bind_info is not None:
                cells = self._books.cells.devices_of(each.cell_pod())
                taken.setdefault(info.node, {}).update(dict.fromkeys(cells, each.spec.group.name))
        found: dict[str, dict[tuple[int, int], _Place]] = {}
        for each, info in members:
            assert each.spec is not None
            gang, size = each.spec.group.name, each.spec.leaf_cell_number
            position, has = recorded_position(info, size), devices_of(self._books, each)
            others = taken.get(info.node, {})
            # Devices that another gang's pod holds according to the books are not free; then the record is tried.
            is_free = len(has) == size and all(others.get(number, gang) == gang for number in has)
            if position is not None:
                place = info.node, has if is_free else info.leaf_cell_isolation
                found.setdefault(gang, {})[size, position] = place
        return found

    def _is_entered(
        self, unentered: UnenteredPod, places: Mapping[str, Mapping[tuple[int, int], _Place]], *, may_vacate: bool
    ) -> bool:
        """Whether the pod has its cells now: by its record, or by the places of its gang's pods."""
        tracked, record = unentered.tracked, unentered.record
        own = places.get(tracked.spec.group.name, {}) if tracked.spec is not None else {}
        if self._is_allocated(tracked, record, record):
            return True
        if self._is_allocated(tracked, _put(record, own, has_empty=True), record):
            return True
        if not may_vacate:
            return False
        info = _put(record, own, has_empty=False)
        for member in info.members:
            for place in member.pod_placements:
                self._books.cells.vacate(place.node, place.indices)
        return self._is_allocated(tracked, info, record)

    def _is_allocated(self, tracked: TrackedPod, info: BindInfo, record: BindInfo) -> bool:
        try:
            self._books.allocate(tracked, info)
        except (CellsUserError, ExtenderError):
            return False
        tracked.is_outdated = info != record
        return True


def _put(record: BindInfo, places: Mapping[tuple[int, int], _Place], *, has_empty: bool) -> BindInfo:
    """A record with these places; ``has_empty``: and with those that no pod has."""
    members = tuple(
        GroupMemberPlacement(tuple(_put_member(member, places, has_empty=has_empty))) for member in record.members
    )
    size = len(record.leaf_cell_isolation)
    position = recorded_position(record, size)
    own = None if position is None else places.get((size, position))
    return replace(record, leaf_cell_isolation=record.leaf_cell_isolation if own is None else own[1], members=members)


def _put_member(
    member: GroupMemberPlacement, places: Mapping[tuple[int, int], _Place], *, has_empty: bool
) -> Iterator[PodPlacement]:
    for position, each in enumerate(member.pod_placements):
        node, numbers = places.get((len(each.indices), position), ("", ()))
        if node == each.node:
            yield replace(each, indices=numbers)
        else:
            yield each if has_empty else replace(each, indices=(_UNKNOWN,) * len(each.indices))
