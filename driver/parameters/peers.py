"""Parameters for another driver whose claims ours serves as well (``alsoPublishAs``): never silently ignored.

A claim that was written for a peer gets a whole device, NVIDIA's sharing (``driver.parameters.sharing``), and the
interface of a NIC that moves into its pod as DRANET's parameters say (``driver.parameters.dranet``). Everything else
that its parameters ask for is refused with field, value and fix, and so is a field that the peer does not know itself.
Parameters for any other driver are that driver's, as in Kubernetes: a class may hold some for each driver that can
serve it.

Pure. Kinds and fields are those of NVIDIA's driver (``resource.nvidia.com/v1beta1``), of DRANET (which has no versions)
and of the SR-IOV driver (``v1alpha1``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from driver.claims.model import AllocatedConfig, AllocatedDevice
from driver.devices.description import is_of
from driver.devices.view import DraDevice
from driver.names import Peer
from driver.parameters.decoding import doubled_keys
from driver.parameters.dranet import dranet_interface
from driver.parameters.errors import missing_or, shown, shown_key, shown_path
from driver.parameters.interface import InterfaceParameters
from driver.parameters.interface_values import name_of
from driver.parameters.peer_form import PeerFields, PeerParameters, anything, object_at_path
from driver.parameters.sharing import (
    SharingParameters,
    SharingTarget,
    memories_of,
    memory_of,
    multi_user_of,
    percentage_of,
    time_slice_of,
)
from kube.bodies import Json, JsonObject
from node.inventory.model import DeviceKind
from node.inventory.nvidia.time_slices import TimeSlice
from node.sharing import SharingStrategy

NVIDIA_VERSION = "resource.nvidia.com/v1beta1"
SRIOV_VERSION = f"{Peer.SRIOV}/v1alpha1"

_GPU, _MIG = "GpuConfig", "MigDeviceConfig"
_KINDS: Mapping[str, str] = {_GPU: DeviceKind.GPU, _MIG: DeviceKind.MIG}
"""The devices that each kind of NVIDIA's parameters is for."""
_TIME_SLICING, _MPS = "TimeSlicing", "MPS"
_MPS_FIELDS = (
    "defaultActiveThreadPercentage",
    "defaultPinnedDeviceMemoryLimit",
    "defaultPerDevicePinnedMemoryLimit",
    "multiUser",
)


def check_served(config: AllocatedConfig, ours: str) -> SharingParameters | InterfaceParameters | None:
    """Raise ``UnservedParameter`` for a demand of a peer's parameters that ostler cannot serve.

    Returns how containers share the claim's devices, if the parameters are NVIDIA's, or the settings of an interface in
    its pod, if they ask for some; ``check_sharing`` and ``settings_for`` judge whether a device can have them.
    ``ours``: the name of our driver, for the fix.
    """
    assert config.peer is not None, "parameters of our own are decoded"
    parameters = PeerParameters(config, ours)
    doubled = doubled_keys(config.parameters)
    if doubled:
        raise parameters.error(shown_path(doubled[0]), "the key occurs twice", "write it once")
    return _CHECKS[config.peer](parameters)


def concerns(config: AllocatedConfig, allocated: AllocatedDevice, offered: DraDevice) -> bool:
    """Whether a peer's parameters apply to this device of ours.

    They do if they name its request. Parameters for all requests apply to the devices that we publish as the peer's.
    """
    if config.requests:
        return allocated.request in config.requests or allocated.main_request in config.requests
    return config.peer is not None and is_of(config.peer, offered.device)


def is_for(config: AllocatedConfig, target: SharingTarget) -> bool:
    """Whether NVIDIA's parameters of this kind are for such devices."""
    return _KINDS.get(str(config.parameters.get("kind"))) == target.kind


def check_kind(section: SharingParameters, config: AllocatedConfig, target: SharingTarget) -> None:
    """Raise ``ParameterError`` if they are not."""
    if not is_for(config, target):
        device = f"device {target.name} of request {target.request} is of kind {target.kind}"
        right = next((name for name, kind in _KINDS.items() if kind == target.kind), "")
        fix = f"write kind {right}" if right else "name the requests of NVIDIA's GPUs"
        raise section.refused(f"the parameters are of kind {config.parameters.get('kind')}, and {device}", fix)


def _nvidia(parameters: PeerParameters) -> SharingParameters:
    kind = parameters.versioned(NVIDIA_VERSION, (_GPU, _MIG, "VfioDeviceConfig"))
    if kind not in (_GPU, _MIG):
        fix = "leave the parameters out, or keep NVIDIA's driver for claims that pass a GPU to a virtual machine"
        raise parameters.unserved("kind", kind, fix)
    found: list[SharingParameters] = []
    fields: PeerFields = {"sharing": lambda each, path, content: found.append(_sharing(each, path, content, kind))}
    parameters.each(parameters.content, fields, skip=("apiVersion", "kind"))
    return found[0] if found else parameters.sharing(SharingStrategy.TIME_SLICING, _TIME_SLICING)


