"""Health of NICs as one scan sees it: whether somebody can drive the function.

Pure. The link is not part of it: whether a link that is down makes a NIC unhealthy is for the rule that offers it. A
NIC in a pod is as healthy as any other.
"""

from __future__ import annotations

from collections.abc import Iterable

from node.health.signal import Trouble
from node.health.state import Health, HealthState, Recovery
from node.inventory.model import DeviceNode, NodeRole
from node.inventory.nics.drivers import keeps_away, uses_uio, uses_vfio
from node.inventory.nics.parts import NicPart


def nic_health(part: NicPart, nodes: Iterable[DeviceNode], *, listed: bool) -> Health:
    """Health of a function or subfunction.

    ``nodes``: its device nodes; ``listed``: whether /dev was looked into, so that a missing one means something.
    """
    driver = part.driver
    if driver is None:
        return _unhealthy("no driver is bound", Trouble.UNBOUND)
    if keeps_away(driver):
        return _unhealthy(f"the driver {driver} is bound, which only keeps it from others")
    if not (uses_vfio(driver) or uses_uio(driver)):
        return Health()
    own = [node for node in nodes if node.role is NodeRole.DEVICE]
    if not own:
        thing = "IOMMU group" if uses_vfio(driver) else "uio device"
        return _unhealthy(f"the driver {driver} is bound, and it has no {thing}")
    missing = next((node.on_host or node.path for node in own if listed and not node.present), None)
    return Health() if missing is None else _unhealthy(f"its device node {missing} does not exist", Trouble.NODE)


def _unhealthy(reason: str, cause: str = "") -> Health:
    return Health(HealthState.UNHEALTHY, reason, recovery=Recovery.AUTOMATIC, cause=str(cause))
