"""Makes the specs of slices from what the driver wants, and compares them with the stored ones.

Two specs are equal if they mean the same to the API server. For lists, mappings and plain fields, absent, null and
empty are the same; a pointer is set or not; quantities are compared by value (``1Gi`` is ``1024Mi``); the order of
lists matters. Fields that this version does not know are compared literally. The walk follows the shapes of
``scheduling.api.validation`` over the JSON itself and makes no typed copy: two devices are nearly always literally
equal, and pools have thousands.

Taints have a rule of their own (KEP-5055): a time that only one side has does not matter, and neither does a difference
of a second, because the server fills in times that are left out and stores whole seconds. ``tolerationSeconds`` count
from a taint's ``timeAdded``, so an update for another reason must not restart them: a taint without a time is sent with
the time that the same taint of the same device already has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from driver.slices.model import Owner, Pool, Slice
from driver.slices.store import StoredSlice, objects_in
from kube.bodies import JsonObject, text_at
from node.values import replace
from scheduling.api.quantities import QuantityError, of_json
from scheduling.api.validation.shapes import (
    DEVICE,
    NODE_SELECTOR,
    QUANTITY,
    SLICE_SPEC,
    TIME,
    ListOf,
    MapOf,
    Scalar,
    Shape,
    Type,
    zero,
)

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


def changed_object(stored: StoredSlice, *, name: str, pool: Pool, index: int, generation: int) -> JsonObject:
    """The stored object with the content of slice ``index``; everything else, such as labels, stays."""
    wanted = pool.slices[index]
    spec = {field: found for field, found in stored.spec.items() if field not in _OURS}
    spec |= {"pool": pool_entry(name, pool, generation)}
    dated = replace(wanted, devices=kept(stored.devices, wanted.devices))
    spec |= _shared(pool) | _content(dated)
    return {"apiVersion": API_VERSION, "kind": "ResourceSlice", **stored.body, "spec": spec}


def pool_entry(name: str, pool: Pool, generation: int) -> JsonObject:
    """``spec.pool`` of every slice of a pool."""
    return {"name": name, "generation": generation, "resourceSliceCount": len(pool.slices)}


def up_to_date(stored: StoredSlice, *, name: str, pool: Pool, index: int, generation: int) -> bool:
    """Whether a stored slice has the wanted content, in that generation."""
    spec = stored.spec
    return (
        spec.get("pool") == pool_entry(name, pool, generation)
        and selectors_equal(spec.get("nodeSelector"), pool.node_selector)
        and bool(spec.get("allNodes")) == pool.all_nodes
        and devices_deep_equal(stored.devices, pool.slices[index].devices)
        and same_beside_devices(spec, pool.slices[index])
    )


def same_beside_devices(spec: JsonObject, wanted: Slice) -> bool:
    """Whether a spec has everything of a wanted slice except its devices."""
    return (
        counters_equal(objects_in(spec, "sharedCounters"), wanted.shared_counters)
        and spec.get("perDeviceNodeSelection") == wanted.per_device_node_selection
        and (spec.get("partitionTypeAttribute") or "") == wanted.partition_type_attribute
        and tuple(_texts(spec, "skipNodeOperations")) == wanted.skip_node_operations
    )


def same_content(spec: JsonObject, other: JsonObject) -> bool:
    """Whether two specs have the same content, times of taints included, apart from node and pool."""
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
    """The part of the spec that is the same in all slices of a pool."""
    spec: JsonObject = {}
    if pool.node_selector is not None:
        spec["nodeSelector"] = pool.node_selector
    if pool.all_nodes:
        spec["allNodes"] = True
    return spec


def _content(wanted: Slice) -> JsonObject:
    """The part of the spec that belongs to one slice.

    Empty lists are left out: if only one of two fields may be set, the server treats an empty list as set.
    """
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


_DEVICES: Final = ListOf(DEVICE)
_COUNTERS: Final = SLICE_SPEC.fields["sharedCounters"].type
_ROUNDING: Final = timedelta(seconds=1)


def devices_deep_equal(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Whether two lists of v1 devices are the same, with taints compared by the rule above."""
    return _same(list(left), list(right), _DEVICES, lenient=True)


