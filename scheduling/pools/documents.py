"""The documents of devmgmtproto v1alpha1 as frozen values: DevicePool, PoolDeviceClass and DeviceClaim.

A pool lists the devices of one driver on one node, a class says which devices a name stands for, a claim says what a
workload needs. There is one type for each type of the reference page (`docs/pools.md` has the table). Both spellings
become the same values, so nothing behind this file knows them: a claim's `requests.devices` is `requests["count"]`,
`maxDevices` is `limits["count"]`, and the details of `allOf` or of a claim written in place are `all_of`.

Quantities are equal by number. Maps are not copied and must not be changed.
"""

# ruff: noqa: RUF009 (`entry` makes a dataclass field; values of documents are immutable)

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NewType

from scheduling.api.quantities import ZERO, Quantity, from_int
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

API_VERSION: Final = "devmgmtproto.k8s.io/v1alpha1"
COUNT: Final = "count"
"""The amount every claim has: how many devices."""

SemVer = NewType("SemVer", str)
"""A semantic version. Compared as a text, like the prototype does."""

AttributeValue = str | int | Quantity


@dataclass(frozen=True, slots=True)
class PoolAttribute:
    """A fact about a device. It has one value; of several the first of text, integer, quantity, version counts."""

    name: str = entry("name", TEXT, default="", always=True)
    string: str | None = entry("stringValue", TEXT)
    integer: int | None = entry("intValue", WHOLE)
    quantity: Quantity | None = entry("quantityValue", AMOUNT)
    version: SemVer | None = entry("semVerValue", TEXT)

    @property
    def value(self) -> AttributeValue | None:
        """The value, None if the attribute has none."""
        return next((each for each in self._values if each is not None), None)

    @property
    def kind(self) -> str:
        """`string`, `int`, `quantity`, `semver`, or nothing for an attribute without a value."""
        kinds = zip(("string", "int", "quantity", "semver"), self._values, strict=True)
        return next((kind for kind, value in kinds if value is not None), "")

    @property
    def _values(self) -> tuple[AttributeValue | None, ...]:
        return self.string, self.integer, self.quantity, self.version

    def equal(self, other: PoolAttribute) -> bool:
        """True if both have one name and `equal_value` holds."""
        return self.name == other.name and self.equal_value(other)

    def equal_value(self, other: PoolAttribute) -> bool:
        """True if both have equal values of one kind; quantities are compared as numbers."""
        return any(mine is not None and mine == yours for mine, yours in zip(self._values, other._values, strict=True))


@dataclass(frozen=True, slots=True)
class ResourceCapacity:
    """An amount that can be drawn from, in blocks of `block_size` (1 if None)."""

    name: str = entry("name", TEXT, default="", always=True)
    capacity: Quantity = entry("capacity", AMOUNT, default=ZERO, always=True)
    block_size: Quantity | None = entry("blockSize", AMOUNT)


class _Capacities(ListField):
    """Capacities as a list; the later spelling also writes them as a map from name to capacity."""

    def read(self, value: Json, place: ReadingPlace) -> tuple[ResourceCapacity, ...]:
        if isinstance(value, Mapping) and place.spelling is not Spelling.REFERENCE:
            amounts = AMOUNTS.read(value, place)
            return tuple(ResourceCapacity(name, amount) for name, amount in amounts.items())
        return super().read(value, place)


_ATTRIBUTES: Final = ListField(ObjectField(PoolAttribute))
_CAPACITIES: Final = _Capacities(ObjectField(ResourceCapacity))


