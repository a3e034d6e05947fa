"""What is the same for every node: slices, classes, allocated devices and their holders, and the scheduler's features.

Read once per answer. Slices carry the taints of DeviceTaintRules already, as the scheduler adds them in memory: to
every device that a rule's selector names. All fields that a selector gives must be equal; an empty selector names every
device, no selector none (KEP-5055, resource.k8s.io/v1). Slices without such a device stay the same objects, so that
caches keyed by them still hold.

The features follow Kubernetes 1.36 and 1.37 by their default gates. An older scheduler leaves out devices and refuses
requests that need a feature that it lacks; the table lists only gates that the allocator asks for. Gates that a cluster
sets by hand cannot be seen from outside, so a note says what was assumed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kube.bodies import JsonObject, object_at, text_at
from scheduling.allocator.allocated import AllocatedState
from scheduling.allocator.pools import Features, SliceIndex
from scheduling.allocator.slices import DeviceID
from scheduling.cel.environment import CelFeatures
from scheduling.explain.obstacles import ClaimHolder
from scheduling.explain.state import State, name_of, namespace_of, objects_at

SINCE = {
    "admin_access": (34, "DRAAdminAccess"),
    "prioritized_list": (34, "DRAPrioritizedList"),
    "partitionable_devices": (36, "DRAPartitionableDevices"),
    "device_taints": (36, "DRADeviceTaints"),
    "binding_conditions": (36, "DRADeviceBindingConditions"),
    "consumable_capacity": (36, "DRAConsumableCapacity"),
    "fractional_capacity_range": (37, "DRAFractionalCapacityRange"),
}
"""Field of ``Features`` -> the minor version of Kubernetes 1 since which the gate is on by default, and its name."""

FOLLOWED = (36, 37)
"""The minor versions whose rules are followed; where the two differ, the later."""

_VERSION = re.compile(r"v?1\.(\d+)")


def minor_of(version: str) -> int | None:
    """The minor version in ``v1.36.0+k3s1``, None if there is none."""
    found = _VERSION.match(version)
    return int(found.group(1)) if found else None


def features_of(version: str) -> Features:
    """The features of a server's version; without one those of the latest version that is followed."""
    minor = minor_of(version)
    if minor is None:
        return Features()
    # A gate of an unknown future is on there as it is today.
    off = {name: False for name, (since, _) in SINCE.items() if minor < since}
    return replace(Features(), **off)


def note_of(version: str) -> str:
    """One line about what a version other than those that are followed means for the answer, else empty."""
    minor = minor_of(version)
    if minor is None or FOLLOWED[0] <= minor <= FOLLOWED[-1]:
        return ""
    if minor > FOLLOWED[-1]:
        return f"the cluster is {version}; the answer follows the scheduler of Kubernetes 1.{FOLLOWED[-1]}"
    off = [gate for since, gate in SINCE.values() if minor < since <= FOLLOWED[0]]
    followed = f"the answer follows the rules of 1.{FOLLOWED[-1]}, with these gates off as they are by default there"
    return f"the cluster is {version}; {followed}: {', '.join(off)}"


TaintOf = tuple[DeviceID, str, str, str]
"""A device, then key, value and effect of a taint on it."""


@dataclass(frozen=True, slots=True)
class TaintedSlices:
    """Slices with the rules' taints, and which rule each of these is from."""

    slices: tuple[JsonObject, ...]
    rules: Mapping[TaintOf, str]


def apply(rules: Sequence[JsonObject], slices: Sequence[JsonObject]) -> TaintedSlices:
    """The slices as the scheduler sees them under these rules."""
    found: dict[TaintOf, str] = {}
    usable = [rule for rule in rules if isinstance(object_at(rule, "spec").get("deviceSelector"), dict)]
    if not usable:
        return TaintedSlices(tuple(slices), found)
    return TaintedSlices(tuple(_tainted(body, usable, found) for body in slices), found)


