"""What the kubelet reports and grants: readings, pods and devices with holds."""

from __future__ import annotations

from collections.abc import Iterable

from node.inventory.model import Device
from node.ledger.allocations import Grant
from node.ledger.holds import wholes_of
from node.ledger.reader import Holding, Reading

GPU = "nvidia.com/gpu"

Shown = tuple[str, str]
"""An id and its pod, by name where listed, by UID where recorded."""


def reading(
    began: float,
    listed: Iterable[Shown] | None = (),
    recorded: Iterable[Shown] | None = (),
    *,
    resource: str = GPU,
    allocatable: Iterable[str] | None = (),
    faults: tuple[str, ...] = (),
) -> Reading:
    return Reading(
        began,
        None if listed is None else tuple(Holding(resource, id_, "c", pod=pod) for id_, pod in listed),
        None if recorded is None else tuple(Holding(resource, id_, "c", uid=uid) for id_, uid in recorded),
        None if allocatable is None else frozenset((resource, id_) for id_ in allocatable),
        faults,
    )


def grant(device: Device, resource: str = GPU) -> Grant:
    return Grant(device.name, wholes_of(device), resource, device.uuid or device.name)


class Pods:
    """What the API server has told."""

    def __init__(self) -> None:
        self.dead: set[str] = set()
        self.names: dict[str, str] = {}

    def gone(self, uid: str) -> bool:
        return uid in self.dead

    def name_of(self, uid: str) -> str:
        return self.names.get(uid, "")

    def uid_of(self, name: str) -> str:
        return next((uid for uid, known in self.names.items() if known == name and uid not in self.dead), "")
