"""Affinity groups: gangs of pods that are placed together or not at all.

The placement of a group never changes between its allocation and its deletion. A lazily preempted group keeps its
devices and loses its virtual cells: it runs on as an opportunistic one.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from scheduling.cells.pod import BindInfo, CellPod, PodSchedulingSpec
from scheduling.cells.tree import PhysicalCell, VirtualCell

PhysicalPlacement: TypeAlias = dict[int, list[list[PhysicalCell | None]]]
"""Leaf cell number -> pods -> leaves. A leaf is None if the configuration no longer has it."""
VirtualPlacement: TypeAlias = dict[int, list[list[VirtualCell | None]]]


class GroupState(enum.Enum):
    """What a group's cells are to it."""

    PREEMPTING = "Preempting"  # it has reserved cells, some of which others still use
    ALLOCATED = "Allocated"
    BEING_PREEMPTED = "BeingPreempted"  # allocated, and another group has reserved some of its cells


@dataclass(frozen=True, slots=True)
class AllocatedPod:
    """A pod that runs, with the record of its place."""

    pod: CellPod
    bind_info: BindInfo


@dataclass(slots=True, eq=False)
class AffinityGroup:
    """A gang and where it is."""

    name: str
    cluster: str
    priority: int
    lazy_preemption: bool
    ignore_suggested_nodes: bool
    sizes: dict[int, int]  # leaf cell number -> pods
    state: GroupState
    physical: PhysicalPlacement
    virtual: VirtualPlacement | None
    pods: dict[int, list[AllocatedPod | None]]
    preempting: dict[str, CellPod] = field(default_factory=dict)
    lazily_preempted_by: str = ""
    holder: str = ""  # whose hold keeps the cells while the group has no pods; see `holds`

    def leaves(self) -> Iterator[tuple[PhysicalCell, VirtualCell | None]]:
        """The group's leaves in order, each with its virtual cell."""
        for size, pods in self.physical.items():
            virtual = None if self.virtual is None else self.virtual[size]
            for position, leaves in enumerate(pods):
                for index, leaf in enumerate(leaves):
                    if leaf is not None:
                        yield leaf, None if virtual is None else virtual[position][index]

    def allocated(self) -> Iterator[AllocatedPod]:
        """The pods that run."""
        for pods in self.pods.values():
            for each in pods:
                if each is not None:
                    yield each

    @property
    def is_idle_hold(self) -> bool:
        """Whether a hold alone keeps its cells."""
        return bool(self.holder) and self.state is not GroupState.PREEMPTING and not any(self.allocated())

    def free_slot(self, size: int) -> int | None:
        """The first place for a pod of this size, or None."""
        for position, each in enumerate(self.pods.get(size, ())):
            if each is None:
                return position
        return None


def new_group(
    spec: PodSchedulingSpec, state: GroupState, physical: PhysicalPlacement, virtual: VirtualPlacement | None
) -> AffinityGroup:
    """A group without pods."""
    sizes = {each.leaf_cell_number: each.pod_number for each in spec.group.members}
    return AffinityGroup(
        name=spec.group.name,
        cluster=spec.virtual_cluster,
        priority=spec.priority,
        lazy_preemption=spec.lazy_preemption,
        ignore_suggested_nodes=spec.ignore_suggested_nodes,
        sizes=sizes,
        state=state,
        physical=physical,
        virtual=virtual,
        pods={size: [None] * number for size, number in sizes.items()},
    )
