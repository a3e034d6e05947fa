from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("version", "node_name", "pid", "role", "ready", "reasons", "snapshot_generation", "sources", "resources", "events", "quiesced", "dra", "holds", "health")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_GENERATION_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    QUIESCED_FIELD_NUMBER: _ClassVar[int]
    DRA_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    version: str
    node_name: str
    pid: int
    role: str
    ready: bool
    reasons: _containers.RepeatedScalarFieldContainer[str]
    snapshot_generation: int
    sources: _containers.RepeatedCompositeFieldContainer[SourceStatus]
    resources: _containers.RepeatedCompositeFieldContainer[ResourceStatus]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    quiesced: bool
    dra: DraStatus
    holds: HoldsStatus
    health: HealthStatus
    def __init__(self, version: _Optional[str] = ..., node_name: _Optional[str] = ..., pid: _Optional[int] = ..., role: _Optional[str] = ..., ready: bool = ..., reasons: _Optional[_Iterable[str]] = ..., snapshot_generation: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[SourceStatus, _Mapping]]] = ..., resources: _Optional[_Iterable[_Union[ResourceStatus, _Mapping]]] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., quiesced: bool = ..., dra: _Optional[_Union[DraStatus, _Mapping]] = ..., holds: _Optional[_Union[HoldsStatus, _Mapping]] = ..., health: _Optional[_Union[HealthStatus, _Mapping]] = ...) -> None: ...

class SourceStatus(_message.Message):
    __slots__ = ("name", "state", "detail")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    detail: str
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class ResourceStatus(_message.Message):
    __slots__ = ("name", "devices", "healthy", "registration", "path", "socket", "open_streams", "detail")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    SOCKET_FIELD_NUMBER: _ClassVar[int]
    OPEN_STREAMS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    name: str
    devices: int
    healthy: int
    registration: str
    path: str
    socket: str
    open_streams: int
    detail: str
    def __init__(self, name: _Optional[str] = ..., devices: _Optional[int] = ..., healthy: _Optional[int] = ..., registration: _Optional[str] = ..., path: _Optional[str] = ..., socket: _Optional[str] = ..., open_streams: _Optional[int] = ..., detail: _Optional[str] = ...) -> None: ...

