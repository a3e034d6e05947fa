"""The DeviceClasses of a cluster, for needs of pools: which published devices belong to them.

A class of the cluster has selectors of Kubernetes, which are asked of the ResourceSlice's own devices; a class that is
given as a document has constraints of pools. Both can stand beside each other; a document wins over a class of the
cluster with its name.

Kubernetes has no device types. A class is of the type that its label `devmgmtproto.k8s.io/device-type` says, which
`ostler pools convert` writes, else of the one that its name begins with: `deviceType: gpu` means `gpu.nvidia.com`,
`gpu.ostler.dev` and a class `gpu`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from scheduling.allocator.claims import Claim, DeviceClass
from scheduling.allocator.pools import Features
from scheduling.allocator.reading import FatalError, Object, Part
from scheduling.allocator.selectors import Selectors
from scheduling.allocator.slices import SliceDevice
from scheduling.cel.errors import CelError
from scheduling.cel.program import SelectorCondition
from scheduling.pools.capacity import DeviceName
from scheduling.pools.claim_documents import DeviceClaimDetail
from scheduling.pools.constraints import outcome_of
from scheduling.pools.documents import API_VERSION, DeviceClassSpec, DocumentMetadata, PoolDeviceClass
from scheduling.pools.matching import MatchingError, PooledDevice, is_eligible
from scheduling.pools.published import PublishedPool

DEVICE_TYPE_LABEL: Final = "devmgmtproto.k8s.io/device-type"
"""Label of a DeviceClass with its device type, for which Kubernetes has no field."""


def type_of_class(class_: Object) -> str:
    """The device type of a cluster's class."""
    metadata = Part.whole("DeviceClass", class_).part("metadata")
    label = metadata.mapping("labels").get(DEVICE_TYPE_LABEL)
    return label if isinstance(label, str) and label else metadata.string("name").partition(".")[0]


class ClusterClasses:
    """Classes by name, and which devices of published pools belong to each."""

    def __init__(
        self,
        classes: Iterable[Object],
        pools: Iterable[PublishedPool],
        features: Features = Features(),  # noqa: B008 - a frozen value
        written: Iterable[PoolDeviceClass] = (),
    ) -> None:
        """`classes` of the cluster (v1), and `written` as documents. Raises `InvalidObject`."""
        objects = tuple(classes)
        self._cluster = {each.name: each for each in map(DeviceClass, objects)}
        self._written = {each.metadata.name: each for each in written}
        self._selectors = Selectors(features)
        self._devices: dict[DeviceName, SliceDevice] = {
            (pool.document.metadata.name, each.name): each.source
            for pool in pools
            for each in pool.devices
            if each.source is not None
        }
        self._known: dict[tuple[str, DeviceName], bool] = {}
        self.documents: Mapping[str, PoolDeviceClass] = {
            **{each.metadata.name: each for each in map(_document, objects)},
            **self._written,
        }

    def is_eligible(self, device: PooledDevice, class_: PoolDeviceClass, detail: DeviceClaimDetail) -> bool:
        """True if a need can be met by this device through this class. Raises MatchingError."""
        name = class_.metadata.name
        if name in self._written:
            return is_eligible(device, class_, detail)
        if not self.has(name, device.name):
            return False
        outcome = outcome_of(detail.constraints, device.facts)
        if outcome.error is not None:
            pool, own = device.name
            raise MatchingError(f"the claim, at device {own} of pool {pool}: {outcome.error}") from outcome.error
        return outcome.result

    def is_member(self, device: PooledDevice, class_: PoolDeviceClass) -> bool:
        """True if a device belongs to a class, whatever a need asks for. Raises MatchingError."""
        return self.is_eligible(device, class_, DeviceClaimDetail())

    def has(self, name: str, device: DeviceName) -> bool:
        """True if a class of the cluster has a published device; never one that only a document lists.

        Raises MatchingError where a selector fails.
        """
        if device not in self._devices:
            return False
        known = self._known.get((name, device))
        if known is None:
            known = self._known[name, device] = self._select(self._cluster[name], self._devices[device])
        return known

    def is_of_cluster(self, name: str) -> bool:
        """True if the class is one of the cluster, not a document."""
        return name in self._cluster and name not in self._written

    def signature(self, name: str, device: DeviceName) -> Hashable:
        """Equal for devices that a class of the cluster cannot tell apart."""
        source = self._devices.get(device)
        if source is None:
            return None
        try:
            programs = [self._selectors.program(each or "") for each in self._cluster[name].selectors]
        except CelError as error:
            return str(error)
        found = tuple(each.signature(source.cel) for each in programs)
        # The text of a selector does not always show what it reads.
        return (device, found) if None in found else found

    def conditions(self, name: str, device: DeviceName) -> tuple[SelectorCondition, ...]:
        """The conditions of the first selector of a cluster's class that is not true of a device.

        None if all are true, or for a device that only a document lists. To be asked after `has`, which judges the
        selectors.
        """
        source = self._devices.get(device)
        if source is None:
            return ()
        programs = (self._selectors.program(each or "") for each in self._cluster[name].selectors)
        refusing = next((each for each in programs if not each.evaluate(source.cel).result), None)
        return () if refusing is None else refusing.account(source.cel)

    def _select(self, class_: DeviceClass, device: SliceDevice) -> bool:
        try:
            return self._selectors.select(device, _NOBODY, _NOBODY.requests[0].alternatives[0], class_)
        except FatalError as error:
            raise MatchingError(str(error)) from error


_NOBODY = Claim({"spec": {"devices": {"requests": [{"name": "any", "exactly": {}}]}}})
"""A claim that asks for nothing of a device beyond its class."""


def _document(class_: Object) -> PoolDeviceClass:
    name = Part.whole("DeviceClass", class_).owner.name
    spec = DeviceClassSpec(device_type=type_of_class(class_))
    return PoolDeviceClass(API_VERSION, "DeviceClass", DocumentMetadata(name=name), spec)
