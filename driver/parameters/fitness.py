"""Whether a device and its node can give what parameters ask for: asked before anything is touched.

What the node's rule asks for was judged when the device was offered (``node.offer``); this is about what a claim or
class adds to it, and about RDMA in the kernel's exclusive mode, which no offer knows: there an RDMA device works in one
network namespace alone, and a claim moves nothing into the pod's.
"""

from __future__ import annotations

from collections.abc import Mapping

from driver.claims.errors import ClaimError
from driver.parameters.errors import ParameterError
from node.edits.families import Family, family_of
from node.edits.nic import NEEDED_FOR_RDMA, TUN, VHOST_NET
from node.edits.nvidia import CHANNEL, FEATURES, feature_nodes, missing_channels
from node.edits.options import CdiMode, EditOptions
from node.inventory.model import Device, Host, NodeRole

EXCLUSIVE = "RDMA devices of this node are bound to network namespaces (exclusive mode)"


def check_fit(device: Device, options: EditOptions, host: Host, places: Mapping[str, str]) -> None:
    """Raise ``ParameterError`` or ``ClaimError`` for what cannot be given.

    ``places``: the options that a configuration has changed, by name, and where that stands.
    """
    family = family_of(device)
    if family is Family.NIC:
        _check_rdma(device, options, host, places.get("rdma"))
        _check_vhost_net(device, options, places.get("vhost_net"))
    elif family is Family.NVIDIA:
        _check_features(device, options, places.get("features"))
        _check_channels(device, options, places)
    elif places:
        place = next(iter(places.values()))
        fix = "leave its fields out"
        raise ParameterError(
            place, "", f"gdrcopy, gds, mofed and IMEX are NVIDIA's, {device.name} is {device.vendor}'s", fix
        )


def _check_rdma(device: Device, options: EditOptions, host: Host, place: str | None) -> None:
    if not options.rdma:
        return
    if host.rdma_exclusive:
        fix = (
            "run 'rdma system set netns shared' on the node before any pod has a network, or use the device plugin "
            "door with a CNI plugin that moves RDMA devices (rdma-cni)"
        )
        if place is not None:
            raise ParameterError(place, "rdma", f"{device.name}: {EXCLUSIVE}, and none is moved into a pod", fix)
        raise ClaimError(f"device {device.name}: its rule gives RDMA; {EXCLUSIVE}, and none is moved into a pod; {fix}")
    if place is None or device.attribute("inPod") is True:
        return
    files = [node.path for node in device.nodes_of(NodeRole.RDMA) if node.present]
    missing = [file for file in NEEDED_FOR_RDMA if not any(f"/{file}" in path for path in files)]
    if missing:
        has = f"these RDMA device nodes are missing: {', '.join(missing)}" if files else "it has no RDMA device"
        raise ParameterError(place, "rdma", f"{device.name}: {has}", "select devices with RDMA, or leave it out")


def _check_vhost_net(device: Device, options: EditOptions, place: str | None) -> None:
    if place is None or not options.vhost_net:
        return
    found = {node.path for node in device.nodes_of(NodeRole.AUXILIARY) if node.present}
    missing = [path for path in (VHOST_NET, TUN) if path not in found]
    if missing:
        fix = "load the kernel module vhost_net on the node, or leave it out"
        raise ParameterError(place, "vhostNet", f"{', '.join(missing)} missing on this node", fix)


def _check_features(device: Device, options: EditOptions, place: str | None) -> None:
    # Where the vendor's specs are used, they say what is there.
    if place is None or options.cdi_mode is CdiMode.DELEGATE:
        return
    for feature in options.features:
        if not feature_nodes([device], feature):
            wanted = " or ".join(FEATURES[feature])
            fix = "load its kernel module on the node, or leave it out"
            raise ParameterError(place, feature, f"the node has no {wanted}", fix)


def _check_channels(device: Device, options: EditOptions, places: Mapping[str, str]) -> None:
    place = places.get("imex_required") or places.get("imex_channels")
    if place is None or not options.imex_required:
        return
    missing = missing_channels(device, options)
    if missing:
        fix = f"create them (nvidia-modprobe, {CHANNEL}N), or set imexRequired to false"
        raise ParameterError(place, "imexChannels", f"missing on this node: {', '.join(missing)}", fix)