@dataclass(frozen=True, slots=True)
class DocumentMetadata:
    """Kubernetes' ObjectMeta: what the pools need of it as values, the rest as it was written."""

    name: str = entry("name", TEXT, default="")
    namespace: str = entry("namespace", TEXT, default="")
    uid: str = entry("uid", TEXT, default="")
    labels: Mapping[str, str] = entry("labels", MapField(TEXT), factory=dict)
    annotations: Mapping[str, str] = entry("annotations", MapField(TEXT), factory=dict)
    generate_name: str = entry("generateName", TEXT, default="")
    resource_version: str = entry("resourceVersion", TEXT, default="")
    generation: int = entry("generation", WHOLE, default=0)
    creation_timestamp: Json = entry("creationTimestamp", RAW)
    deletion_timestamp: Json = entry("deletionTimestamp", RAW)
    owner_references: Json = entry("ownerReferences", RAW)
    finalizers: tuple[str, ...] = entry("finalizers", TEXTS, default=())
    managed_fields: Json = entry("managedFields", RAW)


_METADATA: Final = ObjectField(DocumentMetadata)


@dataclass(frozen=True, slots=True)
class PoolDevice:
    """One device. `requests`: what it takes of its pool's resources; `resources`: what claims can draw from it."""

    name: str = entry("name", TEXT, default="", always=True)
    attributes: tuple[PoolAttribute, ...] = entry("attributes", _ATTRIBUTES, default=())
    requests: Mapping[str, Quantity] = entry("requests", AMOUNTS, later="sharedResourcesConsumed", factory=dict)
    resources: tuple[ResourceCapacity, ...] = entry(
        "resources", _CAPACITIES, later="claimResourcesProvided", default=()
    )


@dataclass(frozen=True, slots=True)
class DevicePoolSpec:
    """The devices of a driver on a node; without a node name they are attached to the network."""

    node_name: str | None = entry("nodeName", TEXT)
    driver: str = entry("driver", TEXT, default="")
    attributes: tuple[PoolAttribute, ...] = entry("attributes", _ATTRIBUTES, default=())
    resources: tuple[ResourceCapacity, ...] = entry("resources", _CAPACITIES, later="sharedResources", default=())
    devices: tuple[PoolDevice, ...] = entry("devices", ListField(ObjectField(PoolDevice)), default=())


@dataclass(frozen=True, slots=True)
class ReportedDevice:
    """A device of the pool as the driver last saw it; only the later spelling has it."""

    name: str = entry(None, TEXT, later="name", default="")
    conditions: tuple[Json, ...] = entry(None, ListField(RAW), later="conditions", default=())
    claim_uids: tuple[str, ...] = entry(None, TEXTS, later="claimUIDs", default=())


@dataclass(frozen=True, slots=True)
class DevicePoolStatus:
    """The driver's last view. No decision may use it: it lacks what was allocated since."""

    available_devices: int = entry("availableDevices", WHOLE, later=None, default=0)
    device_statuses: tuple[ReportedDevice, ...] = entry(
        None, ListField(ObjectField(ReportedDevice)), later="deviceStatuses", default=()
    )


@dataclass(frozen=True, slots=True)
class DevicePool:
    """The devices of one driver on one node, or on the network."""

    api_version: str = entry("apiVersion", TEXT, default="")
    kind: str = entry("kind", TEXT, default="")
    metadata: DocumentMetadata = entry("metadata", _METADATA, default=DocumentMetadata())
    spec: DevicePoolSpec = entry("spec", ObjectField(DevicePoolSpec), default=DevicePoolSpec())
    status: DevicePoolStatus = entry("status", ObjectField(DevicePoolStatus), default=DevicePoolStatus())


@dataclass(frozen=True, slots=True)
class DeviceConfigReference:
    """A configuration object in the claim's own namespace."""

    api_version: str = entry("apiVersion", TEXT, default="", always=True)
    kind: str = entry("kind", TEXT, default="", always=True)
    name: str = entry("name", TEXT, default="", always=True)


