"""Names that stand in configurations, files and taints: peers' drivers, effects of taints, the claims' CDI files.

The configuration and the start of the agent need them before anything else of the driver, so this imports none of it.
"""

from __future__ import annotations

from enum import StrEnum

from node.inventory.nvidia import vendor as nvidia


class Peer(StrEnum):
    """A driver by its name, which is at the same time the domain of its attributes."""

    NVIDIA = nvidia.DRA_DRIVER
    DRANET = "dra.net"
    SRIOV = "sriovnetwork.k8snetworkplumbingwg.io"


class TaintEffect(StrEnum):
    """The effects that a sick device's taint may have."""

    NO_SCHEDULE = "NoSchedule"
    """No new claim gets the device; pods that have it run on."""
    NO_EXECUTE = "NoExecute"
    """Pods that have it are evicted as well."""


def file_prefix(driver: str) -> str:
    """What the names of the claims' files begin with; readers of other people's specs leave them out."""
    return f"{driver}-claim_"
