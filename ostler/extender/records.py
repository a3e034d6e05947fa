"""The records of bound pods, each gang's kept once, and how much of them is kept in all.

Every pod of a gang carries the places of the whole gang, so that any of them restores it. A record in the API server is
therefore as large as the gang, and a gang has as many records as pods. In memory the pods of a gang share one.

Users can write records. So what is kept of the pods of a namespace has a bound, which the true ones never reach: the
gangs that run have different devices, so that their records do not name more devices than the cluster has.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from scheduling.cells.decision import CellsUserError
from scheduling.cells.pod import BindInfo, GroupMemberPlacement, PodSchedulingSpec

MOST_RECORD = 224 << 10
"""Bytes of a gang's record; the annotations of a pod may have 256 KiB in all."""
MOST_DEVICES = 200_000
"""Devices that the records and gangs of one namespace's bound pods may name; a large cluster has a fifth."""
MOST_VERSIONS = 64
"""Different records of one gang: one more arises when a running gang is preempted lazily or gets other devices."""
_LEAST_PLACE = 80
"""Bytes that the record has at least for each pod."""


@dataclass(slots=True)
class _Kept:
    members: tuple[GroupMemberPlacement, ...]
    namespace: str
    devices: int
    pods: int = 1


class GangRecords:
    """The places that gangs' records name; not thread-safe."""

    def __init__(self) -> None:
        self._gangs: dict[str, list[_Kept]] = {}
        self._devices: Counter[str] = Counter()

    def owner(self, gang: str) -> str:
        """The namespace of the gang, empty if no pod of it has a place."""
        kept = self._gangs.get(gang)
        return kept[0].namespace if kept else ""

    def take(self, namespace: str, spec: PodSchedulingSpec, info: BindInfo) -> BindInfo:
        """Count the record of one more pod, and return it in the form to keep. Raises ``CellsUserError`` beyond the
        limit."""
        gang = spec.group.name
        kept = self._gangs.get(gang, [])
        for each in kept:
            if each.members == info.members:
                each.pods += 1
                return replace(info, members=each.members)
        if len(kept) >= MOST_VERSIONS:
            raise CellsUserError(
                f"the pods of its gang {gang!r} have {len(kept)} different records; delete those whose record is wrong"
            )
        devices = sum(1 + len(place.indices) for member in info.members for place in member.pod_placements)
        devices += sum(each.pod_number * (1 + each.leaf_cell_number) for each in spec.group.members)
        if self._devices[namespace] + devices > MOST_DEVICES:
            raise CellsUserError(
                f"the bound pods of namespace {namespace} name more than {MOST_DEVICES} devices in their records and "
                "gangs; delete those whose annotations are wrong"
            )
        self._devices[namespace] += devices
        self._gangs.setdefault(gang, []).append(_Kept(info.members, namespace, devices))
        return info

    def give_back(self, gang: str, info: BindInfo) -> None:
        """A pod whose record was taken is gone."""
        kept = self._gangs.get(gang, [])
        for each in kept:
            if each.members is info.members:
                each.pods -= 1
                if not each.pods:
                    self._devices[each.namespace] -= each.devices
                    kept.remove(each)
                break
        if not kept:
            self._gangs.pop(gang, None)


def check_gang(spec: PodSchedulingSpec) -> None:
    """Raise ``CellsUserError`` if the gang has so many pods that its record never fits into an annotation."""
    pods = sum(each.pod_number for each in spec.group.members)
    if pods * _LEAST_PLACE > MOST_RECORD:
        raise CellsUserError(_too_large(spec.group.name, f"{pods} pods"))


def check_record(gang: str, info: BindInfo) -> None:
    """Raise ``CellsUserError`` if a pod with this record cannot be bound."""
    size = len(info.write().encode())
    if size > MOST_RECORD:
        pods = sum(len(each.pod_placements) for each in info.members)
        raise CellsUserError(_too_large(gang, f"{pods} pods, whose places have {size} bytes"))


def _too_large(gang: str, what: str) -> str:
    return (
        f"the gang {gang!r} has {what}; each pod's annotations hold the places of all, for which there are "
        f"{MOST_RECORD} bytes; make several gangs of it"
    )
