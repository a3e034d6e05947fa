"""Devices and ResourceSlices for tests, as short as their meaning allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]
DRIVER = "gpu.example.com"


def attribute(value: int | bool | str | Sequence[int] | Json) -> Json:
    """A typed value; a list becomes `ints`."""
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    if isinstance(value, str):
        return {"string": value}
    return dict(value) if isinstance(value, Mapping) else {"ints": list(value)}


def device(
    name: str,
    attributes: Mapping[str, Any] | None = None,
    *,
    counters: Mapping[str, Mapping[str, int]] | None = None,
    capacity: Mapping[str, int | str] | None = None,
    shared: bool = False,
    **fields: Any,
) -> Json:
    """A device. `counters`: counter set -> counter -> what it takes; `capacity`: name -> value."""
    made: Json = {"name": name, **fields}
    if attributes:
        made["attributes"] = {key: attribute(value) for key, value in attributes.items()}
    if counters:
        made["consumesCounters"] = [{"counterSet": each, "counters": values(of)} for each, of in counters.items()]
    if capacity:
        made["capacity"] = values(capacity)
    if shared:
        made["allowMultipleAllocations"] = True
    return made


def values(amounts: Mapping[str, int | str]) -> Json:
    """Quantities by name, as capacities and counters hold them."""
    return {name: {"value": str(amount)} for name, amount in amounts.items()}


def resource_slice(devices: Sequence[Json], name: str = "slice", **fields: Any) -> Json:
    """A slice of pool `pool` for the node, the only one of it unless `fields` say otherwise."""
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1, **fields.pop("pool", {})}
    place = {} if fields.keys() & {"allNodes", "nodeSelector", "perDeviceNodeSelection", "nodeName"} else "node-1"
    spec: Json = {"driver": DRIVER, "pool": pool, "devices": list(devices), **fields}
    if place:
        spec["nodeName"] = place
    return {"metadata": {"name": name}, "spec": spec}


def slices(devices: Sequence[Json], counters: Mapping[str, Mapping[str, int]] | None = None) -> list[Json]:
    """The slices of one pool: its devices, and its counter sets if it has any."""
    if not counters:
        return [resource_slice(devices)]
    sets = [{"name": name, "counters": values(each)} for name, each in counters.items()]
    pool = {"resourceSliceCount": 2}
    return [
        resource_slice(devices, pool=pool),
        resource_slice([], "counters", sharedCounters=sets, pool=pool),
    ]


def of(name: str) -> str:
    """An attribute of the driver, as an expression."""
    return f'device.attributes["{DRIVER}"].{name}'