class DraStatus(_message.Message):
    __slots__ = ("driver", "registration", "socket", "health_streams", "devices", "published", "claims", "problem", "nri")
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    SOCKET_FIELD_NUMBER: _ClassVar[int]
    HEALTH_STREAMS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    NRI_FIELD_NUMBER: _ClassVar[int]
    driver: str
    registration: str
    socket: str
    health_streams: int
    devices: int
    published: int
    claims: int
    problem: str
    nri: str
    def __init__(self, driver: _Optional[str] = ..., registration: _Optional[str] = ..., socket: _Optional[str] = ..., health_streams: _Optional[int] = ..., devices: _Optional[int] = ..., published: _Optional[int] = ..., claims: _Optional[int] = ..., problem: _Optional[str] = ..., nri: _Optional[str] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("time", "type", "reason", "message")
    TIME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    time: float
    type: str
    reason: str
    message: str
    def __init__(self, time: _Optional[float] = ..., type: _Optional[str] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class ListDevicesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListDevicesResponse(_message.Message):
    __slots__ = ("generation", "devices", "sources")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    generation: int
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    sources: _containers.RepeatedCompositeFieldContainer[SourceStatus]
    def __init__(self, generation: _Optional[int] = ..., devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., sources: _Optional[_Iterable[_Union[SourceStatus, _Mapping]]] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("name", "kind", "vendor", "uuid", "pci_address", "numa_node", "parent", "health", "attributes", "capacity", "nodes", "resource", "offered_id", "offered_as", "offer_reason", "host_use", "location", "door", "claims_as", "claims_reason", "shares", "shares_free", "memory_slices", "partitions", "healthy_ids", "interface")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    VENDOR_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    PCI_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NUMA_NODE_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    OFFERED_ID_FIELD_NUMBER: _ClassVar[int]
    OFFERED_AS_FIELD_NUMBER: _ClassVar[int]
    OFFER_REASON_FIELD_NUMBER: _ClassVar[int]
    HOST_USE_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    DOOR_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_AS_FIELD_NUMBER: _ClassVar[int]
    CLAIMS_REASON_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    SHARES_FREE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_SLICES_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_IDS_FIELD_NUMBER: _ClassVar[int]
    INTERFACE_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    vendor: str
    uuid: str
    pci_address: str
    numa_node: int
    parent: str
    health: Health
    attributes: _containers.RepeatedCompositeFieldContainer[Attribute]
    capacity: _containers.RepeatedCompositeFieldContainer[Capacity]
    nodes: _containers.RepeatedCompositeFieldContainer[DeviceNode]
    resource: str
    offered_id: str
    offered_as: str
    offer_reason: str
    host_use: str
    location: str
    door: str
    claims_as: str
    claims_reason: str
    shares: int
    shares_free: int
    memory_slices: int
    partitions: _containers.RepeatedCompositeFieldContainer[GpuPartition]
    healthy_ids: _containers.RepeatedScalarFieldContainer[str]
    interface: PodInterface
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., vendor: _Optional[str] = ..., uuid: _Optional[str] = ..., pci_address: _Optional[str] = ..., numa_node: _Optional[int] = ..., parent: _Optional[str] = ..., health: _Optional[_Union[Health, _Mapping]] = ..., attributes: _Optional[_Iterable[_Union[Attribute, _Mapping]]] = ..., capacity: _Optional[_Iterable[_Union[Capacity, _Mapping]]] = ..., nodes: _Optional[_Iterable[_Union[DeviceNode, _Mapping]]] = ..., resource: _Optional[str] = ..., offered_id: _Optional[str] = ..., offered_as: _Optional[str] = ..., offer_reason: _Optional[str] = ..., host_use: _Optional[str] = ..., location: _Optional[str] = ..., door: _Optional[str] = ..., claims_as: _Optional[str] = ..., claims_reason: _Optional[str] = ..., shares: _Optional[int] = ..., shares_free: _Optional[int] = ..., memory_slices: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[GpuPartition, _Mapping]]] = ..., healthy_ids: _Optional[_Iterable[str]] = ..., interface: _Optional[_Union[PodInterface, _Mapping]] = ...) -> None: ...

