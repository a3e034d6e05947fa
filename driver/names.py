"""Names that stand in configurations, files and taints: peers' drivers, effects of taints, versions of metadata, the
claims' CDI files.

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
    MULTUS = "k8s.cni.cncf.io"
    """No driver, but the domain of the two attributes by which Multus finds the device of a network in a claim."""


class TaintEffect(StrEnum):
    """The effects that a sick device's taint may have."""

    NO_SCHEDULE = "NoSchedule"
    """No new claim gets the device; pods that have it run on."""
    NO_EXECUTE = "NoExecute"
    """Pods that have it are evicted as well."""


class MetadataVersion(StrEnum):
    """Versions of ``metadata.resource.k8s.io`` that describe devices to containers, the newest first."""

    V1BETA1 = "v1beta1"
    V1ALPHA1 = "v1alpha1"


def file_prefix(driver: str) -> str:
    """The prefix of the names of the claims' CDI files; readers of other people's specs leave these files out."""
    return f"{driver}-claim_"


def metadata_prefix(driver: str) -> str:
    """The prefix of the names of the CDI files that mount metadata files; readers leave these out as well."""
    return f"{driver}_metadata_"
