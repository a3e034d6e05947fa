"""Devices, slices and pools as drivers publish them, with what is odd or wrong here and there, and changes of them."""

from __future__ import annotations

import copy
from collections.abc import Callable

from tests.judge.chance import Chance, Json

QUANTITIES = ("1Gi", "1024Mi", "1073741824", "80Gi", "500m", "0.5", "1k", "1000", "1e3", "0", "1.5Gi", "16777216Ki")
VERSIONS = ("1.2.3", "1.2.4", "2.0.0-rc.1")
TIMES = ("2024-05-06T07:08:09Z", "2024-05-06T07:08:10Z", "2024-05-06T07:08:19Z", "2024-05-06T09:08:09+02:00")
EFFECTS = ("NoSchedule", "NoExecute", "None")
LONG = "x" * 65


class Content:
    """Makes the content of one scenario; ``gates``: of the server, all on or not."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self._made = 0
        self.faulty = chance.maybe(0.25)
        self.rich = chance.maybe(0.6)
        self.sets = False
        """Whether there are counter sets."""

    def pool(self, target: str) -> Json:
        """``target``: how nodes are chosen: node, all, selector, device or none."""
        chance = self.chance
        count = chance.one((1, 1, 1, 2, 2, 3, 4, 0))
        sets = self.rich and chance.maybe(0.25)
        self.sets = self.sets or sets
        slices = [self.counters()] if sets and count else []
        slices += [self.slice(per_device=target == "device", sets=sets) for _ in range(count)]
        pool: Json = {"slices": slices}
        if target == "all":
            pool["allNodes"] = True
        if target == "selector":
            pool["nodeSelector"] = self.selector()
        if target == "device":
            for each in slices:
                each["perDeviceNodeSelection"] = True
        if chance.maybe(0.1):
            pool["generation"] = chance.one((1, 2, 3, 7, 2**53 + 1))
        if self.faulty and chance.maybe(0.3):
            self.spoil(pool)
        return pool

    def slice(self, *, per_device: bool = False, sets: bool = False) -> Json:
        chance = self.chance
        count = chance.one((0, 1, 1, 2, 2, 3, 5)) if not chance.maybe(0.03) else chance.one((64, 65, 128))
        return {"devices": [self.device(per_device=per_device, sets=sets, plain=count > 5) for _ in range(count)]}

    def counters(self) -> Json:
        counters = {name: {"value": self.chance.one(QUANTITIES)} for name in ("mem", "slots")}
        return {"sharedCounters": [{"name": "cs", "counters": counters}]}

    def selector(self) -> Json:
        values = self.chance.some(("a", "b", "c"))
        term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": values}]}
        return {"nodeSelectorTerms": [term]}

    def device(self, *, per_device: bool = False, sets: bool = False, plain: bool = False) -> Json:
        chance = self.chance
        self._made += 1
        device: Json = {"name": f"d-{self._made}", "attributes": {"v": {"int": chance.number(0, 3)}}}
        if per_device:
            device["allNodes"] = True
        if plain:
            return device
        if chance.maybe(0.5):
            device["capacity"] = {"memory": {"value": chance.one(QUANTITIES)}}
        if sets and chance.maybe(0.6):
            use = {"counterSet": "cs", "counters": {"mem": {"value": chance.one(QUANTITIES)}}}
            device["consumesCounters"] = [use]
        if self.rich:
            for change in chance.some(_FIELDS, 3):
                change(chance, device)
        return device

    def changed(self, pools: Json) -> Json:
        """Other wishes, made from these."""
        chance = self.chance
        made = copy.deepcopy(pools)
        for _ in range(chance.one((1, 1, 1, 2, 3))):
            names = sorted(made)
            if not names:
                return made
            chance.one(_CHANGES)(self, made, chance.one(names))
        return made

    def spoil(self, pool: Json) -> None:
        """Break a rule of the API or of pools."""
        devices = [device for each in pool["slices"] for device in each.get("devices", [])]
        if devices:
            self.chance.one(_FAULTS)(self.chance, self.chance.one(devices), devices)


def _attribute(chance: Chance, device: Json) -> None:
    name = chance.one(("model", "example.com/model", "ver", "on"))
    value = chance.one(
        (
            {"string": chance.one(("X100", "", "Y"))},
            {"bool": chance.maybe(0.5)},
            {"version": chance.one(VERSIONS)},
            {"int": chance.one((0, 1, 2**53 + 1, -1))},
        )
    )
    device.setdefault("attributes", {})[name] = value


def _taint(chance: Chance, device: Json) -> None:
    taint: Json = {"key": chance.one(("example.com/a", "b")), "effect": chance.one(EFFECTS)}
    if chance.maybe(0.6):
        taint["value"] = chance.one(("1", "2", ""))
    if chance.maybe(0.3):
        taint["timeAdded"] = chance.one(TIMES)
    taints = [
        each for each in device.get("taints", []) if (each["key"], each["effect"]) != (taint["key"], taint["effect"])
    ]
    device["taints"] = [*taints, taint] if chance.maybe(0.5) else [taint, *taints]


def _no_taints(chance: Chance, device: Json) -> None:
    taints = device.get("taints", [])
    device["taints"] = chance.shuffled(taints)[: chance.number(0, len(taints))]


def _bindings(chance: Chance, device: Json) -> None:
    device["bindingConditions"] = chance.some(("ready", "up"))
    device["bindingFailureConditions"] = ["failed"]
    if chance.maybe(0.5):
        device["bindsToNode"] = chance.maybe(0.5)


def _shared(chance: Chance, device: Json) -> None:
    device["allowMultipleAllocations"] = chance.maybe(0.7)
    if device["allowMultipleAllocations"] and chance.maybe(0.6):
        policy = {"default": "1Gi", "validRange": {"min": chance.one(("1Gi", "1024Mi")), "step": "1Gi"}}
        device["capacity"] = {"bw": {"value": "80Gi", "requestPolicy": policy}}


def _capacity(chance: Chance, device: Json) -> None:
    if not device.get("capacity", {}).get("bw"):
        device["capacity"] = {chance.one(("memory", "cores")): {"value": chance.one(QUANTITIES)}}


def _mappings(chance: Chance, device: Json) -> None:
    if chance.maybe(0.3):
        device["nodeAllocatableResourceMappings"] = {"cpu": {"allocationMultiplier": "2"}}


def _list(chance: Chance, device: Json) -> None:
    if chance.maybe(0.1):
        device.setdefault("attributes", {})["l"] = {"strings": ["a", "b"]}


_FIELDS = (_attribute, _attribute, _taint, _taint, _bindings, _shared, _capacity, _mappings, _list)


def _device_changes(content: Content, pools: Json, name: str) -> None:
    devices = [device for each in pools[name]["slices"] for device in each.get("devices", [])]
    if devices:
        chance = content.chance
        device = chance.one(devices)
        chance.one((*_FIELDS, _attribute, _no_taints) if content.rich else (_attribute, _capacity))(chance, device)


def _devices_come(content: Content, pools: Json, name: str) -> None:
    for each in content.chance.shuffled(pools[name]["slices"])[:1]:
        if "sharedCounters" not in each:
            per_device = bool(each.get("perDeviceNodeSelection"))
            each.setdefault("devices", []).append(content.device(per_device=per_device))


def _devices_go(content: Content, pools: Json, name: str) -> None:
    for each in content.chance.shuffled(pools[name]["slices"])[:1]:
        if each.get("devices"):
            each["devices"].pop(content.chance.number(0, len(each["devices"]) - 1))


def _order(content: Content, pools: Json, name: str) -> None:
    for each in content.chance.shuffled(pools[name]["slices"])[:1]:
        each["devices"] = content.chance.shuffled(each.get("devices", []))


def _slice_comes(content: Content, pools: Json, name: str) -> None:
    slices = pools[name]["slices"]
    per_device = bool(slices and slices[0].get("perDeviceNodeSelection"))
    made = content.slice(per_device=per_device)
    if per_device:
        made["perDeviceNodeSelection"] = True
    slices.insert(content.chance.one((len(slices), len(slices), 0)), made)


def _slice_goes(content: Content, pools: Json, name: str) -> None:
    slices = pools[name]["slices"]
    if slices:
        slices.pop(content.chance.number(0, len(slices) - 1))


def _slices_swap(content: Content, pools: Json, name: str) -> None:
    pools[name]["slices"] = content.chance.shuffled(pools[name]["slices"])


def _device_moves(content: Content, pools: Json, name: str) -> None:
    slices = [each for each in pools[name]["slices"] if "sharedCounters" not in each]
    if len(slices) > 1 and slices[0].get("devices"):
        slices[-1].setdefault("devices", []).append(slices[0]["devices"].pop())


def _pool_goes(content: Content, pools: Json, name: str) -> None:
    del pools[name]


def _pool_comes(content: Content, pools: Json, name: str) -> None:
    slices = pools[name]["slices"]
    per_device = bool(slices and slices[0].get("perDeviceNodeSelection"))
    copied = {field: value for field, value in pools[name].items() if field not in ("slices", "generation")}
    made = content.slice(per_device=per_device)
    if per_device:
        made["perDeviceNodeSelection"] = True
    pools[f"extra-{content.chance.number(1, 2)}"] = {**copied, "slices": [made]}


def _generation(content: Content, pools: Json, name: str) -> None:
    pools[name]["generation"] = pools[name].get("generation", 0) + content.chance.one((-1, 1, 2, 3))
    if pools[name]["generation"] < 0:
        del pools[name]["generation"]


def _target(content: Content, pools: Json, name: str) -> None:
    pool = pools[name]
    if pool.pop("allNodes", False):
        pool["nodeSelector"] = content.selector()
    elif pool.get("nodeSelector"):
        if content.chance.maybe(0.5):
            pool["nodeSelector"] = content.selector()
        else:
            del pool["nodeSelector"]
            pool["allNodes"] = True


def _counter(content: Content, pools: Json, name: str) -> None:
    for each in pools[name]["slices"]:
        if "sharedCounters" in each:
            each["sharedCounters"] = content.counters()["sharedCounters"]


def _spoilt(content: Content, pools: Json, name: str) -> None:
    if content.faulty:
        content.spoil(pools[name])


Change = Callable[[Content, Json, str], None]
_CHANGES: tuple[Change, ...] = (
    *(_device_changes,) * 6,
    *(_devices_come, _devices_go, _order, _slice_comes, _slice_comes, _slice_goes, _slice_goes, _slices_swap),
    *(_device_moves, _pool_goes, _pool_comes, _generation, _target, _counter, _spoilt, _spoilt),
)


def _name(chance: Chance, device: Json, devices: list[Json]) -> None:
    device["name"] = "Bad"


def _twice(chance: Chance, device: Json, devices: list[Json]) -> None:
    device["name"] = devices[0]["name"]


def _long(chance: Chance, device: Json, devices: list[Json]) -> None:
    device.setdefault("attributes", {})["s"] = {"string": LONG}


def _version(chance: Chance, device: Json, devices: list[Json]) -> None:
    device.setdefault("attributes", {})["w"] = {"version": "1.2"}


def _effect(chance: Chance, device: Json, devices: list[Json]) -> None:
    device["taints"] = [{"key": "a", "effect": "NoWay"}]


def _unknown_set(chance: Chance, device: Json, devices: list[Json]) -> None:
    device["consumesCounters"] = [{"counterSet": "nobody", "counters": {"mem": {"value": "1"}}}]


_FAULTS = (_name, _twice, _long, _long, _version, _effect, _unknown_set)