class PodInterface(_message.Message):
    __slots__ = ("pod", "interface", "problem")
    POD_FIELD_NUMBER: _ClassVar[int]
    INTERFACE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    pod: str
    interface: str
    problem: str
    def __init__(self, pod: _Optional[str] = ..., interface: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...

class GpuPartition(_message.Message):
    __slots__ = ("start", "size", "profile", "device", "holder")
    START_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    start: int
    size: int
    profile: str
    device: str
    holder: str
    def __init__(self, start: _Optional[int] = ..., size: _Optional[int] = ..., profile: _Optional[str] = ..., device: _Optional[str] = ..., holder: _Optional[str] = ...) -> None: ...

class Health(_message.Message):
    __slots__ = ("state", "reason", "since", "recovery")
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_FIELD_NUMBER: _ClassVar[int]
    state: str
    reason: str
    since: float
    recovery: str
    def __init__(self, state: _Optional[str] = ..., reason: _Optional[str] = ..., since: _Optional[float] = ..., recovery: _Optional[str] = ...) -> None: ...

class Attribute(_message.Message):
    __slots__ = ("name", "string_value", "int_value", "bool_value", "version_value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STRING_VALUE_FIELD_NUMBER: _ClassVar[int]
    INT_VALUE_FIELD_NUMBER: _ClassVar[int]
    BOOL_VALUE_FIELD_NUMBER: _ClassVar[int]
    VERSION_VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    string_value: str
    int_value: int
    bool_value: bool
    version_value: str
    def __init__(self, name: _Optional[str] = ..., string_value: _Optional[str] = ..., int_value: _Optional[int] = ..., bool_value: bool = ..., version_value: _Optional[str] = ...) -> None: ...

class Capacity(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: int
    def __init__(self, name: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...

class DeviceNode(_message.Message):
    __slots__ = ("path", "kind", "major", "minor", "role")
    PATH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MAJOR_FIELD_NUMBER: _ClassVar[int]
    MINOR_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    path: str
    kind: str
    major: int
    minor: int
    role: str
    def __init__(self, path: _Optional[str] = ..., kind: _Optional[str] = ..., major: _Optional[int] = ..., minor: _Optional[int] = ..., role: _Optional[str] = ...) -> None: ...

class RescanRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RescanResponse(_message.Message):
    __slots__ = ("generation", "changes")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    generation: int
    changes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, generation: _Optional[int] = ..., changes: _Optional[_Iterable[str]] = ...) -> None: ...

class ReloadRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReloadResponse(_message.Message):
    __slots__ = ("changes",)
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, changes: _Optional[_Iterable[str]] = ...) -> None: ...

class GetTopologyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetTopologyResponse(_message.Message):
    __slots__ = ("generation", "places", "root", "overridden")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    OVERRIDDEN_FIELD_NUMBER: _ClassVar[int]
    generation: int
    places: _containers.RepeatedCompositeFieldContainer[Place]
    root: Cell
    overridden: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, generation: _Optional[int] = ..., places: _Optional[_Iterable[_Union[Place, _Mapping]]] = ..., root: _Optional[_Union[Cell, _Mapping]] = ..., overridden: _Optional[_Iterable[str]] = ...) -> None: ...

class Place(_message.Message):
    __slots__ = ("name", "label", "gpu", "path", "pci_address", "numa_node", "links", "switch_links", "product")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    PCI_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NUMA_NODE_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    SWITCH_LINKS_FIELD_NUMBER: _ClassVar[int]
    PRODUCT_FIELD_NUMBER: _ClassVar[int]
    name: str
    label: str
    gpu: bool
    path: _containers.RepeatedScalarFieldContainer[str]
    pci_address: str
    numa_node: int
    links: _containers.RepeatedCompositeFieldContainer[PeerLinks]
    switch_links: int
    product: str
    def __init__(self, name: _Optional[str] = ..., label: _Optional[str] = ..., gpu: bool = ..., path: _Optional[_Iterable[str]] = ..., pci_address: _Optional[str] = ..., numa_node: _Optional[int] = ..., links: _Optional[_Iterable[_Union[PeerLinks, _Mapping]]] = ..., switch_links: _Optional[int] = ..., product: _Optional[str] = ...) -> None: ...

class PeerLinks(_message.Message):
    __slots__ = ("peer", "count")
    PEER_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    peer: str
    count: int
    def __init__(self, peer: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class Cell(_message.Message):
    __slots__ = ("name", "level", "gpus", "children", "nics")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    CHILDREN_FIELD_NUMBER: _ClassVar[int]
    NICS_FIELD_NUMBER: _ClassVar[int]
    name: str
    level: str
    gpus: _containers.RepeatedScalarFieldContainer[str]
    children: _containers.RepeatedCompositeFieldContainer[Cell]
    nics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., level: _Optional[str] = ..., gpus: _Optional[_Iterable[str]] = ..., children: _Optional[_Iterable[_Union[Cell, _Mapping]]] = ..., nics: _Optional[_Iterable[str]] = ...) -> None: ...

class QuiesceRequest(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class QuiesceResponse(_message.Message):
    __slots__ = ("generation", "changes")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    generation: int
    changes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, generation: _Optional[int] = ..., changes: _Optional[_Iterable[str]] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResumeResponse(_message.Message):
    __slots__ = ("generation", "changes")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    generation: int
    changes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, generation: _Optional[int] = ..., changes: _Optional[_Iterable[str]] = ...) -> None: ...

class ListSlicesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSlicesResponse(_message.Message):
    __slots__ = ("driver", "pools", "created", "updated", "deleted", "generation")
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    driver: str
    pools: _containers.RepeatedCompositeFieldContainer[Pool]
    created: int
    updated: int
    deleted: int
    generation: int
    def __init__(self, driver: _Optional[str] = ..., pools: _Optional[_Iterable[_Union[Pool, _Mapping]]] = ..., created: _Optional[int] = ..., updated: _Optional[int] = ..., deleted: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class Pool(_message.Message):
    __slots__ = ("name", "slices", "devices", "in_order", "dropped", "problem")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    IN_ORDER_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    name: str
    slices: int
    devices: _containers.RepeatedCompositeFieldContainer[PoolDevice]
    in_order: bool
    dropped: _containers.RepeatedScalarFieldContainer[str]
    problem: str
    def __init__(self, name: _Optional[str] = ..., slices: _Optional[int] = ..., devices: _Optional[_Iterable[_Union[PoolDevice, _Mapping]]] = ..., in_order: bool = ..., dropped: _Optional[_Iterable[str]] = ..., problem: _Optional[str] = ...) -> None: ...

class PoolDevice(_message.Message):
    __slots__ = ("name", "state", "slice", "taints", "why")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    TAINTS_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    slice: int
    taints: _containers.RepeatedScalarFieldContainer[str]
    why: str
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ..., slice: _Optional[int] = ..., taints: _Optional[_Iterable[str]] = ..., why: _Optional[str] = ...) -> None: ...

class ListClaimsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListClaimsResponse(_message.Message):
    __slots__ = ("claims",)
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    claims: _containers.RepeatedCompositeFieldContainer[Claim]
    def __init__(self, claims: _Optional[_Iterable[_Union[Claim, _Mapping]]] = ...) -> None: ...

class Claim(_message.Message):
    __slots__ = ("namespace", "name", "uid", "state", "since", "pods", "devices", "stuck", "metadata_files")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    PODS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    STUCK_FIELD_NUMBER: _ClassVar[int]
    METADATA_FILES_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    uid: str
    state: str
    since: float
    pods: _containers.RepeatedScalarFieldContainer[str]
    devices: _containers.RepeatedCompositeFieldContainer[ClaimDevice]
    stuck: str
    metadata_files: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., uid: _Optional[str] = ..., state: _Optional[str] = ..., since: _Optional[float] = ..., pods: _Optional[_Iterable[str]] = ..., devices: _Optional[_Iterable[_Union[ClaimDevice, _Mapping]]] = ..., stuck: _Optional[str] = ..., metadata_files: _Optional[_Iterable[str]] = ...) -> None: ...

