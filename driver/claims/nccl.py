"""Variables by which NCCL uses the NICs of a claim, for claims that ask for them (``nccl: true``).

NCCL otherwise takes every RDMA device that the container shows, and in the kernel's shared mode a container shows all
of the node's. The variables name the devices and interfaces of the whole claim, and are the same in all of its
requests: in CDI the last one sets a variable, so a container with several requests of the claim would otherwise lose
NICs. NCCL leaves out devices that a container cannot open. A container with NICs of several claims gets the variables
of one of them: put NICs that work together into one claim.

``NCCL_IB_GID_INDEX`` is not set: the kernel numbers the GIDs of an interface anew when it moves into a pod, so the
index is not known here, and it is one number for all devices. NCCL chooses the GID itself since 2.21.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from driver.claims.edits import ClaimEdits
from driver.claims.model import Allocation
from driver.devices.view import DraDevice
from driver.parameters.options import DeviceKey, DeviceParameters
from node.interfaces.model import MovableInterface
from node.inventory.model import Device
from node.values import replace

HCA, SOCKET = "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME"


def with_nccl_edits(
    allocation: Allocation,
    offered: Sequence[DraDevice],
    parameters: DeviceParameters,
    interfaces: Mapping[DeviceKey, MovableInterface],
    edits: Sequence[ClaimEdits],
) -> tuple[ClaimEdits, ...]:
    """The edits, with the variables in those of the first such NIC of each request; ``interfaces``: those that move.

    An equals sign makes NCCL compare whole names; without it, ``mlx5_1`` also means ``mlx5_10``. An interface that has
    no address in the pod is no way between pods, so it is left out.
    """
    hcas: dict[str, None] = {}
    names: dict[str, None] = {}
    first: dict[str, int] = {}
    for number, (allocated, each) in enumerate(zip(allocation.devices, offered, strict=True)):
        options = parameters.options[allocated.key]
        if not options.nccl:
            continue
        first.setdefault(allocated.main_request, number)
        if options.rdma and each.device.text("rdmaDevice"):
            hcas[_hca(each.device)] = None
        moved = interfaces.get(allocated.key)
        if moved is not None and moved.settings.addresses != ():
            names[moved.settings.name or moved.interface] = None
    variables = tuple((name, f"={','.join(found)}") for name, found in ((HCA, hcas), (SOCKET, names)) if found)
    return tuple(
        replace(edit, edits=replace(edit.edits, env=(*edit.edits.env, *variables)))
        if number in first.values()
        else edit
        for number, edit in enumerate(edits)
    )


def _hca(device: Device) -> str:
    """The RDMA device and its port. Ports of RDMA count from 1, those of interfaces from 0."""
    port = device.attribute("port")
    return f"{device.text('rdmaDevice')}:{port + 1 if isinstance(port, int) else 1}"
