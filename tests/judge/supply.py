"""Generates what there is to allocate: nodes, slices, and what is already in use.

Worlds are small and repeat themselves (few values of attributes, counters that just suffice), because that is where
searches have to turn back. Some objects break rules of the API on purpose: the allocator has an answer to them too.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.judge.chance import Chance, Json

DRIVERS = ("gpu.example.com", "nic.example.com")
NODES = ("node-1", "node-2", "node-3")
TAINT_KEYS = ("maint", "broken")
COUNTERS = ("sm", "mem")
SETS = ("set-0", "set-1")
AMOUNTS = ("1", "2", "3", "1Gi", "2Gi", "1500m")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which features a case is about; others stay away, so that few things meet often."""

    counters: bool
    shares: bool
    taints: bool
    binding: bool
    lists: bool
    nodes: bool
    pools: bool
    spread: bool  # counter sets lie in several slices of a pool, and some names of capacity have a domain
    many: bool  # more requests and devices, so that searches become long
    modest: bool  # claims ask for little, so that most can be had


def node(chance: Chance, name: str = "") -> Json:
    """A node to allocate for, any or the one of that name; its labels are what selectors ask for."""
    name = name or chance.one(NODES)
    labels = {"kubernetes.io/hostname": name, "zone": chance.one(("z1", "z2"))}
    if chance.maybe(0.7):
        labels["rack"] = chance.one(("1", "3", "x"))
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"labels": labels, "name": name}}


def slices(chance: Chance, wanted: Wanted, here: str) -> list[Json]:
    """Slices of one to four pools; `here` is the node's name."""
    made: list[Json] = []
    names = {
        (chance.one((*DRIVERS, DRIVERS[0], DRIVERS[0])), chance.one(("pool-a", "pool-b", "pool-c")))
        for _ in range(chance.number(1, 4 if wanted.pools else 2))
    }
    for driver, pool in sorted(names):
        made += _pool(chance, wanted, driver, pool, here)
        if wanted.pools and chance.oddly(0.25):
            made += _generation(chance, wanted, driver, pool, here)
    return chance.shuffled(made) if chance.maybe(0.7) else made


def allocated(chance: Chance, wanted: Wanted, given: list[Json]) -> Json:
    """Some devices in use: whole, or by shares where they allow it; now and then one that is in no slice."""
    state: Json = {}
    share = chance.one((0.0, 0.0, 0.1, 0.3))
    for each in given:
        spec = each["spec"]
        for device in spec.get("devices", ()):
            place = [spec["driver"], spec["pool"]["name"], device["name"]]
            if not chance.maybe(share):
                continue
            if device.get("allowMultipleAllocations") and not chance.oddly(0.1):
                _used(chance, state, place, device)
            else:
                state.setdefault("devices", []).append(place)
    if chance.oddly(0.05):
        state.setdefault("devices", []).append([DRIVERS[0], "pool-a", "gone"])
    return state


def _used(chance: Chance, state: Json, place: list[str], device: Json) -> None:
    for number in range(chance.number(1, 2)):
        state.setdefault("shared", []).append([*place, f"share-{number}"])
        consumed = {name: chance.one(AMOUNTS) for name in device.get("capacity", {}) if chance.maybe(0.9)}
        entry = {"driver": place[0], "pool": place[1], "device": place[2], "consumed": consumed}
        if not chance.oddly(0.1):
            state.setdefault("capacity", []).append(entry)


def _pool(chance: Chance, wanted: Wanted, driver: str, pool: str, here: str) -> list[Json]:
    generation = chance.number(1, 2) if wanted.pools else 1
    sets = _counter_sets(chance) if wanted.counters and chance.maybe(0.8) else []
    form = chance.one(("nodeName", "nodeName", "allNodes", "nodeSelector", "perDevice", "mixed"))
    if not wanted.nodes:
        form = "nodeName"
    made = []
    for index in range(chance.number(1, 3)):
        start = 0 if chance.oddly(0.015) else index * 10
        devices = [
            _device(chance, wanted, f"dev-{start + count}", sets)
            for count in range(chance.one((4, 5, 6) if wanted.many else (0, 1, 2, 3, 3, 4)))
        ]
        each = _slice(f"{driver[:3]}-{pool}-{chance.number(0, 99)}-{index}", driver, pool, generation)
        each["spec"]["devices"] = devices
        _placed(chance, each["spec"], form, here)
        made.append(each)
    for index, own in enumerate([[each] for each in sets] if wanted.spread else [sets] if sets else []):
        counters = _slice(f"{driver[:3]}-{pool}-counters-{index}", driver, pool, generation)
        counters["spec"]["sharedCounters"] = own
        _placed(chance, counters["spec"], "nodeName" if not wanted.nodes else form, here)
        made.append(counters)
    for each in made:
        each["spec"]["pool"]["resourceSliceCount"] = len(made) + (chance.one((-1, 1)) if chance.oddly(0.04) else 0)
    return made


