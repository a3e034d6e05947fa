"""Offers GPUs to claims in parts: the partitions that can be made of them, as devices that consume counters.

Pure. For every GPU under a rule with ``partitions`` there is one counter set: a counter for each dimension of capacity,
and ``memory-slice-N`` of 1 each. The whole GPU consumes all of it, and every partition (a MIG profile at one placement)
its part, so that a scheduler allocates exactly what can exist at the same time. A partition is one device under one
name whether it exists or not, and its description does not change when it is made for a claim and removed afterwards:
allocating partitions costs no write at the API server.

ostler never removes an instance here that somebody else made. If a rule offers it through this door, it is the device
of its shape and consumes nothing; instead, the set has fewer counters. So whoever uses it, nothing is made in its
place, and the GPU cannot be allocated whole. Turning MIG mode on or off needs a reset on Ampere, which must not happen
to a GPU that pods use, and rules can forbid it. Such a GPU offers only what its present mode allows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from functools import lru_cache
from operator import attrgetter

from node.edits.options import CdiMode, by_cdi
from node.eligibility import NO_PARTS, OfferedParts
from node.health.state import Health, HealthState
from node.inventory.model import (
    Device,
    DeviceKind,
    NodeRole,
    PartitionShape,
    Snapshot,
    is_gone,
    sorted_attributes,
)
from node.partitions import partition_name
from node.rules import PROFILE, Door, Rule, fills_gpu_instance, rule_for
from node.values import Value, remembers, replace, value

_ASKS_FOR_RESET = ("Ampere",)
"""Architectures whose MIG mode changes only with a reset."""
_MOST_COUNTERS = 32
"""Counters of one set (resource.k8s.io/v1)."""
_SHARED = frozenset(
    ("driverVersion", "cudaDriverVersion", "productName", "brand", "architecture", "cudaComputeCapability")
    + ("addressingMode", "iommuGroup")
    + tuple(f"resource.kubernetes.io/{name}" for name in ("pciBusID", "pcieRoot", "numaNode"))
)
"""Attributes that a MIG device takes from its GPU."""


@value
class CounterSet(Value):
    """Counters by name, sorted; also the part of the set that one device consumes. ``memory`` is in bytes."""

    name: str
    counters: tuple[tuple[str, int], ...]

    def without(self, others: Iterable[CounterSet]) -> CounterSet:
        """The rest of the set after others have consumed their counters; never below zero."""
        taken: dict[str, int] = {}
        for other in others:
            for name, amount in other.counters:
                taken[name] = taken.get(name, 0) + amount
        left = ((name, max(amount - taken.get(name, 0), 0)) for name, amount in self.counters)
        return CounterSet(self.name, tuple(left))


@value
class GpuPart(Value):
    """A partition of ``gpu``, ``described`` for claims. ``made``: it exists. ``ours``: ostler made it, or would make
    it.
    """

    gpu: Device
    shape: PartitionShape
    described: Device
    made: bool = False
    ours: bool = True


UnmadePart = tuple[str, GpuPart, CounterSet]
"""Name of a partition that can be made, the partition, and what it consumes."""


@value
class Partitioned(Value):
    """A snapshot whose GPUs are in parts if rules say so.

    By device name: ``parts``, and ``uses``, what each device consumes. ``order``: a partition's position among those of
    its GPU. ``sets``: in the order of the GPUs. ``offered``: what the offer needs to know.
    """

    snapshot: Snapshot
    parts: Mapping[str, GpuPart] = field(default_factory=dict)
    uses: Mapping[str, CounterSet] = field(default_factory=dict)
    order: Mapping[str, int] = field(default_factory=dict)
    sets: tuple[CounterSet, ...] = ()
    offered: OfferedParts = NO_PARTS


def partitioned(snapshot: Snapshot, rules: Iterable[Rule], made: Collection[str] = ()) -> Partitioned:
    """The snapshot with the partitions of its GPUs. ``made``: names of those that exist or are made for claims."""
    rules = tuple(rules)
    if not any(rule.partitions and rule.door.has(Door.DRA) for rule in rules):
        return Partitioned(snapshot)
    gathered = _Gathered(snapshot, rules, frozenset(made))
    for device in snapshot.devices:
        if device.kind is DeviceKind.GPU and device.partitions and not is_gone(device):
            rule = rule_for(device, rules)
            if rule is not None and rule.partitions and rule.door.has(Door.DRA):
                gathered.add(device, rule)
    return gathered.result()


class _Gathered:
    """Collects the parts of one GPU after the other."""

    def __init__(self, snapshot: Snapshot, rules: tuple[Rule, ...], made: frozenset[str]) -> None:
        self._snapshot = snapshot
        self._rules = rules
        self._made = made
        self._instances: dict[str, list[Device]] = {}
        for device in snapshot.devices:
            if device.kind is DeviceKind.MIG and device.parent is not None:
                self._instances.setdefault(device.parent, []).append(device)
        self._devices = {device.name: device for device in snapshot.devices}
        self._parts: dict[str, GpuPart] = {}
        self._uses: dict[str, CounterSet] = {}
        self._order: dict[str, int] = {}
        self._sets: list[CounterSet] = []
        self._part_rules: dict[str, Rule] = {}
        self._wholes: set[str] = set()
        self._kept: dict[str, str] = {}
        self._notes: dict[str, str] = {}

    def result(self) -> Partitioned:
        devices = tuple(self._devices[name] for name in sorted(self._devices))
        return Partitioned(
            replace(self._snapshot, devices=devices),
            self._parts,
            self._uses,
            self._order,
            tuple(self._sets),
            OfferedParts(
                self._part_rules,
                {name: part.gpu for name, part in self._parts.items() if not part.made},
                frozenset(self._wholes),
                self._kept,
                self._notes,
            ),
        )

    def add(self, gpu: Device, rule: Rule) -> None:
        """Add a GPU that the rule offers in parts."""
        in_mode = gpu.attribute("migEnabled") is True
        fixed = _fixed_mode(gpu, rule)
        instances = [each for each in self._instances.get(gpu.name, ()) if not is_gone(each)]
        total, parts = _divided_before(gpu)
        why = _whole_only(gpu, rule, instances, total)
        if not why and fixed and not in_mode:
            why = f"its partitions are not offered: it is not in MIG mode, and {fixed} (nvidia-smi -mig 1)"
        if why:
            self._notes[gpu.name] = why
            return
        for gone in self._instances.get(gpu.name, ()):
            if is_gone(gone):
                # The partition can be made again, so it is shown as one that does not exist.
                self._devices.pop(gone.name, None)
        own = _part_rule(rule)
        foreign = self._add_instances(gpu, own, instances, parts)
        for number, (name, part, uses) in enumerate(parts):
            self._order[name] = number
            if name not in self._parts:
                self._enter(name, part.described, part, own)
                self._uses[name] = uses
        self._sets.append(total.without(foreign.values()))
        if foreign:
            names = ", ".join(sorted(foreign))
            self._kept[gpu.name] = (
                f"it has MIG instances that were not made for claims ({names}), so only its parts can be allocated"
            )
        elif in_mode and fixed:
            self._kept[gpu.name] = (
                f"it is in MIG mode, so that only its MIG devices can be allocated to claims, and {fixed}"
            )
        else:
            self._wholes.add(gpu.name)
        self._uses[gpu.name] = total

    def _add_instances(
        self, gpu: Device, part_rule: Rule, instances: Iterable[Device], unmade: Iterable[UnmadePart]
    ) -> dict[str, CounterSet]:
        """Add the existing instances; returns what those consume that were not made for claims, once for each place.

        Several compute instances of one GPU instance have one place.
        """
        foreign: dict[tuple[int, int], tuple[str, CounterSet]] = {}
        parts = {name: part for name, part, _ in unmade}
        for instance in instances:
            shape = shape_of(instance, gpu)
            name = partition_name(gpu.name, shape) if shape is not None else ""
            if shape is not None and name in self._made:
                self._enter(name, instance, replace(parts[name], made=True), part_rule)
                self._uses[name] = consumption(gpu, shape)
                continue
            taken = shape or _placed(instance)
            assert taken is not None, "a GPU with an instance whose place is unknown is not offered in parts"
            foreign.setdefault((taken.start, taken.size), (instance.name, consumption(gpu, taken)))
            own = rule_for(instance, self._rules)
            if shape is not None and fills_gpu_instance(instance) and (own is None or own.door.has(Door.DRA)):
                part = GpuPart(gpu, shape, replace(instance, name=name), made=True, ours=False)
                self._enter(name, instance, part, part_rule if own is None else _given_by_cdi(own))
        return dict(foreign.values())

    def _enter(self, name: str, device: Device, part: GpuPart, rule: Rule) -> None:
        """Offer a device as this partition; an existing instance takes the name of its shape."""
        self._devices.pop(device.name, None)
        self._devices[name] = device if device.name == name else replace(device, name=name)
        self._parts[name] = part
        self._part_rules[name] = rule


def _whole_only(gpu: Device, rule: Rule, instances: Iterable[Device], total: CounterSet) -> str:
    """Why no partitions of this GPU are offered in any mode, empty if nothing prevents it."""
    if rule.edits.cdi_mode is CdiMode.DELEGATE:
        return (
            "its partitions are not offered: with cdiMode delegate, specs of others describe the devices, "
            "and not those made for claims"
        )
    unknown = [each.name for each in instances if shape_of(each, gpu) is None and _placed(each) is None]
    if unknown:
        return f"its partitions are not offered: the placement of its MIG instances {', '.join(unknown)} is unknown"
    if len(total.counters) > _MOST_COUNTERS:
        return f"its partitions are not offered: it has more than {_MOST_COUNTERS} memory slices and kinds of capacity"
    return ""


def _fixed_mode(gpu: Device, rule: Rule) -> str:
    """Why ostler does not change the GPU's MIG mode, empty if it may."""
    if not rule.changes_mode:
        return "its rule leaves the mode alone"
    return "changing the mode needs a GPU reset" if gpu.text("architecture") in _ASKS_FOR_RESET else ""


