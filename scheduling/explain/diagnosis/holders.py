"""Who holds which device: the claims whose allocation names it, and the pods that these claims are reserved for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kube.bodies import JsonObject, object_at, text_at
from scheduling.allocator.slices import DeviceID
from scheduling.explain.diagnosis.obstacles import Holder
from scheduling.explain.kinds import name_of, namespace_of, objects_at


@dataclass(frozen=True, slots=True)
class Holding:
    """One entry of a claim's allocation; ``consumed``: capacity that a share takes, as written."""

    holder: Holder
    shared: bool
    consumed: Mapping[str, object]


def holdings(claims: Iterable[JsonObject]) -> dict[DeviceID, tuple[Holding, ...]]:
    """Every device in use with its holders. Admin access holds nothing."""
    found: dict[DeviceID, list[Holding]] = defaultdict(list)
    for claim in claims:
        results = objects_at(claim, "status", "allocation", "devices", "results")
        if not results:
            continue
        holder = holder_of(claim)
        for result in results:
            if result.get("adminAccess") is True:
                continue
            device = DeviceID(*(text_at(result, part) for part in ("driver", "pool", "device")))
            consumed = object_at(result, "consumedCapacity")
            found[device].append(Holding(holder, bool(text_at(result, "shareID")), consumed))
    return {device: tuple(each) for device, each in found.items()}


def holder_of(claim: JsonObject) -> Holder:
    """The claim as a holder."""
    namespace = namespace_of(claim)
    users = objects_at(claim, "status", "reservedFor")
    pods = tuple(f"{namespace}/{text_at(user, 'name')}" for user in users if text_at(user, "resource") == "pods")
    return Holder(f"{namespace}/{name_of(claim)}", pods)
