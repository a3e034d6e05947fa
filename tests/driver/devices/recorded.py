"""Recorded nodes as the DRA door shows them: snapshots as a scan makes them, rules for everything, views."""

from __future__ import annotations

from functools import cache

from driver.devices.view import DoorView
from node.inventory.devices import devices_of, host_of
from node.inventory.identity import Identities
from node.inventory.model import Device, DeviceKind, Snapshot
from node.inventory.places import places_of
from node.inventory.recordings.source import read
from node.rules import Doors, Rule, Selector
from node.topology.cells import topology_of
from ostler.config.topology import load_overrides
from sandbox.nodes import names, path
from tests.making.dra_door import door_view

NODES = names()
GPUS = {
    "a100-mig-4": 2,
    "a100-sxm-8": 8,
    "dgx1-v100-8": 8,
    "dgx2-v100-16": 16,
    "gaudi2-8": 8,
    "h100-sxm-8": 8,
    "l4-2": 2,
    "mi300x-8": 8,
    "mi300x-cpx-8": 8,
    "vm-flat-8": 8,
}
"""Whole GPUs of the shipped nodes that have any, so that a collection of tests need not read the nodes."""
NICS = (DeviceKind.NIC, DeviceKind.RDMA)
WHOLE_GPUS = Rule("nvidia.com/gpu", Selector(kinds=(DeviceKind.GPU,), mig_enabled=False), Doors.DRA)
RULES = (
    WHOLE_GPUS,
    Rule("nvidia.com/mig-{profile}", Selector(kinds=(DeviceKind.MIG,)), Doors.DRA),
    Rule("amd.com/partition", Selector(kinds=(DeviceKind.PARTITION,)), Doors.DRA),
    Rule("example.com/nic", Selector(kinds=NICS), Doors.DRA),
)


@cache
def snapshot(name: str, *, corrected: bool = False) -> Snapshot:
    """The snapshot of a shipped node; ``corrected``: with the places of the topology file that is shipped for it."""
    facts = read(path(name)).facts
    devices = devices_of(facts, Identities())
    overrides = load_overrides(path(name).with_suffix(".topology.xml")) if corrected else ()
    return snapshot_of(devices, host=host_of(facts), topology=topology_of(places_of(devices), overrides))


def snapshot_of(devices: tuple[Device, ...], **fields: object) -> Snapshot:
    """A snapshot with these devices, whose places are theirs unless ``fields`` say otherwise."""
    return Snapshot(1, devices, **{"topology": topology_of(places_of(devices)), **fields})  # type: ignore[arg-type]


@cache
def view(name: str, *, corrected: bool = False) -> DoorView:
    """What the DRA door shows of a shipped node, all of which is offered."""
    return door_view(snapshot(name, corrected=corrected), RULES)