class ClaimDevice(_message.Message):
    __slots__ = ("requests", "pool", "device", "cdi_devices", "share_id")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    CDI_DEVICES_FIELD_NUMBER: _ClassVar[int]
    SHARE_ID_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedScalarFieldContainer[str]
    pool: str
    device: str
    cdi_devices: _containers.RepeatedScalarFieldContainer[str]
    share_id: str
    def __init__(self, requests: _Optional[_Iterable[str]] = ..., pool: _Optional[str] = ..., device: _Optional[str] = ..., cdi_devices: _Optional[_Iterable[str]] = ..., share_id: _Optional[str] = ...) -> None: ...

class ListHoldsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListHoldsResponse(_message.Message):
    __slots__ = ("devices", "status", "shared")
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    devices: _containers.RepeatedCompositeFieldContainer[DeviceHolds]
    status: HoldsStatus
    shared: _containers.RepeatedCompositeFieldContainer[SharedDevice]
    def __init__(self, devices: _Optional[_Iterable[_Union[DeviceHolds, _Mapping]]] = ..., status: _Optional[_Union[HoldsStatus, _Mapping]] = ..., shared: _Optional[_Iterable[_Union[SharedDevice, _Mapping]]] = ...) -> None: ...

class DeviceHolds(_message.Message):
    __slots__ = ("device", "doors", "holds", "withheld", "losers", "interface")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    DOORS_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    WITHHELD_FIELD_NUMBER: _ClassVar[int]
    LOSERS_FIELD_NUMBER: _ClassVar[int]
    INTERFACE_FIELD_NUMBER: _ClassVar[int]
    device: str
    doors: str
    holds: _containers.RepeatedCompositeFieldContainer[Hold]
    withheld: _containers.RepeatedCompositeFieldContainer[Withholding]
    losers: _containers.RepeatedScalarFieldContainer[str]
    interface: PodInterface
    def __init__(self, device: _Optional[str] = ..., doors: _Optional[str] = ..., holds: _Optional[_Iterable[_Union[Hold, _Mapping]]] = ..., withheld: _Optional[_Iterable[_Union[Withholding, _Mapping]]] = ..., losers: _Optional[_Iterable[str]] = ..., interface: _Optional[_Union[PodInterface, _Mapping]] = ...) -> None: ...

