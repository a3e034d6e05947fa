"""Parameters for another driver whose claims ours serves as well (``alsoPublishAs``): never silently ignored.

A claim that was written for a peer gets a whole device, and NVIDIA's sharing (``driver.parameters.sharing``).
Everything else that its parameters ask for is refused with field, value and fix, and so is a field that the peer does
not know itself. Parameters for any other driver are that driver's, as in Kubernetes: a class may hold some for each
driver that can serve it.

Pure. Kinds and fields are those of NVIDIA's driver (``resource.nvidia.com/v1beta1``), of DRANET (which has no versions)
and of the SR-IOV driver (``v1alpha1``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from driver.claims.model import AllocatedConfig, AllocatedDevice
from driver.devices.description import is_of
from driver.devices.view import DraDevice
from driver.names import Peer
from driver.parameters.decoding import doubled_keys
from driver.parameters.errors import UnservedParameter, missing_or, shown, shown_key, shown_path
from driver.parameters.sharing import (
    SharingParameters,
    SharingTarget,
    memories_of,
    memory_of,
    percentage_of,
    time_slice_of,
    truth_of,
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
_NO_INTERFACE = "ostler moves no network interface and sets none up"
_LEAVE_NIC = "leave it out, or keep that driver for claims that need it"

_DEEPEST = 6
"""Levels below a field that are searched for a value; no driver has as many, so deeper content counts as a value."""

_Fields = Mapping[str, Callable[["_Parameters", str, Json], None]]


def check_served(config: AllocatedConfig, ours: str) -> SharingParameters | None:
    """Raise ``UnservedParameter`` for a demand of a peer's parameters that ostler cannot serve.

    Returns how containers share the claim's devices, if the parameters are NVIDIA's; ``check_sharing`` judges whether a
    device can be shared so. ``ours``: the name of our driver, for the fix.
    """
    assert config.peer is not None, "parameters of our own are decoded"
    parameters = _Parameters(config, ours)
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


class _Parameters:
    """A peer's parameters, their place, and the errors about them."""

    def __init__(self, config: AllocatedConfig, ours: str) -> None:
        self.content = config.parameters
        self.ours = ours
        self._place = config.labelled_place
        self._peer = config.peer

    def error(self, field: str, found: str, fix: str) -> UnservedParameter:
        """The error that ``field`` holds ``found``."""
        return UnservedParameter(self._place, field, found, fix)

    def sharing(self, strategy: SharingStrategy, said: str, **more: Any) -> SharingParameters:
        """A section ``sharing`` of these parameters."""
        return SharingParameters(self._place, strategy, said, of_peer=True, **more)

    def unserved(self, field: str, content: Json, fix: str, why: str = "") -> UnservedParameter:
        """The error that ostler does not support the value."""
        because = f": {why}" if why else ""
        return self.error(field, f"{shown(content)} is for {self._peer} and ostler does not support it{because}", fix)

    def each(self, content: JsonObject, fields: _Fields, path: str = "", *, skip: Collection[str] = ()) -> None:
        """Check every field of an object; null counts as absent."""
        for key, value in content.items():
            if key in skip:
                continue
            if key not in fields:
                known = ", ".join(fields)
                raise self.error(f"{path}{shown_key(key)}", f"{self._peer} has no such field", f"it has {known}")
            if value is not None:
                fields[key](self, f"{path}{key}", value)

    def versioned(self, version: str, kinds: Collection[str]) -> str:
        """The kind, which must be a supported one."""
        found, kind = self.content.get("apiVersion"), self.content.get("kind")
        if found != version:
            raise self.error("apiVersion", missing_or(found), f"write {version}")
        if not isinstance(kind, str) or kind not in kinds:
            raise self.error("kind", missing_or(kind), f"write one of {', '.join(kinds)}")
        return kind


def _nvidia(parameters: _Parameters) -> SharingParameters:
    kind = parameters.versioned(NVIDIA_VERSION, (_GPU, _MIG, "VfioDeviceConfig"))
    if kind not in (_GPU, _MIG):
        fix = "leave the parameters out, or keep NVIDIA's driver for claims that pass a GPU to a virtual machine"
        raise parameters.unserved("kind", kind, fix)
    found: list[SharingParameters] = []
    fields: _Fields = {"sharing": lambda each, path, content: found.append(_sharing(each, path, content, kind))}
    parameters.each(parameters.content, fields, skip=("apiVersion", "kind"))
    return found[0] if found else parameters.sharing(SharingStrategy.TIME_SLICING, _TIME_SLICING)