@remembers
def _part_rule(rule: Rule) -> Rule:
    """The rule for the partitions of a rule's GPUs: a resource of their own, so that nobody takes them for whole GPUs.

    They are not shared: a partition is made for one claim, and removed with it.
    """
    domain = rule.resource.partition("/")[0]
    return _given_by_cdi(replace(rule, resource=f"{domain}/mig-{PROFILE}", uniform=False, sharing=None))


def _given_by_cdi(rule: Rule) -> Rule:
    return replace(rule, edits=by_cdi(rule.edits))


def shape_of(instance: Device, gpu: Device) -> PartitionShape | None:
    """The shape of an existing MIG device, None if none of its GPU's shapes matches."""
    start, size = instance.attribute("placementStart"), instance.attribute("placementSize")
    number, profile = instance.attribute("gpuInstanceProfileID"), instance.text("profile")
    at_place = [shape for shape in gpu.partitions if (shape.start, shape.size) == (start, size)]
    by_id = [shape for shape in at_place if shape.profile_id == number]
    by_name = [shape for shape in at_place if shape.profile == profile]
    return next(iter((*by_id, *by_name)), None)


def _placed(instance: Device) -> PartitionShape | None:
    """The shape of an instance that has none of the known shapes; None if its place is unknown."""
    start, size = instance.attribute("placementStart"), instance.attribute("placementSize")
    if not isinstance(start, int) or not isinstance(size, int):
        return None
    return PartitionShape(instance.text("profile"), -1, start, size, instance.capacity)


