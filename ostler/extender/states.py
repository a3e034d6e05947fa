"""The states of a pod, and the parts that decide on it: the scheduler of cells, the binder and the reporter.

`ostler.extender.tracking` has the picture of the states and moves pods from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from kube.bodies import JsonObject
from ostler.extender.health import NodeCells, NodeHealth
from ostler.extender.inspecting import CellsView, node_sizes
from ostler.extender.pods import PodFacts
from ostler.extender.records import GangRecords
from ostler.extender.wire import ExtenderError, PodIdentity
from scheduling.cells.configuration import CellsConfiguration
from scheduling.cells.decision import CellsUserError, Phase, PodPlaced, PodPreempting, PodWaiting
from scheduling.cells.moving import PodMove
from scheduling.cells.pod import BindInfo, CellPod, PodSchedulingSpec


class Cells(CellsView, NodeCells, Protocol):
    """The scheduler of cells; a refused step changes nothing."""

    def schedule(self, pod: CellPod, nodes: Collection[str], phase: Phase) -> PodPlaced | PodPreempting | PodWaiting:
        """Decide on a pod."""

    def add_allocated(self, pod: CellPod, bind_info: BindInfo) -> None:
        """The pod has these cells."""

    def devices_of(self, pod: CellPod) -> tuple[int, ...]:
        """The numbers of the devices that the pod holds here; none if they are not all known."""

    def record_of(self, pod: CellPod) -> BindInfo | None:
        """The record of a pod with the places that its group has now."""

    def move_allocated(self, moves: Sequence[PodMove]) -> dict[str, BindInfo]:
        """The pods have these devices; the new records of their groups' pods. Raises ``CellsUserError``."""

    def vacate(self, node: str, indices: Collection[int]) -> None:
        """Take devices from places of gangs that no pod has."""

    def delete_allocated(self, pod: CellPod) -> None:
        """The pod that had cells is gone."""

    def delete_unallocated(self, pod: CellPod) -> None:
        """The pod that had none is gone."""

    def hold(self, pod: CellPod, nodes: Collection[str]) -> PodPlaced | PodPreempting | PodWaiting:
        """Give a group its cells before it has pods; the pod stands for the holder."""

    def restore_hold(self, pod: CellPod, bind_info: BindInfo | None, nodes: Collection[str]) -> None:
        """The group was given these cells before a restart."""

    def end_hold(self, pod: CellPod) -> None:
        """The holder does not need its hold any more."""

    def hold_problem(self, pod: CellPod) -> str:
        """Why the hold is worth nothing any more, empty if it holds."""

    def never_fits(self, spec: PodSchedulingSpec) -> str:
        """Why the gang cannot fit even if nothing else runs."""


MakeCells = Callable[[CellsConfiguration], Cells]
"""The class of the scheduler of cells; a new one starts with no node and no pod."""


class PodState(Enum):
    """See `ostler.extender.tracking`."""

    WAITING = "Waiting"
    PREEMPTING = "Preempting"
    BINDING = "Binding"
    BOUND = "Bound"


@dataclass(slots=True)
class TrackedPod:
    """``spec``: None with a ``fault`` if its annotation is not usable. ``bind_info``: where it has cells, else None.

    ``attempts``: filter calls since it is Binding. ``is_forced``: it was handed to the binder, or refused.
    ``is_outdated``: its annotation has another record than ``bind_info``. ``reported``: devices that it has, and whose
    cells it cannot get.
    """

    facts: PodFacts
    spec: PodSchedulingSpec | None
    fault: str = ""
    state: PodState = PodState.WAITING
    bind_info: BindInfo | None = None
    attempts: int = 0
    is_forced: bool = False
    is_outdated: bool = False
    reported: tuple[int, ...] = ()

    def cell_pod(self) -> CellPod:
        """The pod for the scheduler of cells; raises ``ExtenderError`` if its annotation is not usable."""
        if self.spec is None:
            raise ExtenderError(self.fault)
        spec = self.spec
        if self.facts.needs_preparation and spec.ignore_suggested_nodes:
            spec = replace(spec, ignore_suggested_nodes=False)
        pod = self.facts.identity
        return CellPod(pod.uid, pod.namespace, pod.name, spec)


@dataclass(frozen=True, slots=True)
class PodBinding:
    """A pod that is placed, and where. ``node_size``: devices that its node has by the configuration."""

    facts: PodFacts
    bind_info: BindInfo
    node_size: int


