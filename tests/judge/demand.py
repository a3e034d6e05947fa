"""Generates what is asked for: device classes and claims."""

from __future__ import annotations

from tests.judge.chance import Chance, Json
from tests.judge.supply import DRIVERS, TAINT_KEYS, Wanted

MODEST_CLASSES = ("any", "any", "any", "gpu", "configured")
CLASSES = ("any", "any", "any", "any", "gpu", "gpu", "gpu", "nic", "big", "configured", "configured")
ATTRIBUTES = (
    "gpu.example.com/model",
    "gpu.example.com/numa",
    "gpu.example.com/numa",
    "gpu.example.com/model",
    "gpu.example.com/numa",
    "resource.kubernetes.io/pcieRoot",
    "gpu.example.com/size",
    "gpu.example.com/fw",
    "nic.example.com/numa",
    "gpu.example.com/tags",
    "gpu.example.com/healthy",
)
SELECTORS = (
    'device.driver == "gpu.example.com"',
    'device.attributes["gpu.example.com"].?size.orValue(0) >= 2',
    'device.attributes["gpu.example.com"].?model.orValue("") == "a"',
    'device.attributes[device.driver].?model.orValue("") == "b"',
    'has(device.attributes["gpu.example.com"].healthy) && device.attributes["gpu.example.com"].healthy',
    'device.attributes["resource.kubernetes.io"].?pcieRoot.orValue("root0") == "root0"',
    'device.capacity[device.driver].?mem.orValue(quantity("0")).compareTo(quantity("3")) >= 0',
    "device.allowMultipleAllocations",
    'cel.bind(a, device.attributes["gpu.example.com"], !has(a.fw) || a.fw.isLessThan(semver("2.0.0")))',
    '"gpu.example.com" in device.attributes',
    "true",
)
FAILING = (
    'device.attributes["gpu.example.com"].model == "a"',
    'device.attributes["gpu.example.com"].numa > 0',
    'device.attributes["gpu.example.com"].nosuch == 1',
    'device.attributes["gpu.example.com"].healthy',
    'device.attributes["gpu.example.com"].model',
    "device.driver ==",
    "1 + 1",
    "lists.range(2000).all(x, lists.range(2000).all(y, x >= 0))",
)


def classes(chance: Chance) -> list[Json]:
    """The classes that claims name; now and then one of them is missing, or empty, or fails."""
    made = [
        _class("any"),
        _class("gpu", f'device.driver == "{DRIVERS[0]}"'),
        _class("nic", f'device.driver == "{DRIVERS[1]}"'),
        _class("big", f'device.driver == "{DRIVERS[0]}"', 'device.attributes["gpu.example.com"].?size.orValue(0) >= 2'),
        _class("configured"),
    ]
    made[-1]["spec"]["config"] = [_opaque(chance) for _ in range(chance.number(1, 2))]
    if chance.oddly(0.05):
        made[0] = _class("any", chance.one((*FAILING, *SELECTORS)))
    if chance.oddly(0.02):
        made.pop(chance.number(0, 4))
    return made


def claims(chance: Chance, wanted: Wanted) -> list[Json]:
    """One to three claims of up to three requests each, where many are wanted of up to six."""
    return [_claim(chance, wanted, f"claim-{number}") for number in range(chance.one((1, 1, 1, 2, 3)))]


def _class(name: str, *selectors: str) -> Json:
    spec: Json = {"selectors": [_selector(each) for each in selectors]} if selectors else {}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def _selector(expression: str) -> Json:
    return {"cel": {"expression": expression}}


def _claim(chance: Chance, wanted: Wanted, name: str) -> Json:
    most = chance.one((3, 4, 5, 6) if wanted.many else (1, 1, 1, 2, 2, 3))
    requests = [_request(chance, wanted, f"r{number}") for number in range(most)]
    devices: Json = {"requests": requests}
    names = [name for request in requests for name in _names(request)]
    if chance.maybe(0.35):
        devices["constraints"] = [_constraint(chance, names) for _ in range(chance.one((1, 1, 2)))]
    if chance.maybe(0.3):
        devices["config"] = [_config(chance, names) for _ in range(chance.number(1, 3))]
    metadata = {"name": name, "namespace": "default", "uid": f"00000000-0000-4000-8000-00000000000{name[-1]}"}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata}
    if chance.oddly(0.01):
        devices = {}
    return {**claim, "spec": {"devices": devices}}


