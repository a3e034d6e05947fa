"""Generates worlds for the scheduler: slices, classes, and pods with claims that come one after the other.

The generators are those of the judge. What they make is fitted to a real cluster: every pool's name is used once, so
that worlds that came before do not matter; objects that the API server would refuse are left out
(``scheduling.api.validation`` says which); and so is everything for which Kubernetes 1.36 and 1.37 have different rules
(tests/vectors/allocator).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from scheduling.api.validation import objects
from tests.judge import demand, supply
from tests.judge.chance import Chance, Json

NODES = {
    "fake-1": {"zone": "z1", "rack": "1"},
    "fake-2": {"zone": "z2", "rack": "3"},
    "fake-3": {"zone": "z1", "rack": "x"},
    "fake-4": {"zone": "z2"},
}
"""The nodes and what selectors ask for of them."""
ROUND = "round-number"
"""In names of pools and claims: replaced when a world is laid out, so that names are used once."""
HARMLESS = 0.7
"""Share of worlds without rare things: there the search is what is tested."""
MOST = 1000
"""Devices of a request: counts whose sum is more than a 64 bit integer holds end the scheduler."""
OF_ANY_TYPE = (
    'device.attributes["gpu.example.com"].model',
    'device.attributes["gpu.example.com"].healthy',
)
"""Expressions whose type is only known when they are evaluated: 1.36 refuses them."""


def world(seed: int, number: int) -> Json:
    """World ``number`` of the sequence ``seed``: ``slices``, ``classes``, ``pods`` (each of a ``node`` and ``claims``).

    A pod without ``node`` may go to any of ``NODES``. Each world can be made without those before it.
    """
    chance = Chance(f"world {seed} {number}")
    chance.bend = 0.0 if chance.maybe(HARMLESS) else 1.0
    wanted = supply.Wanted(
        counters=chance.maybe(0.35),
        shares=chance.maybe(0.35),
        taints=chance.maybe(0.3),
        # A pod waits for conditions after its devices were chosen.
        binding=False,
        # In 1.36 devices with lists are errors.
        lists=False,
        nodes=chance.maybe(0.4),
        pools=chance.maybe(0.4),
        spread=False,
        many=False,
        modest=chance.maybe(0.7),
    )
    slices = [each for here in chance.some(list(NODES), 3) for each in _slices(chance, wanted, here)]
    pods = [_pod(chance, wanted, f"p{index}") for index in range(chance.number(2, 5))]
    pods = [pod for pod in pods if pod["claims"]]
    _settled(chance, slices, pods)
    for index, each in enumerate(slices):
        # Several generations of a pool may have slices of one name.
        each["metadata"]["name"] += f"-{ROUND}-{index}"
    return {"name": f"{seed}-{number}", "slices": slices, "classes": _classes(chance), "pods": pods}


def _settled(chance: Chance, slices: list[Json], pods: list[Json]) -> None:
    """See to it that no pod is evicted: for the scheduler a toleration without effect is one for NoExecute taints too.

    The controller that evicts does not count it.
    """
    if chance.maybe(0.5):
        for device in (device for each in slices for device in each["spec"].get("devices", ())):
            for taint in device.get("taints", ()):
                taint["effect"] = taint["effect"].replace("NoExecute", "NoSchedule")
        return
    requests = (
        request for pod in pods for claim in pod["claims"] for request in claim["spec"]["devices"].get("requests", ())
    )
    for each in (asked for request in requests for asked in _demands(request)):
        for toleration in each.get("tolerations", ()):
            toleration.setdefault("effect", chance.one(("NoSchedule", "NoExecute")))


def _slices(chance: Chance, wanted: supply.Wanted, here: str) -> list[Json]:
    """Slices that a real cluster takes; all slices of one generation of a pool agree on how many there are.

    Of pools without counters, some have more generations than one, or lack slices.
    """
    text = json.dumps(supply.slices(chance, wanted, here.replace("fake", "node")))
    # With a bound that is no number the scheduler gives up every pod, also those that wait for this world to be seen.
    made: list[Json] = json.loads(text.replace('"node-', '"fake-').replace('["x"]', '["2"]'))
    kept = []
    for each in made:
        spec = each["spec"]
        # 1.36 mixes up counters of two drivers whose pools have one name.
        spec["pool"]["name"] = f"{spec['pool']['name']}-{spec['driver'][:3]}-{here}-{ROUND}"
        for device in spec.get("devices", ()):
            # Where it is there twice, with and without the driver's domain, chance decides which an expression sees.
            device["attributes"].pop("gpu.example.com/model", None)
        spec["devices"] = [device for device in spec.get("devices", ()) if not _refused_device(each, device)]
        if not spec["devices"]:
            del spec["devices"]
        if not objects.validate_slice(each):
            kept.append(each)
    return _counted(_steady(kept), made)


def _counted(kept: list[Json], made: list[Json]) -> list[Json]:
    """Correct how many slices a generation has, where some of those ``made`` were not kept."""
    counts: dict[tuple[str, int], int] = {}
    for each in kept:
        pool = each["spec"]["pool"]
        # Where slices disagree on it, the first in an order that is random in a scheduler decides.
        missing = pool["resourceSliceCount"] - len(_generation(made, pool))
        count = len(_generation(kept, pool)) + (0 if _has_counters(kept, pool) else max(0, missing))
        pool["resourceSliceCount"] = counts.setdefault((pool["name"], pool["generation"]), count)
    return kept


def _steady(slices: list[Json]) -> list[Json]:
    """Without what makes a pool with counters incomplete, outdated or invalid: 1.36 tells other nodes of it too."""
    kept = []
    for each in slices:
        pool = each["spec"]["pool"]
        newest = max(
            other["spec"]["pool"]["generation"] for other in slices if other["spec"]["pool"]["name"] == pool["name"]
        )
        if not _has_counters(slices, pool):
            kept.append(each)
        elif pool["generation"] == newest:
            known = _counters(_generation(slices, pool))
            if "devices" in each["spec"]:
                each["spec"]["devices"] = [one for one in each["spec"]["devices"] if _consumed(one) <= known]
            kept.append(each)
    return [each for each in kept if each["spec"].get("devices", True)]


def _has_counters(slices: list[Json], pool: Json) -> bool:
    return any("sharedCounters" in each["spec"] for each in slices if each["spec"]["pool"]["name"] == pool["name"])


def _counters(slices: list[Json]) -> set[tuple[str, str]]:
    sets = (one for each in slices for one in each["spec"].get("sharedCounters", ()))
    return {(one["name"], counter) for one in sets for counter in one["counters"]}


def _consumed(device: Json) -> set[tuple[str, str]]:
    return {(one["counterSet"], counter) for one in device.get("consumesCounters", ()) for counter in one["counters"]}


def _generation(slices: list[Json], pool: Json) -> list[Json]:
    wanted = pool["name"], pool["generation"]
    return [each for each in slices if (each["spec"]["pool"]["name"], each["spec"]["pool"]["generation"]) == wanted]


def _refused_device(owner: Json, device: Json) -> bool:
    spec = {**owner["spec"], "devices": [device]}
    return any(cause.field.startswith("spec.devices[0]") for cause in objects.validate_slice({**owner, "spec": spec}))


def _classes(chance: Chance) -> list[Json]:
    """All classes that are asked for: a missing one is no question for the allocator."""
    made = {each["metadata"]["name"]: each for each in demand.classes(chance)}
    for name in demand.CLASSES:
        made.setdefault(name, {"metadata": {"name": name}, "spec": {}})
    classes = list(made.values())
    for each in classes:
        each.update(apiVersion="resource.k8s.io/v1", kind="DeviceClass")
        if objects.validate_class(each) or _differs(each):
            each["spec"].pop("selectors", None)
    return classes


def _pod(chance: Chance, wanted: supply.Wanted, name: str) -> Json:
    claims = []
    for each in demand.claims(chance, wanted):
        each["metadata"] = {"name": f"{name}-{each['metadata']['name']}-{ROUND}"}
        _simplified(each, shares=wanted.shares)
        if not objects.validate_claim(each, admin_namespace=True) and not _differs(each):
            claims.append(each)
    pod: Json = {"name": name, "claims": claims}
    if chance.maybe(0.5):
        pod["node"] = chance.one(list(NODES))
    return pod


def _simplified(claim: Json, *, shares: bool) -> None:
    """Take away what 1.36 and 1.37 allocate differently, and classes that do not exist."""
    devices = claim["spec"].get("devices", {})
    for index, entry in enumerate(devices.get("config", ())):
        # 1.36 repeats entries: two that are equal from the beginning could not be told from that.
        entry["opaque"]["parameters"]["n"] = index
    demands = [asked for request in devices.get("requests", ()) for asked in _demands(request)]
    for each in demands:
        if each["deviceClassName"] not in demand.CLASSES:
            each["deviceClassName"] = "any"
        if each.get("count", 1) > MOST:
            each["count"] = MOST
        if "-1" in each.get("capacity", {}).get("requests", {}).values():
            # An error since 1.37.
            del each["capacity"]
        if shares and each["allocationMode"] == "All":
            # Devices of which too little is left: 1.36 leaves them out of "all".
            each.update(allocationMode="ExactCount", count=1)
    constraints = devices.get("constraints", [])
    devices["constraints"] = [each for each in constraints if not _forgetful(each, devices["requests"])]


def _demands(request: Json) -> Iterator[Json]:
    yield from [request["exactly"]] if "exactly" in request else request["firstAvailable"]


def _forgetful(constraint: Json, requests: list[Json]) -> bool:
    """Whether 1.36 would forget values that a distinctAttribute has seen: it keeps one for each request."""
    if "distinctAttribute" not in constraint:
        return False
    named = {name.partition("/")[0] for name in constraint.get("requests", ())}
    covered = (request for request in requests if not named or request["name"] in named)
    return any(_most(asked) > 1 for request in covered for asked in _demands(request))


def _most(asked: Json) -> int:
    return 100 if asked["allocationMode"] == "All" else int(asked.get("count", 1))


def _differs(value: Any) -> bool:
    """Whether an expression in it is none for 1.36."""
    text = json.dumps(value)
    return any(json.dumps(expression) in text for expression in OF_ANY_TYPE)