def devices_equal(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Whether two lists of v1 devices are the same, times of taints included."""
    return _same(list(left), list(right), _DEVICES, lenient=False)


def counters_equal(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Whether two lists of counter sets are the same."""
    return _same(list(left), list(right), _COUNTERS, lenient=False)


def selectors_equal(left: object, right: object) -> bool:
    """Whether two node selectors, or None, are the same."""
    if left is None or right is None:
        return left is right
    return _same(left, right, NODE_SELECTOR, lenient=False)


def instant(text: object) -> datetime | None:
    """The moment of an RFC 3339 time, in UTC; None for any other text."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _same(left: Any, right: Any, type_: Type, *, lenient: bool) -> bool:
    if left is right or (left == right and type(left) is type(right)):
        return True
    if isinstance(type_, Scalar):
        return _same_scalar(left, right, type_)
    if isinstance(type_, ListOf):
        left, right = left or [], right or []
        if not (isinstance(left, list) and isinstance(right, list)) or len(left) != len(right):
            return False
        return all(_same(a, b, type_.item, lenient=lenient) for a, b in zip(left, right, strict=True))
    left, right = {} if left is None else left, {} if right is None else right
    if not (isinstance(left, Mapping) and isinstance(right, Mapping)):
        return False
    if isinstance(type_, MapOf):
        if left.keys() != right.keys():
            return False
        return all(_same(value, right[name], type_.item, lenient=lenient) for name, value in left.items())
    return all(
        _same_field(name, left.get(name), right.get(name), type_, lenient=lenient)
        for name in left.keys() | right.keys()
    )


def _same_field(name: str, left: Any, right: Any, shape: Shape, *, lenient: bool) -> bool:
    field = shape.fields.get(name)
    if field is None:
        return (left or None) == (right or None)
    if lenient and name == "timeAdded":
        return left is None or right is None or _close(left, right)
    if field.pointer and not isinstance(field.type, ListOf | MapOf) and (left is None) != (right is None):
        return False
    return _same(left, right, field.type, lenient=lenient)


def _same_scalar(left: Any, right: Any, type_: Scalar) -> bool:
    if type_ is QUANTITY:
        try:
            return of_json(left) == of_json(right)
        except QuantityError:
            return False
    if type_ is TIME:
        first, second = instant(left), instant(right)
        return first is not None and first == second
    nothing = zero(type_)
    left, right = nothing if left is None else left, nothing if right is None else right
    return bool(left == right) and type(left) is type(right)


def _close(left: object, right: object) -> bool:
    first, second = instant(left), instant(right)
    if first is None or second is None:
        return left == right
    return abs(first - second) <= _ROUNDING


def rounded(devices: Sequence[JsonObject]) -> tuple[JsonObject, ...]:
    """The devices with the times of their taints in whole seconds, because the server stores no fractions."""
    return tuple([_with_taints(device, _rounded_taint) for device in devices])


def kept(stored: Sequence[JsonObject], wanted: Sequence[JsonObject]) -> tuple[JsonObject, ...]:
    """The wanted devices, where a taint without a time has the time of the equal taint of the stored device."""
    known: dict[str, list[JsonObject]] = {}
    for device in stored:
        if device.get("taints"):
            known.setdefault(text_at(device, "name"), _taints(device))
    return tuple([_dated(device, known.get(text_at(device, "name"), ())) for device in wanted])


def served(sent: Sequence[JsonObject], stored: Sequence[JsonObject]) -> tuple[JsonObject, ...]:
    """The devices as sent, where a taint without a time has the time that the server gave it."""
    result = list(sent)
    for index, (ours, theirs) in enumerate(zip(sent, stored, strict=False)):
        given = _taints(theirs)
        if ours.get("taints") and given:
            dated = [
                {**taint, "timeAdded": other["timeAdded"]}
                if taint.get("timeAdded") is None and other.get("timeAdded") is not None
                else taint
                for taint, other in zip(_taints(ours), given, strict=False)
            ]
            result[index] = {**ours, "taints": [*dated, *_taints(ours)[len(dated) :]]}
    return tuple(result)


def _taints(device: JsonObject) -> list[JsonObject]:
    taints = device.get("taints")
    return [taint for taint in taints if isinstance(taint, dict)] if isinstance(taints, list) else []


def _with_taints(device: JsonObject, change: Any) -> JsonObject:
    taints = device.get("taints")
    if not isinstance(taints, list) or not taints:
        return device
    return {**device, "taints": [change(taint) if isinstance(taint, dict) else taint for taint in taints]}


def _rounded_taint(taint: JsonObject) -> JsonObject:
    moment = instant(taint.get("timeAdded"))
    if moment is None:
        return taint
    try:
        whole = (moment + timedelta(microseconds=500_000)).replace(microsecond=0)
    except OverflowError:
        return taint
    return {**taint, "timeAdded": whole.replace(tzinfo=None).isoformat() + "Z"}


def _dated(device: JsonObject, old: Sequence[JsonObject]) -> JsonObject:
    """Match taints in their order, from the last: one that moved before others counts as new, as upstream."""
    end = len(old)
    taints = []
    for taint in reversed(_taints(device)):
        places = [place for place in range(end) if _identity(old[place]) == _identity(taint)]
        end = places[-1] if places else end
        time = old[end].get("timeAdded") if places else None
        given = taint.get("timeAdded") is not None or time is None
        taints.append(taint if given else {**taint, "timeAdded": time})
    return {**device, "taints": [*reversed(taints)]} if taints else device


def _identity(taint: JsonObject) -> tuple[object, object, object]:
    return taint.get("key"), taint.get("value") or "", taint.get("effect")