def _names(request: Json) -> list[str]:
    return [request["name"], *(f"{request['name']}/{sub['name']}" for sub in request.get("firstAvailable", ()))]


def _request(chance: Chance, wanted: Wanted, name: str) -> Json:
    if chance.maybe(0.25):
        subs = [{"name": f"s{number}", **_demand(chance, wanted, sub=True)} for number in range(chance.number(1, 3))]
        return {"name": name, "firstAvailable": subs}
    return {"name": name, "exactly": _demand(chance, wanted, sub=False)}


def _demand(chance: Chance, wanted: Wanted, *, sub: bool) -> Json:
    demand: Json = {
        "deviceClassName": chance.one(MODEST_CLASSES if wanted.modest else CLASSES),
        "allocationMode": "ExactCount",
    }
    if chance.maybe(0.12):
        demand["allocationMode"] = "All"
    else:
        demand["count"] = chance.one((1, 1, 1, 2) if wanted.modest else (1, 1, 2, 2, 3))
    if chance.maybe(0.05 if wanted.modest else 0.25):
        demand["selectors"] = [_selector(chance.one(SELECTORS)) for _ in range(chance.one((1, 1, 2)))]
    if chance.oddly(0.02):
        demand.setdefault("selectors", []).append(chance.one((_selector(chance.one(FAILING)), {})))
    if wanted.shares and chance.maybe(0.5):
        names = chance.one((("mem",), ("mem",), ("cores",), ("mem", "cores")))
        if wanted.spread and chance.maybe(0.4):
            names = tuple(f"{chance.one(DRIVERS)}/{name}" for name in names)
        demand["capacity"] = {"requests": {name: _amount(chance) for name in names}}
    if wanted.taints and chance.maybe(0.6):
        demand["tolerations"] = [_toleration(chance) for _ in range(chance.number(1, 2))]
    if not sub and chance.maybe(0.1):
        demand["adminAccess"] = not chance.oddly(0.1)
    _broken(chance, demand)
    return demand


def _broken(chance: Chance, demand: Json) -> None:
    """What the API server would not let in."""
    if not chance.oddly(0.02):
        return
    match chance.number(0, 5):
        case 0:
            demand["count"] = chance.one((0, 33, 20, 2**63 - 1))
        case 1:
            demand["allocationMode"] = chance.one(("Foo", ""))
        case 2:
            demand["deviceClassName"] = chance.one(("", "nosuch"))
        case 3:
            demand.pop("count", None)
        case 4:
            demand["capacity"] = chance.one(
                ({}, {"requests": {}}, {"requests": {"nosuch": "1"}}, {"requests": {"mem": "-1"}})
            )
        case _:
            demand["selectors"] = [{"cel": {"expression": ""}}]


def _amount(chance: Chance) -> str:
    return chance.one(("1", "1", "1", "2", "2", "3", "1Gi", "500m", "0"))


def _toleration(chance: Chance) -> Json:
    toleration: Json = {}
    if chance.maybe(0.9):
        toleration["key"] = chance.one(TAINT_KEYS)
    if chance.maybe(0.8):
        toleration["operator"] = chance.one(("Exists", "Exists", "Equal")) if not chance.oddly(0.04) else "Foo"
    if chance.maybe(0.7) if toleration.get("operator") != "Exists" else chance.oddly(0.1):
        toleration["value"] = chance.one(("x", "y"))
    if chance.maybe(0.4):
        toleration["effect"] = chance.one(("NoSchedule", "NoExecute"))
    return toleration


def _constraint(chance: Chance, names: list[str]) -> Json:
    constraint: Json = {chance.one(("matchAttribute", "matchAttribute", "distinctAttribute")): chance.one(ATTRIBUTES)}
    if chance.maybe(0.55):
        constraint["requests"] = chance.some(names)
    if chance.oddly(0.02):
        constraint.pop("matchAttribute", None)
    return constraint


def _config(chance: Chance, names: list[str]) -> Json:
    config = _opaque(chance)
    if chance.maybe(0.6):
        config["requests"] = chance.some(names)
    return config


def _opaque(chance: Chance) -> Json:
    return {"opaque": {"driver": chance.one(DRIVERS), "parameters": {"mode": chance.one(("a", "b")), "n": 1.5}}}