def _generation(chance: Chance, wanted: Wanted, driver: str, pool: str, here: str) -> list[Json]:
    """Slices of another generation of the pool, whole or not."""
    each = _slice(f"{driver[:3]}-{pool}-other", driver, pool, chance.number(0, 3))
    each["spec"]["devices"] = [_device(chance, wanted, chance.one(("dev-0", "other-0")), [])]
    _placed(chance, each["spec"], "nodeName", chance.one((here, *NODES)))
    each["spec"]["pool"]["resourceSliceCount"] = chance.one((1, 1, 2))
    return [each]


def _slice(name: str, driver: str, pool: str, generation: int) -> Json:
    place = {"name": pool, "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": driver, "pool": place}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def _placed(chance: Chance, spec: Json, form: str, here: str) -> None:
    """Say which nodes a slice is for."""
    if form == "mixed":
        form = chance.one(("nodeName", "allNodes", "nodeSelector", "perDevice"))
    if chance.oddly(0.02):
        return
    match form:
        case "nodeName":
            spec["nodeName"] = here if chance.maybe(0.93) else chance.one(NODES)
        case "allNodes":
            spec["allNodes"] = not chance.oddly(0.03)
        case "nodeSelector":
            spec["nodeSelector"] = _selector(chance, here)
        case _:
            spec["perDeviceNodeSelection"] = True
            for device in spec.get("devices", ()):
                _placed(chance, device, chance.one(("nodeName", "allNodes", "nodeSelector")), here)


def _selector(chance: Chance, here: str) -> Json:
    term: Json = {}
    for _ in range(chance.number(1, 2)):
        if chance.maybe(0.15):
            values = [chance.one((here, *NODES))]
            requirement = {"key": "metadata.name", "operator": chance.one(("In", "NotIn")), "values": values}
            term.setdefault("matchFields", []).append(requirement)
        else:
            term.setdefault("matchExpressions", []).append(_requirement(chance))
    terms = [term]
    if chance.oddly(0.05):
        terms.append({"matchExpressions": [_requirement(chance)]})
    if chance.oddly(0.02):
        terms = chance.one(([], [{}]))
    return {"nodeSelectorTerms": terms}


def _requirement(chance: Chance) -> Json:
    operator = chance.one(("In", "In", "In", "In", "Exists", "Exists", "NotIn", "DoesNotExist", "Gt", "Lt"))
    if chance.oddly(0.02):
        operator = "Foo"
    requirement: Json = {"key": chance.one(("zone", "rack", "zone", "zone", "nosuch")), "operator": operator}
    if operator in {"In", "NotIn", "Foo"}:
        requirement["values"] = chance.some(("z1", "z2", "1", "3")) if operator != "In" else ["z1", "z2", "1"]
    elif operator in {"Gt", "Lt"}:
        requirement["key"], requirement["values"] = "rack", [chance.one(("2", "1"))]
        if chance.oddly(0.1):
            requirement["values"] = chance.one((["x"], [], ["1", "2"]))
    return requirement


def _counter_sets(chance: Chance) -> list[Json]:
    sets = []
    for name in chance.some(SETS):
        counters = {counter: {"value": chance.one(("2", "3", "4", "6"))} for counter in chance.some(COUNTERS)}
        sets.append({"name": name, "counters": counters})
    if chance.oddly(0.02):
        sets.append(sets[0])
    return sets


