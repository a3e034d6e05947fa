"""Small clusters, as few facts as a brute force needs, and the Kubernetes objects that say the same.

One node, complete and valid pools of one driver, at most six devices. Left out is what a recorded or generated case
tests better: node selection, generations, failing selectors, and All with constraints, whose breach is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

DRIVER = "gpu.example.com"
NODE = "node-1"
ALL = 0
"""A count that stands for the mode All."""
CAPACITY = "mem"
COUNTERS = ("sm", "mem")
COUNTER_SET = "set"
SELECTORS = {
    "": "true",
    "large": f'device.attributes["{DRIVER}"].?size.orValue(0) >= 2',
    "shared": "device.allowMultipleAllocations",
    "model-a": f'device.attributes["{DRIVER}"].?model.orValue("") == "a"',
}
"""What requests may ask of a device: name -> expression."""

Json = dict[str, Any]
Value = int | str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WorldDevice:
    """A device. `mem` is its capacity (0: none), `default` what a share gets that asks for nothing (0: everything)."""

    pool: str
    slice: str
    name: str
    attributes: Mapping[str, Value]
    counters: Mapping[str, int]
    shared: bool
    mem: int
    default: int
    step: int  # shares are multiples of it, at least one; 0: no rule
    tainted: bool
    binding: bool
    held: int  # 0: free; a dedicated device is held whole, of a shared one so much of `mem` is in use


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to satisfy a request. `count` may be ALL; `amount` is what is asked of `mem`, 0 for nothing."""

    count: int
    selector: str
    amount: int
    tolerates: bool
    admin: bool


@dataclass(frozen=True, slots=True)
class WorldConstraint:
    """Over the requests named (none: all)."""

    match: bool  # else distinct
    attribute: str
    requests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorldClaim:
    """Requests named r0, r1, ...; one with several alternatives names them s0, s1, ..."""

    requests: tuple[tuple[Alternative, ...], ...]
    constraints: tuple[WorldConstraint, ...]


@dataclass(frozen=True, slots=True)
class AllocatorWorld:
    """A cluster of one node and what is asked of it. `budget`: counter -> what each pool declares."""

    devices: tuple[WorldDevice, ...]
    budget: Mapping[str, int]
    claims: tuple[WorldClaim, ...]
    lists: bool


@st.composite
def _devices(draw: st.DrawFn, lists: bool, counted: bool) -> tuple[WorldDevice, ...]:
    devices = []
    for number in range(draw(st.integers(2, 6))):
        shared = draw(st.booleans())
        mem = draw(st.integers(1, 4)) if shared else draw(st.sampled_from((0, 2)))
        devices.append(
            WorldDevice(
                pool=draw(st.sampled_from(("a", "a", "b"))),
                slice=draw(st.sampled_from(("s0", "s1"))),
                name=f"d{number}",
                attributes=draw(_attributes(lists)),
                counters=draw(_amounts) if counted else {},
                shared=shared,
                mem=mem,
                default=draw(st.sampled_from((0, 1))) if mem else 0,
                step=draw(st.sampled_from((0, 0, 2))) if mem else 0,
                tainted=draw(st.sampled_from((False, False, False, False, True))),
                binding=draw(st.sampled_from((False, False, True))),
                held=draw(st.sampled_from((0, 0, 0, 0, 0, 1))),
            )
        )
    return tuple(devices)


def _attributes(lists: bool) -> st.SearchStrategy[dict[str, Value]]:
    number: st.SearchStrategy[Value] = st.integers(0, 1)
    if lists:
        number = st.one_of(number, st.lists(st.integers(0, 2), min_size=1, max_size=2).map(tuple))
    values: dict[str, st.SearchStrategy[Value]] = {
        "model": st.sampled_from(("a", "b")),
        "size": st.integers(1, 2),
        "numa": st.one_of(number, number, st.just("0")),
    }
    return st.fixed_dictionaries({}, optional=values)


_amounts = st.dictionaries(st.sampled_from(COUNTERS), st.integers(0, 2), max_size=2)


@st.composite
def _claim(draw: st.DrawFn, modes: tuple[int, ...]) -> WorldClaim:
    alternatives = st.builds(
        Alternative,
        count=st.sampled_from(modes),
        selector=st.sampled_from(("", "", "", *SELECTORS)),
        amount=st.sampled_from((0, 0, 1, 2, 3)),
        tolerates=st.booleans(),
        admin=st.just(False),
    )
    lone = st.tuples(st.builds(_with_admin, alternatives, st.sampled_from((False, False, False, True))))
    several = st.lists(alternatives, min_size=2, max_size=2).map(tuple)
    requests = tuple(draw(st.lists(st.one_of(lone, lone, several), min_size=1, max_size=2)))
    names = [name for index, request in enumerate(requests) for name in request_names(index, request)]
    constraints = st.builds(
        WorldConstraint,
        match=st.booleans(),
        attribute=st.sampled_from(("numa", "numa", "model", "size")),
        requests=st.one_of(
            st.just(()), st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True).map(tuple)
        ),
    )
    return WorldClaim(requests, () if ALL in modes else tuple(draw(st.lists(constraints, max_size=2))))


def _with_admin(alternative: Alternative, admin: bool) -> Alternative:
    return Alternative(alternative.count, alternative.selector, alternative.amount, alternative.tolerates, admin)


