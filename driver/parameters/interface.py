"""What a claim asks of the network interfaces that move into its pod.

Pure. An interface moves if the rule of its device has ``moveInterface``.
"""

from __future__ import annotations

from driver.claims.model import AllocatedDevice
from driver.devices.view import DraDevice


def moves(allocated: AllocatedDevice, offered: DraDevice) -> bool:
    """Whether the device's interface moves into the claim's pod.

    A monitoring claim (``adminAccess``) moves none, and some functions have none (InfiniBand alone, vfio, uio).
    """
    return offered.rule.moves_interface and not allocated.admin_access and bool(offered.device.text("ifName"))
