"""Writes the record of a pod's place, which binding stores in its annotations."""

from __future__ import annotations

from scheduling.cells.decision import PodPlaced
from scheduling.cells.groups import AffinityGroup, PhysicalPlacement, VirtualPlacement
from scheduling.cells.placing import lowest_common
from scheduling.cells.pod import BindInfo, GroupMemberPlacement, PodPlacement


def record_place(physical: PhysicalPlacement, virtual: VirtualPlacement | None, size: int, position: int) -> PodPlaced:
    """The record of the pod at one place of a placed group. All of the pod's devices are known."""
    members = tuple(
        GroupMemberPlacement(
            tuple(
                PodPlacement(
                    node=next((leaf.nodes[0] for leaf in leaves if leaf is not None), ""),
                    indices=tuple(-1 if leaf is None else leaf.index for leaf in leaves),
                    preassigned_types=_preassigned(virtual, each, index),
                )
                for index, leaves in enumerate(physical[each])
            )
        )
        for each in sorted(physical)
    )
    own = [leaf for leaf in physical[size][position] if leaf is not None]
    common = lowest_common(own)
    info = BindInfo(
        node=own[0].nodes[0],
        leaf_cell_isolation=tuple(leaf.index for leaf in own),
        cell_chain=own[0].chain,
        members=members,
    )
    return PodPlaced(info, "" if common is None else common.kind)


def _preassigned(virtual: VirtualPlacement | None, size: int, index: int) -> tuple[str, ...]:
    if virtual is None:
        return ("",) * size
    return tuple("" if each is None else each.root.kind for each in virtual[size][index])


def recorded_place(group: AffinityGroup, size: int, position: int) -> PodPlaced | None:
    """A place of a group by the record of one of its pods, also if the configuration no longer has it."""
    for each in group.allocated():
        info = each.bind_info
        for member in info.members:
            placements = member.pod_placements
            if placements and len(placements[0].indices) == size and position < len(placements):
                own = placements[position]
                return PodPlaced(BindInfo(own.node, own.indices, info.cell_chain, info.members))
    return None
