"""What a door shows of each device, and why: the one place that decides it.

A pure function of snapshot, rules, holds and door. Every device of the snapshot appears exactly once in the result:
offered (healthy or unhealthy) under one resource, or withheld, each time with its reason in one sentence. An offered
device that may not be given out is shown unhealthy and not left out: the kubelet would otherwise forget ids that
running pods hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from node.edits.fitness import unfit
from node.health.state import HealthState
from node.inventory.model import Device, DeviceKind, Snapshot
from node.inventory.retention import is_gone
from node.ledger import Hold
from node.names import explain_resource_name
from node.rules import Door, Rule, offered_id, rule_for
from node.values import Value, value


class Cause(StrEnum):
    """Why a device may not be given out, in one word: what can be counted where the sentence cannot."""

    NO_RULE = "no_rule"
    OTHER_DOOR = "other_door"
    """Its rule offers it through the other door, or a pod holds it through that one."""
    BAD_NAME = "bad_name"
    """The resource's name is none that Kubernetes takes."""
    RULE_CONFLICT = "rule_conflict"
    """Two rules with different options give one resource."""
    NOT_UNIFORM = "not_uniform"
    """The MIG strategy single, and devices of several kinds."""
    NODE_USE = "node_use"
    """The node itself needs it, or its virtual functions are offered in its place."""
    HEALTH = "health"
    GONE = "gone"
    """It is not there any more: destroyed on purpose (MIG instances, virtual functions), or fallen off the bus."""
    LINK_DOWN = "link_down"
    MIG_MODE = "mig_mode"
    """A GPU in MIG mode: its instances are what claims can be given."""
    UNFIT = "unfit"
    """Something that its containers would need is not there."""


_Why = tuple[str, Cause] | None
"""A sentence and its cause; None where there is nothing to say."""
_UNRULED = ("no rule selects it", Cause.NO_RULE)


@value
class OfferedDevice(Value):
    """A device as a resource shows it: id towards the kubelet, whether it may be given out, and why (not).

    ``cause`` is None for one that may be given out.
    """

    id: str
    device: Device
    healthy: bool
    reason: str = ""
    cause: Cause | None = None


@value
class ResourceOffer(Value):
    """A resource, the rule it comes from, and its devices in the snapshot's order."""

    resource: str
    rule: Rule
    devices: tuple[OfferedDevice, ...]


@value
class Withheld(Value):
    """A device that this door does not show, and why."""

    device: Device
    reason: str
    cause: Cause = Cause.NO_RULE


@value
class Offer(Value):
    """Resources sorted by name, and what is not shown."""

    resources: tuple[ResourceOffer, ...] = ()
    withheld: tuple[Withheld, ...] = ()

    def resource(self, name: str) -> ResourceOffer | None:
        """The resource of that name."""
        return next((resource for resource in self.resources if resource.resource == name), None)


def offer(snapshot: Snapshot, rules: Iterable[Rule], holds: Mapping[str, Hold], door: Door) -> Offer:
    """Decide for every device what ``door`` shows of it; ``holds`` by device name."""
    rules = tuple(rules)
    groups: dict[str, tuple[Rule, list[Device]]] = {}
    withheld: list[Withheld] = []
    for device in snapshot.devices:
        rule = rule_for(device, rules)
        why = _not_shown(device, rule, door, groups)
        if rule is not None and why is None and device.name not in holds:
            why = _kept_for_node(device, rule)
        if rule is None or why is not None:
            withheld.append(Withheld(device, *(why or _UNRULED)))
        else:
            groups.setdefault(rule.resource_of(device), (rule, []))[1].append(device)
    resources = []
    for name, (rule, devices) in sorted(groups.items()):
        fault = _not_uniform(devices, snapshot) if rule.uniform else ""
        if fault:
            reason = f"resource {name}: {fault}"
            withheld.extend(Withheld(device, reason, Cause.NOT_UNIFORM) for device in devices)
        else:
            shown = tuple(_offered(device, rule, snapshot, holds, door) for device in devices)
            resources.append(ResourceOffer(name, rule, shown))
    return Offer(tuple(resources), tuple(sorted(withheld, key=lambda item: item.device.name)))