@st.composite
def worlds(draw: st.DrawFn) -> AllocatorWorld:
    """Worlds of up to six devices and up to four requests."""
    lists, counted = draw(st.booleans()), draw(st.booleans())
    modes = draw(st.sampled_from(((1, 1, 2), (1, 2, 3), (1, ALL))))
    return AllocatorWorld(
        devices=draw(_devices(lists, counted)),
        budget={counter: draw(st.integers(1, 4)) for counter in COUNTERS} if counted else {},
        claims=tuple(draw(st.lists(_claim(modes), min_size=1, max_size=2))),
        lists=lists,
    )


def request_names(index: int, request: tuple[Alternative, ...]) -> list[str]:
    """What constraints can call a request: itself and, where there are several, its alternatives."""
    subs = [f"r{index}/s{number}" for number in range(len(request))] if len(request) > 1 else []
    return [f"r{index}", *subs]


def case(world: AllocatorWorld) -> Json:
    """The world as a case in the format of the allocator's vectors."""
    state: Json = {}
    for device in world.devices:
        place = [DRIVER, device.pool, device.name]
        if device.held and device.shared:
            state.setdefault("shared", []).append([*place, "share"])
            used = {
                "driver": DRIVER,
                "pool": device.pool,
                "device": device.name,
                "consumed": {CAPACITY: str(device.held)},
            }
            state.setdefault("capacity", []).append(used)
        elif device.held:
            state.setdefault("devices", []).append(place)
    switches = ("adminAccess", "consumableCapacity", "deviceBindingAndStatus", "deviceTaints", "partitionableDevices",
                "prioritizedList")  # fmt: skip
    return {
        "name": "world",
        "features": {**dict.fromkeys(switches, True), "listTypeAttributes": world.lists},
        "node": {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}},
        "classes": [{"metadata": {"name": "any"}, "spec": {}}],
        "slices": _slices(world),
        "claims": [_claim_object(index, claim) for index, claim in enumerate(world.claims)],
        "allocated": state,
    }


def _slices(world: AllocatorWorld) -> list[Json]:
    content: dict[tuple[str, str], Json] = {}
    for device in world.devices:
        content.setdefault((device.pool, device.slice), {"devices": []})["devices"].append(_device_object(device))
    if world.budget:
        counters = {name: {"value": str(value)} for name, value in world.budget.items()}
        for pool in {device.pool for device in world.devices}:
            content[pool, "counters"] = {"sharedCounters": [{"name": COUNTER_SET, "counters": counters}]}
    made = []
    for (pool, name), spec in content.items():
        count = sum(1 for other, _ in content if other == pool)
        place = {"name": pool, "generation": 1, "resourceSliceCount": count}
        meta = {"name": f"{pool}-{name}"}
        made.append({"metadata": meta, "spec": {"driver": DRIVER, "nodeName": NODE, "pool": place, **spec}})
    return made


def _device_object(device: WorldDevice) -> Json:
    made: Json = {"name": device.name, "attributes": {key: _value(each) for key, each in device.attributes.items()}}
    if device.shared:
        made["allowMultipleAllocations"] = True
    if device.mem:
        made["capacity"] = {CAPACITY: {"value": str(device.mem)}}
        policy: Json = {}
        if device.default:
            policy["default"] = str(device.default)
        if device.step:
            policy["validRange"] = {"min": str(device.step), "step": str(device.step)}
        if policy:
            made["capacity"][CAPACITY]["requestPolicy"] = policy
    if device.counters:
        counters = {name: {"value": str(value)} for name, value in device.counters.items()}
        made["consumesCounters"] = [{"counterSet": COUNTER_SET, "counters": counters}]
    if device.tainted:
        made["taints"] = [{"key": "maint", "effect": "NoSchedule"}]
    if device.binding:
        made["bindingConditions"] = ["example.com/attached"]
    return made


def _value(value: Value) -> Json:
    if isinstance(value, tuple):
        return {"ints": list(value)}
    return {"string": value} if isinstance(value, str) else {"int": value}


def _claim_object(index: int, claim: WorldClaim) -> Json:
    requests: list[Json] = []
    for number, request in enumerate(claim.requests):
        made = [_request_object(each) for each in request]
        entry: Json = {"exactly": made[0]}
        if len(made) > 1:
            entry = {"firstAvailable": [{"name": f"s{sub}", **each} for sub, each in enumerate(made)]}
        requests.append({"name": f"r{number}", **entry})
    constraints = [
        {
            "matchAttribute" if each.match else "distinctAttribute": f"{DRIVER}/{each.attribute}",
            **({"requests": list(each.requests)} if each.requests else {}),
        }
        for each in claim.constraints
    ]
    metadata = {"name": f"c{index}", "namespace": "default", "uid": f"uid-{index}"}
    return {"metadata": metadata, "spec": {"devices": {"requests": requests, "constraints": constraints}}}


def _request_object(request: Alternative) -> Json:
    made: Json = {"deviceClassName": "any", "allocationMode": "All" if request.count == ALL else "ExactCount"}
    if request.count != ALL:
        made["count"] = request.count
    if request.selector:
        made["selectors"] = [{"cel": {"expression": SELECTORS[request.selector]}}]
    if request.amount:
        made["capacity"] = {"requests": {CAPACITY: str(request.amount)}}
    if request.tolerates:
        made["tolerations"] = [{"key": "maint", "operator": "Exists"}]
    if request.admin:
        made["adminAccess"] = True
    return made
