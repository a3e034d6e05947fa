"""Other people's DRA drivers whose claims are to run unchanged on ours."""

from __future__ import annotations

from enum import StrEnum


class Peer(StrEnum):
    """A driver by its name, which is at the same time the domain of its attributes."""

    NVIDIA = "gpu.nvidia.com"
    DRANET = "dra.net"
    SRIOV = "sriovnetwork.k8snetworkplumbingwg.io"