@dataclass(frozen=True, slots=True)
class DeviceClassConfigReference:
    """A configuration object in any namespace."""

    api_version: str = entry("apiVersion", TEXT, default="", always=True)
    kind: str = entry("kind", TEXT, default="", always=True)
    namespace: str = entry("namespace", TEXT, default="", always=True)
    name: str = entry("name", TEXT, default="", always=True)


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One entry of `matchExpressions`."""

    key: str = entry("key", TEXT, default="", always=True)
    operator: str = entry("operator", TEXT, default="", always=True)
    values: tuple[str, ...] = entry("values", TEXTS, default=())


@dataclass(frozen=True, slots=True)
class ClassSelector:
    """The classes that a class stands for, by their labels; only the later spelling has it."""

    match_labels: Mapping[str, str] = entry("matchLabels", MapField(TEXT), factory=dict)
    match_expressions: tuple[LabelRequirement, ...] = entry(
        "matchExpressions", ListField(ObjectField(LabelRequirement)), default=()
    )


@dataclass(frozen=True, slots=True)
class DeviceClassSpec:
    """The devices that a class stands for: those of `driver` whose attributes meet `constraints`.

    `device_type` is the vendor-neutral kind by which claims can ask instead of by class. A class with a `selector` has
    no driver: it stands for other classes.
    """

    driver: str = entry("driver", TEXT, default="")
    device_type: str = entry("deviceType", TEXT, later=None, default="")
    constraints: str | None = entry("constraints", TEXT)
    admin_access: bool | None = entry("adminAccess", FLAG, later=None)
    configs: tuple[DeviceClassConfigReference, ...] = entry(
        "configs", ListField(ObjectField(DeviceClassConfigReference)), default=()
    )
    selector: ClassSelector | None = entry(None, ObjectField(ClassSelector), later="selector")

    @classmethod
    def read_object(cls, value: Mapping[str, Json], place: ReadingPlace) -> DeviceClassSpec:
        """The later spelling may put driver, constraints and configs into `definition`."""
        if place.spelling is not Spelling.REFERENCE and isinstance(value.get("definition"), Mapping):
            inner: DeviceClassSpec = read_fields(cls, value["definition"], place.below("definition"))
            outer = read_fields(cls, {key: each for key, each in value.items() if key != "definition"}, place)
            if outer != cls(selector=outer.selector):
                raise FieldProblem(f"{place.path}: move the fields beside definition into it")
            return replace(inner, selector=outer.selector)
        return read_fields(cls, value, place)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class PoolDeviceClass:
    """A DeviceClass: devices with a name, for claims to refer to."""

    api_version: str = entry("apiVersion", TEXT, default="")
    kind: str = entry("kind", TEXT, default="")
    metadata: DocumentMetadata = entry("metadata", _METADATA, default=DocumentMetadata())
    spec: DeviceClassSpec = entry("spec", ObjectField(DeviceClassSpec), default=DeviceClassSpec())


class _Requests(MapField):
    """Requests of the later spelling, which counts `devices`."""

    def read(self, value: Json, place: ReadingPlace) -> dict[str, Quantity]:
        return {COUNT if name == "devices" else name: amount for name, amount in super().read(value, place).items()}


class _Most:
    """`maxDevices` of the later spelling."""

    def read(self, value: Json, place: ReadingPlace) -> dict[str, Quantity]:
        return {COUNT: from_int(WHOLE.read(value, place))}

    def write(self, value: Mapping[str, Quantity]) -> Json:
        return AMOUNTS.write(value)


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
    metadata: DocumentMetadata = entry("metadata", _METADATA, default=DocumentMetadata())
    spec: DeviceClaimSpec = entry("spec", ObjectField(DeviceClaimSpec), default=DeviceClaimSpec())
    status: DeviceClaimStatus = entry("status", ObjectField(DeviceClaimStatus), default=DeviceClaimStatus())


Document = DevicePool | PoolDeviceClass | DeviceClaim
TYPES: Final[Mapping[str, type]] = {
    "DevicePool": DevicePool,
    "DeviceClass": PoolDeviceClass,
    "DeviceClaim": DeviceClaim,
}
