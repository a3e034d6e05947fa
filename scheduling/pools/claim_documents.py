"""DeviceClaim documents as frozen values: what a workload needs, and what it was given; and every kind of document.

Both spellings become the same values: `requests.devices` is `requests["count"]`, `maxDevices` is `limits["count"]`, and
the details of `allOf`, or the one written in place, are `all_of`.
"""

# ruff: noqa: RUF009 (`entry` makes a dataclass field; values of documents are immutable)

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from scheduling.api.quantities import ZERO, Quantity, from_int
from scheduling.pools.documents import COUNT, METADATA, DevicePool, DocumentMetadata, PoolDeviceClass
from scheduling.pools.fields import (
    AMOUNT,
    AMOUNTS,
    FLAG,
    RAW,
    TEXT,
    TEXTS,
    WHOLE,
    FieldProblem,
    Json,
    ListField,
    MapField,
    ObjectField,
    ReadingPlace,
    Spelling,
    entry,
    read_fields,
    write_fields,
)


@dataclass(frozen=True, slots=True)
class DeviceConfigReference:
    """A configuration object in the claim's own namespace."""

    api_version: str = entry("apiVersion", TEXT, default="", always=True)
    kind: str = entry("kind", TEXT, default="", always=True)
    name: str = entry("name", TEXT, default="", always=True)


class _Requests(MapField):
    """Requests of the later spelling, which counts `devices`."""

    def read(self, value: Json, place: ReadingPlace) -> dict[str, Quantity]:
        return {COUNT if name == "devices" else name: amount for name, amount in super().read(value, place).items()}


class _Most:
    """`maxDevices` of the later spelling."""

    def read(self, value: Json, place: ReadingPlace) -> dict[str, Quantity]:
        return {COUNT: from_int(WHOLE.read(value, place))}


@dataclass(frozen=True, slots=True)
class DeviceClaimDetail:
    """One need: devices of a class or type, from `requests["count"]` to `limits["count"]` of them.

    Other requests are minimums over all its devices together. `match_attributes` are equal on all its devices.
    """

    device_type: str | None = entry("deviceType", TEXT, later=None)
    device_class: str | None = entry("deviceClass", TEXT, later="class")
    constraints: str | None = entry("constraints", TEXT)
    requests: Mapping[str, Quantity] = entry("requests", AMOUNTS, later_kind=_Requests(AMOUNT), factory=dict)
    limits: Mapping[str, Quantity] = entry("limits", AMOUNTS, later="maxDevices", later_kind=_Most(), factory=dict)
    match_attributes: tuple[str, ...] = entry("matchAttributes", TEXTS, default=())
    configs: tuple[DeviceConfigReference, ...] = entry(
        "configs", ListField(ObjectField(DeviceConfigReference)), default=()
    )
    admin_access: bool | None = entry(None, FLAG, later="adminAccess")

    @property
    def least(self) -> int:
        """The fewest devices: 1 or more."""
        return max(1, _whole(self.requests[COUNT])) if COUNT in self.requests else 1

    @property
    def most(self) -> int:
        """The most devices: as many as the fewest if nothing is said."""
        return max(self.least, _whole(self.limits[COUNT])) if COUNT in self.limits else self.least

    @property
    def amounts(self) -> dict[str, Quantity]:
        """What its devices give together: all requests but the count."""
        return {name: amount for name, amount in self.requests.items() if name != COUNT}

    @classmethod
    def read_object(cls, value: Mapping[str, Json], place: ReadingPlace) -> DeviceClaimDetail:
        """Below `claims` the reference spelling holds, with one field more: `adminAccess`."""
        if place.spelling is not Spelling.EITHER:
            return read_fields(cls, value, place)  # type: ignore[no-any-return]
        place = replace(place, spelling=Spelling.REFERENCE)
        admin = value.get("adminAccess")
        found: DeviceClaimDetail = read_fields(
            cls, {key: each for key, each in value.items() if key != "adminAccess"}, place
        )
        return found if admin is None else replace(found, admin_access=FLAG.read(admin, place.below("adminAccess")))


