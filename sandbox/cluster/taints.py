"""Taints that administrators give devices, and which pods a taint NoExecute drives away. Pure.

Toleration seconds are not waited for: a toleration with a time counts as none once its time is over, by ``now``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from sandbox.cluster.scheduling import allocation

Json = dict[str, Any]
Object = Mapping[str, Any]


def with_rules(slices: Iterable[Object], rules: Iterable[Object]) -> list[Json]:
    """The slices as a scheduler sees them: with the taints of DeviceTaintRules at the devices that these select."""
    return [_tainted(each, [rule["spec"] for rule in rules]) for each in slices]


def evicted(claims: Iterable[Object], slices: Iterable[Object], now: float) -> dict[str, str]:
    """Pod UID -> why it has to go: device and taint. ``now``: seconds since the epoch."""
    taints = _taints(slices)
    found: dict[str, str] = {}
    for claim in claims:
        for result in allocation(claim).get("devices", {}).get("results") or ():
            key = (result["driver"], result["pool"], result["device"])
            for taint in taints.get(key, ()):
                if not any(_tolerates(each, taint, now) for each in result.get("tolerations") or ()):
                    reason = f"device {'/'.join(key)} of claim {claim['metadata']['name']} has the taint {shown(taint)}"
                    for pod in (claim.get("status") or {}).get("reservedFor") or ():
                        found.setdefault(pod["uid"], reason)
    return found


def _tainted(obj: Object, rules: Sequence[Object]) -> Json:
    spec = obj["spec"]
    devices = []
    for device in spec.get("devices") or ():
        added = [rule["taint"] for rule in rules if _selected(rule, spec, device)]
        devices.append({**device, "taints": [*(device.get("taints") or ()), *added]} if added else device)
    return {**obj, "spec": {**spec, "devices": devices} if devices else spec}


def _selected(rule: Object, spec: Object, device: Object) -> bool:
    """Whether a rule means the device: all that it names has to agree, and without a selector it means none."""
    selector = rule.get("deviceSelector")
    found = {"driver": spec["driver"], "pool": spec["pool"]["name"], "device": device["name"]}
    return selector is not None and all(found[name] == wanted for name, wanted in selector.items() if wanted)


def _taints(slices: Iterable[Object]) -> dict[tuple[str, str, str], list[Object]]:
    return {
        (spec["driver"], spec["pool"]["name"], device["name"]): effective
        for spec in _newest(slices)
        for device in spec.get("devices") or ()
        if (effective := [each for each in device.get("taints") or () if each["effect"] == "NoExecute"])
    }


def _newest(slices: Iterable[Object]) -> Iterator[Object]:
    """Specs of each pool's highest generation."""
    specs = [each["spec"] for each in slices]
    newest: dict[tuple[str, str], int] = {}
    for spec in specs:
        pool = (spec["driver"], spec["pool"]["name"])
        newest[pool] = max(newest.get(pool, 0), spec["pool"].get("generation", 0))
    yield from (
        spec for spec in specs if spec["pool"].get("generation", 0) == newest[spec["driver"], spec["pool"]["name"]]
    )


def _tolerates(toleration: Object, taint: Object, now: float) -> bool:
    # For the scheduler a toleration without an effect is one of all; the controller that evicts wants it written out.
    if toleration.get("effect") != taint["effect"]:
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    if toleration.get("operator", "Equal") != "Exists" and toleration.get("value", "") != taint.get("value", ""):
        return False
    seconds = toleration.get("tolerationSeconds")
    return seconds is None or now < _seconds(taint.get("timeAdded")) + seconds


def _seconds(time: str | None) -> float:
    return datetime.fromisoformat(time).timestamp() if time else 0.0


def shown(taint: Object) -> str:
    """``key=value:effect``, without a value ``key:effect``, as kubectl writes it."""
    key = f"{taint['key']}={taint['value']}" if taint.get("value") else taint["key"]
    return f"{key}:{taint['effect']}"