def _device(chance: Chance, wanted: Wanted, name: str, sets: list[Json]) -> Json:
    device: Json = {"name": name, "attributes": _attributes(chance, wanted)}
    if sets and chance.maybe(0.75):
        device["consumesCounters"] = _consumption(chance, sets)
    if wanted.shares or chance.maybe(0.2):
        _capacity(chance, wanted, device)
    if wanted.taints and chance.maybe(0.3):
        device["taints"] = [_taint(chance) for _ in range(chance.number(1, 2))]
    if wanted.binding and chance.maybe(0.4):
        device["bindingConditions"] = ["example.com/attached"]
        if chance.maybe(0.5):
            device["bindingFailureConditions"] = ["example.com/failed"]
        if chance.maybe(0.5):
            device["bindsToNode"] = True
    return device


def _attributes(chance: Chance, wanted: Wanted) -> Json:
    attributes: Json = {}
    if chance.maybe(0.9):
        attributes["model"] = {"string": chance.one(("a", "a", "b"))}
    if chance.maybe(0.8):
        attributes["size"] = {"int": chance.number(1, 3)}
    if chance.maybe(0.6):
        attributes["healthy"] = {"bool": chance.maybe(0.7)}
    if chance.maybe(0.5):
        attributes["fw"] = {"version": chance.one(("1.0.0", "1.0.0+b", "2.0.0"))}
    if chance.maybe(0.6):
        attributes["resource.kubernetes.io/pcieRoot"] = {"string": chance.one(("root0", "root1"))}
    if chance.maybe(0.7):
        attributes["numa"] = {"int": chance.number(0, 2)}
        if wanted.lists and chance.maybe(0.6):
            attributes["numa"] = {"ints": [chance.number(0, 3) for _ in range(chance.number(1, 3))]}
    if wanted.lists and chance.maybe(0.4):
        attributes["tags"] = chance.one(({"strings": ["x", "y"]}, {"strings": ["y"]}, {"versions": ["1.0.0", "2.0.0"]},
                                         {"bools": [True]}, {"string": "x"}))  # fmt: skip
    if chance.oddly(0.01):
        attributes["numa"] = chance.one(({}, {"string": "0"}, {"version": "x"}, {"bool": True}))
    if chance.oddly(0.03):
        attributes["gpu.example.com/model"] = {"string": "b"}
    return attributes


def _consumption(chance: Chance, sets: list[Json]) -> list[Json]:
    consumed = []
    for given in chance.some(sets, 1 if chance.maybe(0.8) else 2):
        names = chance.some(COUNTERS if chance.oddly(0.02) else list(given["counters"]))
        counters = {name: {"value": chance.one(("1", "1", "2", "3", "0"))} for name in names}
        consumed.append({"counterSet": given["name"] if not chance.oddly(0.01) else "nosuch", "counters": counters})
    return consumed


def _capacity(chance: Chance, wanted: Wanted, device: Json) -> None:
    if wanted.shares and chance.maybe(0.75):
        device["allowMultipleAllocations"] = not chance.oddly(0.05)
    capacity: Json = {}
    for name in ("mem", "cores") if chance.maybe(0.7) else chance.some(("mem", "cores")):
        if wanted.spread and chance.maybe(0.4):
            name = f"{chance.one(DRIVERS)}/{name}"  # noqa: PLW2901 - the same capacity under a qualified name
        capacity[name] = {"value": chance.one(("2", "4", "3", "4Gi", "2500m"))}
        if chance.maybe(0.5):
            capacity[name]["requestPolicy"] = _policy(chance)
    if not chance.oddly(0.05):
        device["capacity"] = capacity


def _policy(chance: Chance) -> Json:
    policy: Json = {}
    if chance.maybe(0.85):
        policy["default"] = chance.one(("1", "2", "1Gi", "0"))
    match chance.number(0, 2):
        case 0:
            policy["validValues"] = chance.some(("1", "2", "4", "1Gi"))
        case 1:
            span: Json = {"min": chance.one(("1", "0", "500m", "1Gi"))} if not chance.oddly(0.03) else {}
            if chance.maybe(0.5):
                span["max"] = chance.one(("2", "3", "4Gi"))
            if chance.maybe(0.6):
                span["step"] = chance.one(("1", "2", "512Mi", "500m"))
            policy["validRange"] = span
        case _:
            pass
    return policy


def _taint(chance: Chance) -> Json:
    effect = chance.one(("NoSchedule", "NoSchedule", "NoExecute", "None"))
    if chance.oddly(0.03):
        effect = "Foo"
    taint: Json = {"key": chance.one(TAINT_KEYS), "effect": effect}
    if chance.maybe(0.7):
        taint["value"] = chance.one(("x", "y"))
    return taint
