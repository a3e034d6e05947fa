"""Many devices: MIG devices of one GPU after the other, more than any slice holds."""

from __future__ import annotations

from functools import cache

from driver.devices.view import DoorView, DraDevice
from node.inventory.model import DeviceKind
from node.offer import Cause
from node.rules import Doors, Rule
from node.values import replace
from tests.making.devices import mig

RULE = Rule("nvidia.com/mig", door=Doors.DRA)


@cache
def migs(count: int) -> DoorView:
    """So many healthy MIG devices."""
    devices = (replace(mig(0), name=f"mig-{number:04}", uuid=f"MIG-{number}", nodes=()) for number in range(count))
    assert mig(0).kind is DeviceKind.MIG
    return DoorView(tuple(DraDevice(device, RULE, healthy=True) for device in devices), generation=1)


def tainted(view: DoorView, number: int) -> DoorView:
    """The same, with one device that may not be given out."""
    ill = replace(view.devices[number], healthy=False, reason="Xid 79", cause=Cause.HEALTH)
    return replace(view, devices=(*view.devices[:number], ill, *view.devices[number + 1 :]))