def _sharing(parameters: PeerParameters, path: str, content: Json, kind: str) -> SharingParameters:
    sharing = object_at_path(parameters, path, content)
    said = sharing.get("strategy")
    if said not in (_TIME_SLICING, _MPS):
        raise parameters.error(f"{path}.strategy", missing_or(said), f"write {_TIME_SLICING} or {_MPS}")
    if said == _TIME_SLICING:
        made = _time_slicing(parameters, path, sharing, kind)
    else:
        made = _mps(parameters, path, sharing)
    both: PeerFields = dict.fromkeys(
        ("strategy", "mpsConfig", *(("timeSlicingConfig",) if kind == _GPU else ())), anything
    )
    parameters.each(sharing, both, f"{path}.")
    return made


def _time_slicing(parameters: PeerParameters, path: str, sharing: JsonObject, kind: str) -> SharingParameters:
    _only_with(parameters, f"{path}.mpsConfig", sharing.get("mpsConfig"), _MPS)
    content = sharing.get("timeSlicingConfig")
    if content is None or kind != _GPU:
        return parameters.sharing(SharingStrategy.TIME_SLICING, _TIME_SLICING)
    path = f"{path}.timeSlicingConfig"
    given = object_at_path(parameters, path, content)
    parameters.each(given, {"interval": anything}, f"{path}.")
    words = {length.name.title(): length for length in TimeSlice}
    length = time_slice_of(parameters.error, f"{path}.interval", given.get("interval"), words)
    return parameters.sharing(SharingStrategy.TIME_SLICING, _TIME_SLICING, time_slice=length)


def _mps(parameters: PeerParameters, path: str, sharing: JsonObject) -> SharingParameters:
    _only_with(parameters, f"{path}.timeSlicingConfig", sharing.get("timeSlicingConfig"), _TIME_SLICING)
    path = f"{path}.mpsConfig"
    given = {} if sharing.get("mpsConfig") is None else object_at_path(parameters, path, sharing["mpsConfig"])
    percentage, limit, limits, multi = _MPS_FIELDS
    parameters.each(given, dict.fromkeys(_MPS_FIELDS, anything), f"{path}.")
    refusal = parameters.error
    return parameters.sharing(
        SharingStrategy.MPS,
        _MPS,
        thread_percentage=percentage_of(refusal, f"{path}.{percentage}", given.get(percentage)),
        memory_limit=memory_of(refusal, f"{path}.{limit}", given.get(limit)),
        memory_limits=memories_of(refusal, f"{path}.{limits}", given.get(limits)),
        multi_user=multi_user_of(refusal, f"{path}.{multi}", given.get(multi)),
    )


def _only_with(parameters: PeerParameters, path: str, content: Json, strategy: str) -> None:
    if content is not None:
        raise parameters.error(
            path, f"{shown(content)} is for strategy {strategy}", f"leave it out, or write {strategy}"
        )


def _sriov(parameters: PeerParameters) -> InterfaceParameters | None:
    parameters.versioned(SRIOV_VERSION, ("VfConfig",))
    names: list[str] = []

    def name(each: PeerParameters, path: str, content: Json) -> None:
        if content != "":
            names.append(name_of(each.error, path, content))

    fields: PeerFields = {
        "driver": _kernel_driver,
        "addVhostMount": _vhost,
        "ifName": name,
        **dict.fromkeys(("netAttachDefName", "netAttachDefNamespace"), _attachment),
    }
    parameters.each(parameters.content, fields, skip=("apiVersion", "kind"))
    return parameters.interface({"name": "ifName"}, name=names[0]) if names else None


def _attachment(parameters: PeerParameters, path: str, content: Json) -> None:
    if content != "":
        fix = f"write what it sets up as NicConfig with interface for the driver {parameters.ours}"
        raise parameters.unserved(path, content, fix, "ostler runs no CNI plugin")


def _kernel_driver(parameters: PeerParameters, path: str, content: Json) -> None:
    if content != "":
        fix = f"bind it on the node, and select the device by its attribute driver of {parameters.ours}"
        raise parameters.unserved(path, content, fix, "ostler binds no kernel driver")


def _vhost(parameters: PeerParameters, path: str, content: Json) -> None:
    if content is not False:
        fix = f"write kind NicConfig with vhostNet: true for the driver {parameters.ours}"
        raise parameters.unserved(path, content, fix)


def _multus(parameters: PeerParameters) -> None:
    for key in parameters.content:
        fix = "write what the network needs into its NetworkAttachmentDefinition"
        raise parameters.error(shown_key(key), f"{Peer.MULTUS} is Multus, which reads no parameters of claims", fix)


_CHECKS: Mapping[Peer, Callable[[PeerParameters], SharingParameters | InterfaceParameters | None]] = {
    Peer.NVIDIA: _nvidia,
    Peer.DRANET: dranet_interface,
    Peer.SRIOV: _sriov,
    Peer.MULTUS: _multus,
}
