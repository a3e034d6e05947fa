"""DevicePool and DeviceClass documents of devmgmtproto v1alpha1 as frozen values; `claim_documents` has DeviceClaim.

A pool lists the devices of one driver on one node, a class says which devices a name stands for. There is one type for
each type of the reference page (`docs/pools.md` has the table). Both spellings become the same values, so nothing
behind the two files knows them.

Quantities are equal by number. Maps are not copied and must not be changed.
"""

# ruff: noqa: RUF009 (`entry` makes a dataclass field; values of documents are immutable)

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NewType

from scheduling.api.quantities import ZERO, Quantity
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
    """An amount that can be drawn from, in blocks of `block_size`; without one, amounts are not rounded."""

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


METADATA: Final = ObjectField(DocumentMetadata)


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
    metadata: DocumentMetadata = entry("metadata", METADATA, default=DocumentMetadata())
    spec: DevicePoolSpec = entry("spec", ObjectField(DevicePoolSpec), default=DevicePoolSpec())
    status: DevicePoolStatus = entry("status", ObjectField(DevicePoolStatus), default=DevicePoolStatus())


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
    metadata: DocumentMetadata = entry("metadata", METADATA, default=DocumentMetadata())
    spec: DeviceClassSpec = entry("spec", ObjectField(DeviceClassSpec), default=DeviceClassSpec())