def totals(gpu: Device) -> CounterSet:
    """The counter set of a GPU: the most that a partition has in each dimension, and every memory slice.

    A GPU reports only its memory; of everything else, the largest partition has all that partitions can have.
    """
    most: dict[str, int] = {capacity.name: capacity.value for capacity in gpu.capacity if capacity.name == "memory"}
    for shape in gpu.partitions:
        for capacity in shape.capacity:
            most[capacity.name] = max(capacity.value, most.get(capacity.name, 0))
    slices = max((shape.start + shape.size for shape in gpu.partitions), default=0)
    return _counter_set(gpu, most.items(), range(slices))


def consumption(gpu: Device, shape: PartitionShape) -> CounterSet:
    """The counters of its GPU that a partition takes."""
    capacity = ((each.name, each.value) for each in shape.capacity)
    return _counter_set(gpu, capacity, range(shape.start, shape.start + shape.size))


def _counter_set(gpu: Device, capacity: Iterable[tuple[str, int]], slices: Iterable[int]) -> CounterSet:
    # Zero amounts are left out: a counter exists only if some partition consumes it.
    counters = {_label(name): amount for name, amount in capacity if amount > 0}
    counters |= {f"memory-slice-{number}": 1 for number in slices}
    return CounterSet(gpu.name, tuple(sorted(counters.items())))


