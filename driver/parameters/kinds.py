"""The kinds of parameters, version ``ostler.dev/v1alpha1``: what a claim or a class may say of each kind of device.

A field that is not written is None: it leaves what an earlier configuration, or the node's rule, says. What depends on
the node alone (driver root, CDI mode, ids) is not here, because whoever writes a claim cannot know it.
"""

from __future__ import annotations

from node.inventory.model import DeviceKind
from node.values import Value, value

API_VERSION = "ostler.dev/v1alpha1"


@value
class GpuConfig(Value):
    """Whole GPUs and AMD's partitions.

    ``gdrcopy``, ``gds``, ``mofed``: device nodes that NVIDIA's features of these names need, or not.
    ``imex_channels``: numbers of IMEX channels, ``imex_required``: fail where one is missing.
    """

    gdrcopy: bool | None = None
    gds: bool | None = None
    mofed: bool | None = None
    imex_channels: tuple[int, ...] | None = None
    imex_required: bool | None = None


@value
class MigConfig(Value):
    """MIG devices; the fields are those of ``GpuConfig``, but for IMEX, which MIG devices cannot use."""

    gdrcopy: bool | None = None
    gds: bool | None = None
    mofed: bool | None = None


@value
class NicConfig(Value):
    """NICs. ``rdma``: the device nodes of their RDMA device. ``vhost_net``: /dev/vhost-net and /dev/net/tun."""

    rdma: bool | None = None
    vhost_net: bool | None = None


Config = GpuConfig | MigConfig | NicConfig

KINDS: dict[str, type[Config]] = {"GpuConfig": GpuConfig, "MigConfig": MigConfig, "NicConfig": NicConfig}
"""Every kind by the name in ``kind``."""
DEVICE_KINDS: dict[type[Config], tuple[DeviceKind, ...]] = {
    GpuConfig: (DeviceKind.GPU, DeviceKind.PARTITION),
    MigConfig: (DeviceKind.MIG,),
    NicConfig: (DeviceKind.NIC, DeviceKind.RDMA),
}
"""The devices that each kind is for."""
CLASS_ONLY = frozenset({"imexChannels", "imexRequired", "mofed"})
"""Fields that only a DeviceClass may have, because what they give is more than the claim's devices.

A channel opens other nodes' memory, and ``mofed`` every RDMA device of the node, whoever has been allocated it.
"""


def kind_for(device: DeviceKind) -> str:
    """The name of the kind that is for such a device."""
    return next(name for name, kind in KINDS.items() if device in DEVICE_KINDS[kind])
