"""Why a container that got a device would not start, or would miss what its rule promises: asked before it is offered.

Pure. Allocate cannot refuse well (the kubelet fails the pod for good), so everything that can be known from the
snapshot is decided here.
"""

from __future__ import annotations

from node.edits.allocation import cdi_name, lacking
from node.edits.nvidia import cdi_names as nvidia_names
from node.edits.nvidia import missing_channels, undescribed
from node.edits.options import CdiMode, EditOptions
from node.inventory.model import Device, Host
from node.inventory.vendor import Family
from node.inventory.vendors import family_of


def unfit(id_: str, device: Device, options: EditOptions, host: Host) -> str:
    """The reason in words, empty for none; ``id_`` is the device's id towards the kubelet."""
    if family_of(device) is Family.NVIDIA:
        return _not_named(id_, device, options, host) or _no_channel(device, options)
    reason = lacking(device, options)
    if not reason and options.uses_cdi and host.cdi_fault and cdi_name(device, options):
        return f"no CDI spec can describe it, {host.cdi_fault}"
    return reason


def _not_named(id_: str, device: Device, options: EditOptions, host: Host) -> str:
    """Why a device of NVIDIA's has no CDI name, where the rule's answers need one."""
    if not options.uses_cdi:
        return ""
    if options.cdi_mode is CdiMode.DELEGATE:
        names = nvidia_names([(id_, device)], options)
        unknown = next((name for name in names if name not in host.cdi_devices), None)
        return f"no CDI spec on this node defines {unknown}; run '{_generate(unknown)}'" if unknown else ""
    reason = undescribed(device, options, host) or host.cdi_fault
    return f"no CDI spec can describe it, {reason}" if reason else ""


def _generate(name: str) -> str:
    """The command that makes the spec which defines a name of NVIDIA's; the class gpu is its default."""
    class_ = name.partition("=")[0].rpartition("/")[2]
    if class_ == "gpu":
        return "nvidia-ctk cdi generate"
    return f"nvidia-ctk cdi generate --mode={class_.removesuffix('-channel')} --class={class_}"


def _no_channel(device: Device, options: EditOptions) -> str:
    missing = missing_channels(device, options) if options.imex_required else ()
    return f"required IMEX channels are missing: {', '.join(missing)}" if missing else ""
