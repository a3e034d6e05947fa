"""What the second door shows of each device: the value that publishing, preparation and health share."""

from __future__ import annotations

from node.inventory.model import Attribute, Device, Host
from node.offer import Cause
from node.rules import Rule
from node.values import Value, value


@value
class DraDevice(Value):
    """A device that a rule offers through DRA. ``reason`` and ``cause`` say why it may not be given out, if so.

    ``rule``: as it was configured, but for its edits, whose only strategy is CDI. ``placement``: attributes that the
    device has from its place on the node and its neighbours (``cell4``, ``switch``). ``contested``: a live pod has it
    through the plugin door, and a claim of a pod on this node was allocated it.
    """

    device: Device
    rule: Rule
    healthy: bool
    reason: str = ""
    cause: Cause | None = None
    placement: tuple[Attribute, ...] = ()
    contested: bool = False


@value
class DoorView(Value):
    """Everything that answers need: the devices that are offered, in the order of the slices, and the host.

    ``generation``: of the snapshot it was made from. ``others``: what rules offer through the plugin door alone. No
    slice has them, but a claim that only looks on may have been allocated one in the moment in which its rule changed.
    """

    devices: tuple[DraDevice, ...] = ()
    host: Host = Host()
    generation: int = 0
    others: tuple[DraDevice, ...] = ()

    def device(self, name: str) -> DraDevice | None:
        """The device of that name, which is its name in the slices, too."""
        return next((offered for offered in self.devices if offered.device.name == name), None)

    def device_for(self, name: str, *, looking: bool) -> DraDevice | None:
        """The device for a claim that was allocated it; ``looking``: with ``adminAccess``."""
        found = self.device(name)
        if found is None and looking:
            return next((other for other in self.others if other.device.name == name), None)
        return found
