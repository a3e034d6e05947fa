"""Kubernetes objects for tests of the allocator, as short as their meaning allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scheduling.allocator.allocated import AllocatedState
from scheduling.allocator.allocator import Allocator
from scheduling.allocator.pools import Features
from scheduling.allocator.problem import Problem

Json = dict[str, Any]

DRIVER = "gpu.example.com"
NODE: Json = {"metadata": {"name": "node-1"}}
CLASSES: Mapping[str, Json] = {"any": {"metadata": {"name": "any"}, "spec": {}}}


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


def exactly(count: int = 1, selector: str = "", **fields: Any) -> Json:
    """What a request or an alternative asks for; a count of 0 stands for the mode All."""
    made: Json = {"deviceClassName": "any", "allocationMode": "ExactCount" if count else "All", **fields}
    if count:
        made["count"] = count
    if selector:
        made["selectors"] = [{"cel": {"expression": selector}}]
    return made


def request(name: str, *args: Any, **fields: Any) -> Json:
    """A request for exactly that."""
    return {"name": name, "exactly": exactly(*args, **fields)}


def first_available(name: str, *alternatives: Json) -> Json:
    """A request with alternatives named s0, s1, ..."""
    return {"name": name, "firstAvailable": [{"name": f"s{i}", **each} for i, each in enumerate(alternatives)]}


def claim(requests: Sequence[Json], *constraints: Json, name: str = "claim", **fields: Any) -> Json:
    """A claim; `fields` go beside its requests and constraints."""
    devices: Json = {"requests": list(requests), **fields}
    if constraints:
        devices["constraints"] = list(constraints)
    return {"metadata": {"name": name, "namespace": "team"}, "spec": {"devices": devices}}


def match(name: str, *requests: str) -> Json:
    """A constraint matchAttribute on an attribute of the driver."""
    return {"matchAttribute": f"{DRIVER}/{name}", **({"requests": list(requests)} if requests else {})}


def distinct(name: str, *requests: str) -> Json:
    """A constraint distinctAttribute on an attribute of the driver."""
    return {"distinctAttribute": f"{DRIVER}/{name}", **({"requests": list(requests)} if requests else {})}


def of(name: str) -> str:
    """An attribute of the driver, as an expression."""
    return f'device.attributes["{DRIVER}"].{name}'


def allocator(
    claims: Sequence[Json],
    given: Sequence[Json],
    *,
    features: Features = Features(),  # noqa: B008 - a frozen value
    allocated: AllocatedState = AllocatedState(),  # noqa: B008 - a frozen value
    classes: Mapping[str, Json] = CLASSES,
) -> Allocator:
    """An allocator of these claims over these slices."""
    return Allocator(claims, allocated, classes, given, features)


def problem(claims: Sequence[Json], given: Sequence[Json], features: Features = Features()) -> Problem:  # noqa: B008
    """What is to be searched on the node."""
    return allocator(claims, given, features=features).problem(NODE)


def devices_of(results: Sequence[Json] | None) -> list[list[str]] | None:
    """The devices of each claim, as `request=device`."""
    if results is None:
        return None
    return [[f"{each['request']}={each['device']}" for each in one["devices"].get("results", ())] for one in results]