class Hold(_message.Message):
    __slots__ = ("door", "holder", "owner", "since", "state", "share", "admin", "amounts")
    DOOR_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    ADMIN_FIELD_NUMBER: _ClassVar[int]
    AMOUNTS_FIELD_NUMBER: _ClassVar[int]
    door: str
    holder: str
    owner: str
    since: float
    state: str
    share: str
    admin: bool
    amounts: _containers.RepeatedCompositeFieldContainer[Capacity]
    def __init__(self, door: _Optional[str] = ..., holder: _Optional[str] = ..., owner: _Optional[str] = ..., since: _Optional[float] = ..., state: _Optional[str] = ..., share: _Optional[str] = ..., admin: bool = ..., amounts: _Optional[_Iterable[_Union[Capacity, _Mapping]]] = ...) -> None: ...

class SharedDevice(_message.Message):
    __slots__ = ("device", "resource", "shares", "held", "free", "whole", "left")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    device: str
    resource: str
    shares: int
    held: int
    free: int
    whole: _containers.RepeatedCompositeFieldContainer[Capacity]
    left: _containers.RepeatedCompositeFieldContainer[Capacity]
    def __init__(self, device: _Optional[str] = ..., resource: _Optional[str] = ..., shares: _Optional[int] = ..., held: _Optional[int] = ..., free: _Optional[int] = ..., whole: _Optional[_Iterable[_Union[Capacity, _Mapping]]] = ..., left: _Optional[_Iterable[_Union[Capacity, _Mapping]]] = ...) -> None: ...

class Withholding(_message.Message):
    __slots__ = ("door", "cause", "why", "waits_for")
    DOOR_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    door: str
    cause: str
    why: str
    waits_for: str
    def __init__(self, door: _Optional[str] = ..., cause: _Optional[str] = ..., why: _Optional[str] = ..., waits_for: _Optional[str] = ...) -> None: ...

class HoldsStatus(_message.Message):
    __slots__ = ("by_plugin", "by_dra", "draining", "moving", "losers", "kubelet", "api_server", "both", "processes", "doors", "containers")
    BY_PLUGIN_FIELD_NUMBER: _ClassVar[int]
    BY_DRA_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    MOVING_FIELD_NUMBER: _ClassVar[int]
    LOSERS_FIELD_NUMBER: _ClassVar[int]
    KUBELET_FIELD_NUMBER: _ClassVar[int]
    API_SERVER_FIELD_NUMBER: _ClassVar[int]
    BOTH_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    DOORS_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    by_plugin: int
    by_dra: int
    draining: int
    moving: int
    losers: int
    kubelet: str
    api_server: str
    both: str
    processes: str
    doors: str
    containers: str
    def __init__(self, by_plugin: _Optional[int] = ..., by_dra: _Optional[int] = ..., draining: _Optional[int] = ..., moving: _Optional[int] = ..., losers: _Optional[int] = ..., kubelet: _Optional[str] = ..., api_server: _Optional[str] = ..., both: _Optional[str] = ..., processes: _Optional[str] = ..., doors: _Optional[str] = ..., containers: _Optional[str] = ...) -> None: ...

class ReleaseHoldRequest(_message.Message):
    __slots__ = ("device",)
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    device: str
    def __init__(self, device: _Optional[str] = ...) -> None: ...

class ReleaseHoldResponse(_message.Message):
    __slots__ = ("changes",)
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, changes: _Optional[_Iterable[str]] = ...) -> None: ...

