"""What the kubelet reports and the plugin door grants: readings, pods, devices with holds, and their keeper."""

from __future__ import annotations

from collections.abc import Iterable

from node.clocks import Clocks
from node.inventory.model import Device
from node.ledger.allocations import KubeletAllocations
from node.ledger.grants import PluginGrants
from node.ledger.holds import Id, wholes_of
from node.ledger.keeper import HoldKeeper
from node.ledger.ledger import Ledger
from node.ledger.naming import IdPlace
from node.ledger.process_check import PendingRelease
from node.ledger.reader import Holding, Reading
from node.ledger.tenants import Tenants

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


def grant(device: Device, resource: str = GPU, id_: str = "") -> tuple[Id, IdPlace]:
    return (resource, id_ or device.uuid or device.name), IdPlace(device.name, wholes_of(device))


class GrantedPods:
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


def keeper_of(ledger: Ledger, pending_release: PendingRelease, clocks: Clocks) -> tuple[HoldKeeper, PluginGrants]:
    """A keeper and what the plugin door allocates with it, of a node whose pods have had nothing so far."""
    plugin, tenants = KubeletAllocations(), Tenants()
    grants = PluginGrants(ledger, plugin, tenants, clocks=clocks)
    return HoldKeeper(ledger, plugin, pending_release, tenants, grants, clocks=clocks), grants