@dataclass(frozen=True, slots=True)
class CellHold:
    """Cells that a group has before its pods: ``pod`` stands for the holder, and has its UID and namespace.

    ``bind_info``: the cells; None if the group has to preempt pods first.
    """

    pod: CellPod
    bind_info: BindInfo | None


class CellBooks:
    """The state of pods, nodes and cells; the tracker's lock guards it. ``nodes``: their health. ``pods``, ``holds``:
    by UID."""

    def __init__(self, configuration: CellsConfiguration, cells: Cells, nodes: NodeHealth) -> None:
        self.pods: dict[str, TrackedPod] = {}
        self.holds: dict[str, CellHold] = {}
        self._holders: dict[str, str] = {}
        self._records = GangRecords()
        self.use(configuration, cells, nodes)

    def use(self, configuration: CellsConfiguration, cells: Cells, nodes: NodeHealth) -> None:
        """Put other cells in the place of these."""
        self.nodes = nodes
        self.configuration = configuration
        self.cells = cells
        self._node_sizes = node_sizes(cells)

    def allocate(self, tracked: TrackedPod, info: BindInfo) -> None:
        """Give a pod its place. Raises ``CellsUserError`` or ``ExtenderError`` before anything changes."""
        pod = tracked.cell_pod()
        kept = self._records.take(pod.namespace, pod.spec, info)
        try:
            self.cells.add_allocated(pod, kept)
        except BaseException:
            self._records.give_back(pod.spec.group.name, kept)
            raise
        tracked.bind_info = kept

    def put_record(self, tracked: TrackedPod, info: BindInfo) -> None:
        """Keep another record of a pod that has a place."""
        pod = tracked.cell_pod()
        if tracked.bind_info is not None:
            self._records.give_back(pod.spec.group.name, tracked.bind_info)
        try:
            tracked.bind_info = self._records.take(pod.namespace, pod.spec, info)
        except CellsUserError:
            # While some pods of a huge gang have the old record the bound may be reached. It is kept uncounted.
            tracked.bind_info = info
        tracked.is_outdated = True

    def forget_place(self, tracked: TrackedPod) -> None:
        """Of a pod whose place the cells do not have any more."""
        if tracked.bind_info is not None and tracked.spec is not None:
            self._records.give_back(tracked.spec.group.name, tracked.bind_info)
        tracked.bind_info = None

    def owner(self, gang: str) -> str:
        """The namespace of a gang whose pods have places, else empty."""
        return self._records.owner(gang)

    def keep_hold(self, hold: CellHold) -> None:
        """Know a hold."""
        self.holds[hold.pod.uid] = hold
        self._holders[hold.pod.spec.group.name] = hold.pod.uid

    def drop_hold(self, uid: str) -> CellHold | None:
        """Forget a hold."""
        hold = self.holds.pop(uid, None)
        if hold is not None and self._holders.get(hold.pod.spec.group.name) == uid:
            del self._holders[hold.pod.spec.group.name]
        return hold

    def hold_of(self, group: str) -> CellHold | None:
        """The hold of a group."""
        return self.holds.get(self._holders.get(group, ""))

    def binding_of(self, tracked: TrackedPod) -> PodBinding:
        """The binding of a pod that has cells."""
        assert tracked.bind_info is not None
        return PodBinding(tracked.facts, tracked.bind_info, self._node_sizes.get(tracked.bind_info.node, 0))

    def is_on(self, uid: str, node: str) -> bool:
        """Whether a pod is bound to that node."""
        tracked = self.pods.get(uid)
        return tracked is not None and tracked.facts.node == node


@dataclass(frozen=True, slots=True)
class FilterOutcome:
    """``is_waiting``: the pod must wait for others."""

    answer: JsonObject
    is_waiting: bool = False


class PodReporter(Protocol):
    """Takes what people must know of a pod; never blocks."""

    def warn(self, pod: PodIdentity, reason: str, message: str) -> None:
        """Something is wrong with the pod."""


class RecordWriter(Protocol):
    """Writes records into pods' annotations, later and in a thread of its own."""

    def write_later(self, pod: PodIdentity, info: BindInfo) -> None:
        """Take the record of a bound pod; never blocks."""


class ForceBinder(Protocol):
    """Binds pods past the scheduler, later and in threads of its own."""

    def bind_later(self, binding: PodBinding) -> None:
        """Take a pod; never blocks."""