def _whole(amount: Quantity) -> int:
    """The amount in whole units, rounded up."""
    return -(-amount.nanos // 10**9)


_DETAILS: Final = ListField(ObjectField(DeviceClaimDetail))


@dataclass(frozen=True, slots=True)
class DeviceClaimInstance:
    """Needs that must all be met (`all_of`), and some of which the first possible one is met (`one_of`).

    On the reference page an instance has one detail or `one_of`, and no name.
    """

    name: str = entry(None, TEXT, later="name", default="")
    all_of: tuple[DeviceClaimDetail, ...] = entry(None, _DETAILS, later="allOf", default=())
    one_of: tuple[DeviceClaimDetail, ...] = entry("oneOf", _DETAILS, default=())

    @classmethod
    def read_object(cls, value: Mapping[str, Json], place: ReadingPlace) -> DeviceClaimInstance:
        """Keys of a detail in place stand for one detail, unless there are others in `oneOf` or `allOf`."""
        names = ("oneof",) if place.spelling is Spelling.REFERENCE else ("oneof", "name", "allof")
        own = {key: each for key, each in value.items() if key.lower() in names}
        in_place = {key: each for key, each in value.items() if key not in own}
        found: DeviceClaimInstance = read_fields(cls, own, place)
        if in_place and found.all_of:
            raise FieldProblem(f"{place.path}: {', '.join(sorted(in_place))} beside allOf; move it into allOf")
        if in_place or not (found.all_of or found.one_of):
            found = replace(found, all_of=(ObjectField(DeviceClaimDetail).read(in_place, place),))
        return found

    def write_object(self) -> Json:
        """One detail in place; a name, or several details, need the later spelling's keys."""
        if len(self.all_of) > 1 or self.name:
            return write_fields(self)
        in_place = write_fields(self.all_of[0]) if self.all_of else {}
        return {**in_place, **({"oneOf": _DETAILS.write(self.one_of)} if self.one_of else {})}


@dataclass(frozen=True, slots=True)
class DeviceClaimSpec:
    """The needs of a claim. `match_attributes` are equal on all devices of all of them."""

    match_attributes: tuple[str, ...] = entry("matchAttributes", TEXTS, default=())
    claims: tuple[DeviceClaimInstance, ...] = entry(
        "claims", ListField(ObjectField(DeviceClaimInstance)), later="devices", default=()
    )

    @classmethod
    def read_object(cls, value: Mapping[str, Json], place: ReadingPlace) -> DeviceClaimSpec:
        """`devices` instead of `claims` means the later spelling for everything below."""
        keys = {str(key).lower() for key in value}
        if place.spelling is Spelling.EITHER and "claims" not in keys and "devices" in keys:
            place = replace(place, spelling=Spelling.LATER)
        return read_fields(cls, value, place)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class ResourceAllocation:
    """An amount allocated from a device; rounded up to blocks, so it may exceed the request."""

    name: str = entry("name", TEXT, default="", always=True)
    allocation: Quantity = entry("allocation", AMOUNT, default=ZERO, always=True)


_AMOUNTS_OF_DEVICE: Final = ListField(ObjectField(ResourceAllocation))


@dataclass(frozen=True, slots=True)
class DeviceAllocation:
    """A device that a claim has. Without amounts the claim has all of it."""

    pool: str = entry("devicePoolName", TEXT, default="", always=True)
    device: str = entry("deviceName", TEXT, default="")
    allocations: tuple[ResourceAllocation, ...] = entry("allocations", _AMOUNTS_OF_DEVICE, default=())


@dataclass(frozen=True, slots=True)
class DeviceIP:
    """An address of a device."""

    ip: str = entry("ip", TEXT, default="")


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """What a driver reports about a device of a claim."""

    pool: str = entry("devicePoolName", TEXT, default="", always=True)
    device: str = entry("deviceName", TEXT, default="")
    conditions: tuple[Json, ...] = entry("conditions", ListField(RAW), default=())
    device_ip: str | None = entry("deviceIP", TEXT, later=None)
    device_ips: tuple[DeviceIP, ...] = entry("deviceIPs", ListField(ObjectField(DeviceIP)), default=())
    device_info: tuple[Json, ...] = entry("deviceInfo", ListField(RAW), default=())
    allocations: tuple[ResourceAllocation, ...] = entry("allocations", _AMOUNTS_OF_DEVICE, later=None, default=())


@dataclass(frozen=True, slots=True)
class DeviceClaimStatus:
    """What a claim has: `allocations` belongs to the scheduler, `device_statuses` to the drivers."""

    class_configs: tuple[Json, ...] = entry("classConfigs", ListField(RAW), default=())
    claim_configs: tuple[Json, ...] = entry("claimConfigs", ListField(RAW), default=())
    allocations: tuple[DeviceAllocation, ...] = entry(
        "allocations", ListField(ObjectField(DeviceAllocation)), default=()
    )
    device_statuses: tuple[DeviceStatus, ...] = entry(
        "deviceStatuses", ListField(ObjectField(DeviceStatus)), default=()
    )
    pod_names: tuple[str, ...] = entry("podNames", TEXTS, default=())


@dataclass(frozen=True, slots=True)
class DeviceClaim:
    """What a workload needs, and what it was given."""

    api_version: str = entry("apiVersion", TEXT, default="")
    kind: str = entry("kind", TEXT, default="")
    metadata: DocumentMetadata = entry("metadata", METADATA, default=DocumentMetadata())
    spec: DeviceClaimSpec = entry("spec", ObjectField(DeviceClaimSpec), default=DeviceClaimSpec())
    status: DeviceClaimStatus = entry("status", ObjectField(DeviceClaimStatus), default=DeviceClaimStatus())


Document = DevicePool | PoolDeviceClass | DeviceClaim
TYPES: Final[Mapping[str, type]] = {
    "DevicePool": DevicePool,
    "DeviceClass": PoolDeviceClass,
    "DeviceClaim": DeviceClaim,
}