class HealthStatus(_message.Message):
    __slots__ = ("degraded", "unhealthy", "unknown", "brakes", "dry_run")
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    UNHEALTHY_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    BRAKES_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    degraded: int
    unhealthy: int
    unknown: int
    brakes: _containers.RepeatedScalarFieldContainer[str]
    dry_run: bool
    def __init__(self, degraded: _Optional[int] = ..., unhealthy: _Optional[int] = ..., unknown: _Optional[int] = ..., brakes: _Optional[_Iterable[str]] = ..., dry_run: bool = ...) -> None: ...

class ListHealthRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListHealthResponse(_message.Message):
    __slots__ = ("devices", "brakes", "dry_run", "sources")
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    BRAKES_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    devices: _containers.RepeatedCompositeFieldContainer[DeviceHealth]
    brakes: _containers.RepeatedCompositeFieldContainer[HealthBrake]
    dry_run: bool
    sources: _containers.RepeatedCompositeFieldContainer[SourceStatus]
    def __init__(self, devices: _Optional[_Iterable[_Union[DeviceHealth, _Mapping]]] = ..., brakes: _Optional[_Iterable[_Union[HealthBrake, _Mapping]]] = ..., dry_run: bool = ..., sources: _Optional[_Iterable[_Union[SourceStatus, _Mapping]]] = ...) -> None: ...

class DeviceHealth(_message.Message):
    __slots__ = ("device", "kind", "state", "reason", "cause", "since", "recovery", "evicts", "flapping", "source", "enforced", "shown_state", "until", "of", "also")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_FIELD_NUMBER: _ClassVar[int]
    EVICTS_FIELD_NUMBER: _ClassVar[int]
    FLAPPING_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ENFORCED_FIELD_NUMBER: _ClassVar[int]
    SHOWN_STATE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    OF_FIELD_NUMBER: _ClassVar[int]
    ALSO_FIELD_NUMBER: _ClassVar[int]
    device: str
    kind: str
    state: str
    reason: str
    cause: str
    since: float
    recovery: str
    evicts: bool
    flapping: bool
    source: str
    enforced: bool
    shown_state: str
    until: float
    of: str
    also: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, device: _Optional[str] = ..., kind: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., cause: _Optional[str] = ..., since: _Optional[float] = ..., recovery: _Optional[str] = ..., evicts: bool = ..., flapping: bool = ..., source: _Optional[str] = ..., enforced: bool = ..., shown_state: _Optional[str] = ..., until: _Optional[float] = ..., of: _Optional[str] = ..., also: _Optional[_Iterable[str]] = ...) -> None: ...

class HealthBrake(_message.Message):
    __slots__ = ("kind", "since", "reason", "devices")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    kind: str
    since: float
    reason: str
    devices: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, kind: _Optional[str] = ..., since: _Optional[float] = ..., reason: _Optional[str] = ..., devices: _Optional[_Iterable[str]] = ...) -> None: ...

class SetHealthRequest(_message.Message):
    __slots__ = ("device", "state", "reason", "seconds", "dry_run")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    device: str
    state: str
    reason: str
    seconds: float
    dry_run: bool
    def __init__(self, device: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., seconds: _Optional[float] = ..., dry_run: bool = ...) -> None: ...

class SetHealthResponse(_message.Message):
    __slots__ = ("changes",)
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, changes: _Optional[_Iterable[str]] = ...) -> None: ...

class ClearHealthRequest(_message.Message):
    __slots__ = ("device", "dry_run")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    device: str
    dry_run: bool
    def __init__(self, device: _Optional[str] = ..., dry_run: bool = ...) -> None: ...

class ClearHealthResponse(_message.Message):
    __slots__ = ("changes",)
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, changes: _Optional[_Iterable[str]] = ...) -> None: ...

class ReleaseBrakeRequest(_message.Message):
    __slots__ = ("kind", "dry_run")
    KIND_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    kind: str
    dry_run: bool
    def __init__(self, kind: _Optional[str] = ..., dry_run: bool = ...) -> None: ...

class ReleaseBrakeResponse(_message.Message):
    __slots__ = ("changes",)
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, changes: _Optional[_Iterable[str]] = ...) -> None: ...