def _tainted(body: JsonObject, rules: Sequence[JsonObject], found: dict[TaintOf, str]) -> JsonObject:
    driver, pool = text_at(body, "spec", "driver"), text_at(body, "spec", "pool", "name")
    fitting = [rule for rule in rules if _names(rule, "driver", driver) and _names(rule, "pool", pool)]
    if not fitting:
        return body
    devices: list[JsonObject] = []
    changed = False
    for device in objects_at(body, "spec", "devices"):
        name = text_at(device, "name")
        own = [rule for rule in fitting if _names(rule, "device", name)]
        if own:
            changed = True
            device = {**device, "taints": [*objects_at(device, "taints"), *_taints(own)]}  # noqa: PLW2901
            for rule in own:
                taint = object_at(rule, "spec", "taint")
                key, value, effect = (text_at(taint, part) for part in ("key", "value", "effect"))
                found.setdefault((DeviceID(driver, pool, name), key, value, effect), text_at(rule, "metadata", "name"))
        devices.append(device)
    return {**body, "spec": {**object_at(body, "spec"), "devices": list(devices)}} if changed else body


def _names(rule: JsonObject, part: str, value: str) -> bool:
    wanted = object_at(rule, "spec", "deviceSelector").get(part)
    return wanted is None or wanted == value


def _taints(rules: Sequence[JsonObject]) -> list[JsonObject]:
    return [object_at(rule, "spec", "taint") for rule in rules]


@dataclass(frozen=True, slots=True)
class DeviceHolding:
    """One entry of a claim's allocation; ``consumed``: capacity that a share takes, as written."""

    holder: ClaimHolder
    shared: bool
    consumed: Mapping[str, object]


def holdings(claims: Iterable[JsonObject]) -> dict[DeviceID, tuple[DeviceHolding, ...]]:
    """Every device in use with its holders. Admin access holds nothing."""
    found: dict[DeviceID, list[DeviceHolding]] = defaultdict(list)
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
            found[device].append(DeviceHolding(holder, bool(text_at(result, "shareID")), consumed))
    return {device: tuple(each) for device, each in found.items()}


def holder_of(claim: JsonObject) -> ClaimHolder:
    """The claim as a holder."""
    namespace = namespace_of(claim)
    users = objects_at(claim, "status", "reservedFor")
    pods = tuple(f"{namespace}/{text_at(user, 'name')}" for user in users if text_at(user, "resource") == "pods")
    return ClaimHolder(f"{namespace}/{name_of(claim)}", pods)


Patience = Callable[[bool], Callable[[], bool]]
"""Begins a question to the allocator, True for "what if"; what it gives says whether to give that question up."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """``rules``: which DeviceTaintRule set a taint; ``holdings``: who has a device in use."""

    index: SliceIndex
    classes: Mapping[str, JsonObject]
    allocated: AllocatedState
    features: Features = field(default_factory=Features)
    holdings: Mapping[DeviceID, tuple[DeviceHolding, ...]] = field(default_factory=dict)
    rules: Mapping[TaintOf, str] = field(default_factory=dict)
    patience: Patience | None = None

    @property
    def cel_features(self) -> CelFeatures:
        """The features as selectors have them; they were stored when the API server admitted them."""
        return CelFeatures(self.features.consumable_capacity, self.features.list_attributes, stored=True)


def cluster_of(state: State, patience: Patience | None = None) -> Cluster:
    """The cluster of a state. Raises ``FatalError`` where an object is not of its shape."""
    features = features_of(state.server_version)
    tainted = apply(state.taint_rules, state.slices)
    allocated = _allocated(state.claims)
    return Cluster(
        index=SliceIndex(tainted.slices),
        classes={name_of(body): body for body in state.classes},
        allocated=AllocatedState.of_claims(allocated),
        features=features,
        holdings=holdings(allocated),
        rules=tainted.rules,
        patience=patience,
    )


def _allocated(claims: Sequence[JsonObject]) -> list[JsonObject]:
    return [claim for claim in claims if objects_at(claim, "status", "allocation", "devices", "results")]