def _label(name: str) -> str:
    """The counter name of a capacity: ``copyEngines`` gives ``copy-engines``."""
    return re.sub("[A-Z]", lambda letter: f"-{letter[0].lower()}", name)


@lru_cache(maxsize=256)
def _divided(gpu: Device) -> tuple[CounterSet, tuple[UnmadePart, ...]]:
    return totals(gpu), unmade_parts(gpu)


def _divided_before(gpu: Device) -> tuple[CounterSet, tuple[UnmadePart, ...]]:
    """``_divided`` with a memory of one GPU for each name.

    It is called at every change of holds, nearly always for the same objects, and hashing a GPU with all its partitions
    takes as long as the rest of the work.
    """
    known = _LAST.get(gpu.name)
    if known is None or known[0] is not gpu:
        known = _LAST[gpu.name] = gpu, _divided(gpu)
    return known[1]


_LAST: dict[str, tuple[Device, tuple[CounterSet, tuple[UnmadePart, ...]]]] = {}
"""By name, the GPU of the last call; a node has few names."""


def unmade_parts(gpu: Device) -> tuple[UnmadePart, ...]:
    """Every partition that can be made of the GPU, by name, with its counters, in the order for schedulers to try.

    Small ones come first, so that a claim gets no more than it asks for; of one profile the last place comes first,
    because the large profiles are placed at the front.
    """
    named = {partition_name(gpu.name, shape): shape for shape in gpu.partitions}
    ordered = sorted(named.items(), key=lambda pair: _rank(pair[1]))
    return tuple(
        (name, GpuPart(gpu, shape, _described(name, gpu, shape)), consumption(gpu, shape)) for name, shape in ordered
    )


def _rank(shape: PartitionShape) -> tuple[int, int, bool, str, int]:
    amounts = {capacity.name: capacity.value for capacity in shape.capacity}
    return shape.size, amounts.get("multiprocessors", 0), "+" in shape.profile, shape.profile, -shape.start


def _described(name: str, gpu: Device, shape: PartitionShape) -> Device:
    """A partition before it is made."""
    slices = re.match(r"(\d+)g\.", shape.profile)
    count = int(slices[1]) if slices else None
    shared = [(each.name, each.value) for each in gpu.attributes if each.name in _SHARED]
    return Device(
        name=name,
        kind=DeviceKind.MIG,
        vendor=gpu.vendor,
        pci_address=gpu.pci_address,
        numa_node=gpu.numa_node,
        parent=gpu.name,
        health=_fanned_out(gpu),
        attributes=sorted_attributes(
            [
                *shared,
                ("type", "mig"),
                ("parentUUID", gpu.uuid),
                ("profile", shape.profile),
                ("gpuInstanceProfileID", shape.profile_id),
                ("placementStart", shape.start),
                ("placementSize", shape.size),
                ("gpuSlices", count),
                ("computeSlices", count),
            ]
        ),
        capacity=tuple(sorted(shape.capacity, key=attrgetter("name"))),
        nodes=gpu.nodes_of(NodeRole.DEVICE, NodeRole.CONTROL, NodeRole.AUXILIARY),
        location=gpu.location,
    )


def _fanned_out(gpu: Device) -> Health:
    """A partition that does not exist has its GPU's health."""
    if gpu.health.state is HealthState.HEALTHY:
        return Health()
    return replace(gpu.health, reason=f"its GPU {gpu.name}: {gpu.health.reason}")


def without_partitions(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules if the API server drops counters: only whole GPUs and existing instances are offered."""
    return _without_partitions(tuple(rules))


@remembers
def _without_partitions(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    return tuple(replace(rule, partitions=False) if rule.partitions else rule for rule in rules)
