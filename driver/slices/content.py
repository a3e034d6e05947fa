"""The specs of slices: made from what is wanted, and compared with what is stored."""

from __future__ import annotations

from driver.slices.equality import counters_equal, devices_deep_equal, devices_equal, selectors_equal
from driver.slices.model import Owner, Pool, Slice
from driver.slices.stored import Stored, objects_in
from driver.slices.times import kept
from kube.bodies import JsonObject
from node.values import replace

API_VERSION = "resource.k8s.io/v1"


def new_object(
    *,
    driver: str,
    owner: Owner | None,
    node: str,
    generate_name: str,
    name: str,
    pool: Pool,
    index: int,
    generation: int,
) -> JsonObject:
    """The v1 object to create for slice ``index`` of ``pool``. ``node``: whose devices these are, or empty."""
    metadata: JsonObject = {"generateName": generate_name}
    if owner is not None:
        reference: JsonObject = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name}
        metadata["ownerReferences"] = [{**reference, "uid": owner.uid, "controller": True}]
    spec: JsonObject = {"driver": driver, "pool": pool_entry(name, pool, generation)}
    if node:
        spec["nodeName"] = node
    spec |= _shared(pool) | _content(pool.slices[index])
    return {"apiVersion": API_VERSION, "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


def changed_object(stored: Stored, *, name: str, pool: Pool, index: int, generation: int) -> JsonObject:
    """The stored object with the content of slice ``index``; everything else, labels say, stays as others left it."""
    wanted = pool.slices[index]
    spec = {field: found for field, found in stored.spec.items() if field not in _OURS}
    spec |= {"pool": pool_entry(name, pool, generation)}
    dated = replace(wanted, devices=kept(stored.devices, wanted.devices))
    spec |= _shared(pool) | _content(dated)
    return {"apiVersion": API_VERSION, "kind": "ResourceSlice", **stored.body, "spec": spec}


def pool_entry(name: str, pool: Pool, generation: int) -> JsonObject:
    """``spec.pool`` of every slice of a pool."""
    return {"name": name, "generation": generation, "resourceSliceCount": len(pool.slices)}


def up_to_date(stored: Stored, *, name: str, pool: Pool, index: int, generation: int) -> bool:
    """Tell whether a stored slice says what it should, in that generation."""
    spec = stored.spec
    return (
        spec.get("pool") == pool_entry(name, pool, generation)
        and selectors_equal(spec.get("nodeSelector"), pool.node_selector)
        and bool(spec.get("allNodes")) == pool.all_nodes
        and devices_deep_equal(stored.devices, pool.slices[index].devices)
        and same_beside_devices(spec, pool.slices[index])
    )


def same_beside_devices(spec: JsonObject, wanted: Slice) -> bool:
    """Tell whether a spec has everything of a wanted slice but for its devices."""
    return (
        counters_equal(objects_in(spec, "sharedCounters"), wanted.shared_counters)
        and spec.get("perDeviceNodeSelection") == wanted.per_device_node_selection
        and (spec.get("partitionTypeAttribute") or "") == wanted.partition_type_attribute
        and tuple(_texts(spec, "skipNodeOperations")) == wanted.skip_node_operations
    )


def same_content(spec: JsonObject, other: JsonObject) -> bool:
    """Tell whether two specs say the same, node and pool apart, times of taints included."""
    return devices_equal(objects_in(spec, "devices"), objects_in(other, "devices")) and same_beside_devices(
        spec, slice_of(other)
    )


def slice_of(spec: JsonObject) -> Slice:
    """The slice that a spec publishes."""
    per_device = spec.get("perDeviceNodeSelection")
    partition_type = spec.get("partitionTypeAttribute")
    return Slice(
        devices=objects_in(spec, "devices"),
        shared_counters=objects_in(spec, "sharedCounters"),
        per_device_node_selection=per_device if isinstance(per_device, bool) else None,
        partition_type_attribute=partition_type if isinstance(partition_type, str) else "",
        skip_node_operations=_texts(spec, "skipNodeOperations"),
    )


def _shared(pool: Pool) -> JsonObject:
    """What all slices of a pool say alike."""
    spec: JsonObject = {}
    if pool.node_selector is not None:
        spec["nodeSelector"] = pool.node_selector
    if pool.all_nodes:
        spec["allNodes"] = True
    return spec


def _content(wanted: Slice) -> JsonObject:
    """What one slice says. The server tells an empty list from none where only one of two may be there."""
    spec: JsonObject = {}
    if wanted.devices:
        spec["devices"] = list(wanted.devices)
    if wanted.shared_counters:
        spec["sharedCounters"] = list(wanted.shared_counters)
    if wanted.per_device_node_selection is not None:
        spec["perDeviceNodeSelection"] = wanted.per_device_node_selection
    if wanted.partition_type_attribute:
        spec["partitionTypeAttribute"] = wanted.partition_type_attribute
    if wanted.skip_node_operations:
        spec["skipNodeOperations"] = list(wanted.skip_node_operations)
    return spec


def _texts(spec: JsonObject, field: str) -> tuple[str, ...]:
    found = spec.get(field)
    return tuple([each for each in found if isinstance(each, str)]) if isinstance(found, list) else ()


_OURS = frozenset(
    ("pool", "nodeSelector", "allNodes", "devices", "sharedCounters")
    + ("perDeviceNodeSelection", "partitionTypeAttribute", "skipNodeOperations")
)