def _not_shown(device: Device, rule: Rule | None, door: Door, groups: Mapping[str, tuple[Rule, list[Device]]]) -> _Why:
    if rule is None:
        return _UNRULED
    if rule.door is not door:
        return f"its rule offers it through the {rule.door} door", Cause.OTHER_DOOR
    if door is Door.DRA and device.kind is DeviceKind.GPU and device.attribute("migEnabled") is True:
        # The plugin door offers it where a rule says so, as NVIDIA's plugin does; a scheduler that sees the whole
        # beside its parts would give both away.
        return "it is in MIG mode, so that only its MIG devices can be given to claims", Cause.MIG_MODE
    name = rule.resource_of(device)
    fault = explain_resource_name(name)
    if fault:
        return fault, Cause.BAD_NAME
    if name in groups and not groups[name][0].same_terms(rule):
        reason = f"two rules with different options give the resource {name!r}; the first one has it"
        return reason, Cause.RULE_CONFLICT
    return None


def _not_uniform(devices: list[Device], snapshot: Snapshot) -> str:
    devices = [device for device in devices if not is_gone(device)]
    shapes = {(device.kind, device.text("profile")) for device in devices}
    if len(shapes) > 1:
        kinds = ", ".join(sorted(profile or kind.value for kind, profile in shapes))
        asking = "the MIG strategy single" if any(kind is DeviceKind.MIG for kind, _ in shapes) else "uniform: true"
        return f"{asking} needs devices of one kind, found {kinds}"
    parents = {device.parent for device in devices}
    for gpu in snapshot.devices:
        if is_gone(gpu) or gpu.kind is not DeviceKind.GPU:
            continue
        if bool(gpu.attribute("migEnabled")) and gpu.name not in parents:
            return f"the MIG strategy single needs at least one instance on every GPU in MIG mode, {gpu.name} has none"
    return ""


def _offered(device: Device, rule: Rule, snapshot: Snapshot, holds: Mapping[str, Hold], door: Door) -> OfferedDevice:
    why = _not_given(device, rule, snapshot, holds.get(device.name), door)
    if why is not None:
        return OfferedDevice(offered_id(rule, device), device, False, *why)
    note = device.health.reason if device.health.state is HealthState.DEGRADED else ""
    return OfferedDevice(offered_id(rule, device), device, healthy=True, reason=note)


def _not_given(device: Device, rule: Rule, snapshot: Snapshot, hold: Hold | None, door: Door) -> _Why:
    if not device.health.usable:
        gone = is_gone(device) and device.health.state is HealthState.UNHEALTHY
        return device.health.reason or device.health.state.value, Cause.GONE if gone else Cause.HEALTH
    if hold is not None and hold.door is not door:
        return f"held through the {hold.door} door by {hold.holder}", Cause.OTHER_DOOR
    why = _kept_for_node(device, rule) or _link_down(device, rule)
    if why is not None:
        return why
    missing = unfit(offered_id(rule, device), device, rule.edits, snapshot.host)
    return (missing, Cause.UNFIT) if missing else None


def _kept_for_node(device: Device, rule: Rule) -> _Why:
    """Why a device that the rule selects stays with the node; one that a pod holds is shown unhealthy all the same."""
    if not (device.host_use or device.attribute("sriovVfs")) or rule.names(device):
        return None
    if device.host_use:
        fix = "; name it in a rule to offer it all the same" if rule.by_name else ""
        return f"the node itself uses it: {device.host_use}{fix}", Cause.NODE_USE
    number = device.attribute("sriovVfs")
    functions = "virtual function is" if number == 1 else "virtual functions are"
    return f"its {number} {functions} offered in its place", Cause.NODE_USE


def _link_down(device: Device, rule: Rule) -> _Why:
    # What a pod does with the link of a NIC that it has been given is no fault.
    if not rule.link_health or device.attribute("inPod") is True:
        return None
    return ("its link is down", Cause.LINK_DOWN) if device.attribute("linkUp") is False else None
