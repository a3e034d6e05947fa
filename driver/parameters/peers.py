"""Parameters for a driver in whose name devices are published as well (``alsoPublishAs``): never passed over silently.

A claim that was written for a peer gets a whole device and nothing else. So its parameters are taken where they ask for
no more than that, which is what the peer's own defaults say; whatever else they ask for is refused by field, value and
fix, and so is what the peer does not know itself. Parameters for any other driver are that driver's, as Kubernetes has
it: a class may hold some for each driver that can serve it.

Pure. Kinds and fields are those of NVIDIA's driver (``resource.nvidia.com/v1beta1``), of DRANET (which has no versions)
and of the SR-IOV driver (``v1alpha1``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from driver.claims.model import AllocatedConfig, AllocatedDevice
from driver.devices.description import is_of
from driver.devices.view import DraDevice
from driver.names import Peer
from driver.parameters.decoding import UnservedParameter, doubled_keys, missing_or, shown, shown_key, shown_path
from kube.bodies import Json, JsonObject

NVIDIA_VERSION = "resource.nvidia.com/v1beta1"
SRIOV_VERSION = f"{Peer.SRIOV}/v1alpha1"

_WHOLE = "leave it out: a claim gets the whole device; or keep NVIDIA's driver for claims that share one"
_NO_INTERFACE = "ostler moves no network interface and sets none up"
_LEAVE_NIC = "leave it out, or keep that driver for claims that need it"

_DEEPEST = 6
"""Levels below a field in which a value is looked for; no driver has as many, and what is deeper says something."""

_Fields = Mapping[str, Callable[["_Parameters", str, Json], None]]


def check_served(config: AllocatedConfig, ours: str) -> None:
    """Raise ``UnservedParameter`` for what a peer's parameters ask for beyond a whole device.

    ``ours``: the name of our driver, for what to write instead.
    """
    assert config.peer is not None, "parameters of our own are decoded"
    parameters = _Parameters(config, ours)
    doubled = doubled_keys(config.parameters)
    if doubled:
        raise parameters.error(shown_path(doubled[0]), "the key occurs twice", "write it once")
    _CHECKS[config.peer](parameters)


def concerns(config: AllocatedConfig, allocated: AllocatedDevice, offered: DraDevice) -> bool:
    """Whether a peer's parameters are for this device of ours.

    They are where they name its request. Those for all requests are for the devices that we publish as the peer's.
    """
    if config.requests:
        return allocated.request in config.requests or allocated.main_request in config.requests
    return config.peer is not None and is_of(config.peer, offered.device)


class _Parameters:
    """A peer's parameters, where they stand, and how to name what is wrong with them."""

    def __init__(self, config: AllocatedConfig, ours: str) -> None:
        self.content = config.parameters
        self.ours = ours
        self._place = config.labelled_place
        self._peer = config.peer

    def error(self, field: str, found: str, fix: str) -> UnservedParameter:
        """The error that ``field`` holds ``found``."""
        return UnservedParameter(self._place, field, found, fix)

    def unserved(self, field: str, content: Json, fix: str, why: str = "") -> UnservedParameter:
        """The error that nothing here serves the value."""
        because = f": {why}" if why else ""
        return self.error(field, f"{shown(content)} is for {self._peer} and ostler does not support it{because}", fix)

    def each(self, content: JsonObject, fields: _Fields, path: str = "", *, skip: Collection[str] = ()) -> None:
        """Have every field of an object checked; null is as if it were absent."""
        for key, value in content.items():
            if key in skip:
                continue
            if key not in fields:
                known = ", ".join(fields)
                raise self.error(f"{path}{shown_key(key)}", f"{self._peer} has no such field", f"it has {known}")
            if value is not None:
                fields[key](self, f"{path}{key}", value)

    def versioned(self, version: str, kinds: Collection[str]) -> str:
        """The kind, of those that are served."""
        found, kind = self.content.get("apiVersion"), self.content.get("kind")
        if found != version:
            raise self.error("apiVersion", missing_or(found), f"write {version}")
        if not isinstance(kind, str) or kind not in kinds:
            raise self.error("kind", missing_or(kind), f"write one of {', '.join(kinds)}")
        return kind


def _nvidia(parameters: _Parameters) -> None:
    kind = parameters.versioned(NVIDIA_VERSION, ("GpuConfig", "MigDeviceConfig", "VfioDeviceConfig"))
    if kind == "VfioDeviceConfig":
        fix = "leave the parameters out, or keep NVIDIA's driver for claims that pass a GPU to a virtual machine"
        raise parameters.unserved("kind", kind, fix)
    parameters.each(parameters.content, {"sharing": _sharing}, skip=("apiVersion", "kind"))


def _sharing(parameters: _Parameters, path: str, content: Json) -> None:
    sharing = _object(parameters, path, content)
    if sharing.get("strategy") != "TimeSlicing":
        raise parameters.unserved(f"{path}.strategy", sharing.get("strategy"), _WHOLE)
    fields: _Fields = {"strategy": _any, "timeSlicingConfig": _time_slicing, "mpsConfig": _mps}
    parameters.each(sharing, fields, f"{path}.")


def _mps(parameters: _Parameters, path: str, content: Json) -> None:
    raise parameters.unserved(path, content, _WHOLE)


def _time_slicing(parameters: _Parameters, path: str, content: Json) -> None:
    parameters.each(_object(parameters, path, content), {"interval": _interval}, f"{path}.")


def _interval(parameters: _Parameters, path: str, content: Json) -> None:
    if content != "Default":
        raise parameters.unserved(path, content, "write Default, which every GPU has, or leave sharing out")


def _dranet(parameters: _Parameters) -> None:
    names = ("profile", "interface", "routes", "rules", "neighbors", "ethtool")
    parameters.each(parameters.content, dict.fromkeys(names, _nothing))


def _nothing(parameters: _Parameters, path: str, content: Json) -> None:
    """Refuse the first value that says anything."""
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
    """Take it as it is."""


def _object(parameters: _Parameters, path: str, content: Json) -> JsonObject:
    if not isinstance(content, dict):
        raise parameters.error(path, f"{shown(content)} is not an object", "write an object, or leave it out")
    return content


_CHECKS: Mapping[Peer, Callable[[_Parameters], None]] = {
    Peer.NVIDIA: _nvidia,
    Peer.DRANET: _dranet,
    Peer.SRIOV: _sriov,
}