def _sharing(parameters: _Parameters, path: str, content: Json, kind: str) -> SharingParameters:
    sharing = _object(parameters, path, content)
    said = sharing.get("strategy")
    if said not in (_TIME_SLICING, _MPS):
        raise parameters.error(f"{path}.strategy", missing_or(said), f"write {_TIME_SLICING} or {_MPS}")
    if said == _TIME_SLICING:
        made = _time_slicing(parameters, path, sharing, kind)
    else:
        made = _mps(parameters, path, sharing)
    both: _Fields = dict.fromkeys(("strategy", "mpsConfig", *(("timeSlicingConfig",) if kind == _GPU else ())), _any)
    parameters.each(sharing, both, f"{path}.")
    return made


def _time_slicing(parameters: _Parameters, path: str, sharing: JsonObject, kind: str) -> SharingParameters:
    _only_with(parameters, f"{path}.mpsConfig", sharing.get("mpsConfig"), _MPS)
    content = sharing.get("timeSlicingConfig")
    if content is None or kind != _GPU:
        return parameters.sharing(SharingStrategy.TIME_SLICING, _TIME_SLICING)
    path = f"{path}.timeSlicingConfig"
    given = _object(parameters, path, content)
    parameters.each(given, {"interval": _any}, f"{path}.")
    words = {length.name.title(): length for length in TimeSlice}
    length = time_slice_of(parameters.error, f"{path}.interval", given.get("interval"), words)
    return parameters.sharing(SharingStrategy.TIME_SLICING, _TIME_SLICING, time_slice=length)


def _mps(parameters: _Parameters, path: str, sharing: JsonObject) -> SharingParameters:
    _only_with(parameters, f"{path}.timeSlicingConfig", sharing.get("timeSlicingConfig"), _TIME_SLICING)
    path = f"{path}.mpsConfig"
    given = {} if sharing.get("mpsConfig") is None else _object(parameters, path, sharing["mpsConfig"])
    percentage, limit, limits, multi = _MPS_FIELDS
    parameters.each(given, dict.fromkeys(_MPS_FIELDS, _any), f"{path}.")
    refusal = parameters.error
    return parameters.sharing(
        SharingStrategy.MPS,
        _MPS,
        thread_percentage=percentage_of(refusal, f"{path}.{percentage}", given.get(percentage)),
        memory_limit=memory_of(refusal, f"{path}.{limit}", given.get(limit)),
        memory_limits=memories_of(refusal, f"{path}.{limits}", given.get(limits)),
        multi_user=truth_of(refusal, f"{path}.{multi}", given.get(multi)),
    )


def _only_with(parameters: _Parameters, path: str, content: Json, strategy: str) -> None:
    if content is not None:
        raise parameters.error(
            path, f"{shown(content)} is for strategy {strategy}", f"leave it out, or write {strategy}"
        )


def _dranet(parameters: _Parameters) -> None:
    names = ("profile", "interface", "routes", "rules", "neighbors", "ethtool")
    parameters.each(parameters.content, dict.fromkeys(names, _nothing))


def _nothing(parameters: _Parameters, path: str, content: Json) -> None:
    """Refuse the first value that asks for anything."""
    for field, value in _said(path, content):
        raise parameters.unserved(field, value, _LEAVE_NIC, _NO_INTERFACE)


def _said(path: str, content: Json, levels: int = _DEEPEST) -> Iterator[tuple[str, Json]]:
    if levels and isinstance(content, dict):
        for key, value in content.items():
            yield from _said(f"{path}.{shown_key(key)}", value, levels - 1)
    elif levels and isinstance(content, list):
        for index, value in enumerate(content):
            yield from _said(f"{path}[{index}]", value, levels - 1)
    elif content is not None and content is not False and content != "":
        yield path, content


def _sriov(parameters: _Parameters) -> None:
    parameters.versioned(SRIOV_VERSION, ("VfConfig",))
    fields: _Fields = {
        "driver": _kernel_driver,
        "addVhostMount": _vhost,
        **dict.fromkeys(("ifName", "netAttachDefName", "netAttachDefNamespace"), _nothing),
    }
    parameters.each(parameters.content, fields, skip=("apiVersion", "kind"))


def _kernel_driver(parameters: _Parameters, path: str, content: Json) -> None:
    if content != "":
        fix = f"bind it on the node, and select the device by its attribute driver of {parameters.ours}"
        raise parameters.unserved(path, content, fix, "ostler binds no kernel driver")


def _vhost(parameters: _Parameters, path: str, content: Json) -> None:
    if content is not False:
        fix = f"write kind NicConfig with vhostNet: true for the driver {parameters.ours}"
        raise parameters.unserved(path, content, fix)


def _any(parameters: _Parameters, path: str, content: Json) -> None:
    """Accept the value."""


def _object(parameters: _Parameters, path: str, content: Json) -> JsonObject:
    if not isinstance(content, dict):
        raise parameters.error(path, f"{shown(content)} is not an object", "write an object, or leave it out")
    return content


_CHECKS: Mapping[Peer, Callable[[_Parameters], SharingParameters | None]] = {
    Peer.NVIDIA: _nvidia,
    Peer.DRANET: _dranet,
    Peer.SRIOV: _sriov,
}
