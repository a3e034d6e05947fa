"""Decides the offer: what a door shows of each device, and why. Nothing else decides that.

A pure function of snapshot, rules, context and door. Every device of the snapshot appears exactly once in the result:
offered (healthy or unhealthy) under one resource, or withheld, each time with its reason in one sentence. An offered
device that may not be allocated is shown unhealthy and not left out: the kubelet would otherwise forget ids that
running pods hold.

Two doors and one device: what is held through one door is shown and not given at the other; what the plugin door holds
is never shown unhealthy there because of the other door; and what a rule moves from one door to the other is given by
the new one only when the old one's scheduler cannot give it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field

from node.edits.allocation import unfit
from node.health.signal import Trouble
from node.health.state import HealthState
from node.inventory.model import Device, DeviceKind, Snapshot, is_gone
from node.ledger.holds import Hold, HoldState
from node.ledger.offer_context import OfferContext, ReplicaState
from node.offer import Cause, Offer, OfferedDevice, ResourceOffer, Withheld
from node.rules import Door, Doors, Rule, explain_resource_name, offered_id, rule_for
from node.sharing import SharedDevice, left_of, replica_id, too_little_left
from node.values import Value, replace, value

_LINK = (Trouble.CARRIER.value, Trouble.PORT.value)
"""Causes of health that are about the link of a NIC."""
_Why = tuple[str, Cause] | None
"""A sentence and its cause; None if nothing prevents it."""
_UNRULED = ("no rule selects it", Cause.NO_RULE)
_SINGLE = "the MIG strategy single"
_FILL = "create instances (nvidia-smi mig -i INDEX -cgi PROFILE -C), or turn MIG mode off (nvidia-smi -i INDEX -mig 0)"
_MOST_NAMED = 4
"""GPUs that a reason names; the others are counted."""


@value
class OfferedParts(Value):
    """What an offer must know about GPUs that claims get in parts (``node.partitions``); all by device name.

    ``rules``: the rule of a partition, which no selector decides. ``unmade``: partitions that do not exist yet, with
    their GPU, by which it is judged whether containers can be given them. ``wholes``: GPUs that can be given whole
    although they may be in MIG mode, because it is turned off for that. ``kept``: why a GPU cannot be given whole.
    ``notes``: notes for people about an offered GPU.
    """

    rules: Mapping[str, Rule] = field(default_factory=dict)
    unmade: Mapping[str, Device] = field(default_factory=dict)
    wholes: frozenset[str] = frozenset()
    kept: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)


NO_PARTS = OfferedParts()


def offer(
    snapshot: Snapshot, rules: Iterable[Rule], context: OfferContext, door: Door, parts: OfferedParts = NO_PARTS
) -> Offer:
    """Decide for every device what ``door`` shows of it."""
    rules = tuple(rules)
    groups: dict[str, list[tuple[Device, Rule]]] = {}
    withheld: list[Withheld] = []
    for device in snapshot.devices:
        rule = parts.rules.get(device.name) or rule_for(device, rules)
        why = _unruled(device, snapshot, rules) if rule is None else _not_shown(device, rule, context, door, parts)
        name = "" if rule is None else rule.resource_of(device)
        if rule is not None and why is None:
            why = _bad_resource(rule, name, groups)
        if rule is not None and why is None and not _is_held(device, context):
            why = _kept_for_node(device, rule, snapshot)
        if rule is None or why is not None:
            withheld.append(Withheld(device, *(why or _UNRULED)))
        else:
            groups.setdefault(name, []).append((device, rule))
    resources = []
    for name, members in sorted(groups.items()):
        devices, rule = [device for device, _ in members], members[0][1]
        fault = _not_uniform(devices, snapshot) if rule.uniform and not rule.partitions else ""
        if fault:
            reason = f"resource {name}: {fault}"
            withheld.extend(Withheld(device, reason, Cause.NOT_UNIFORM) for device in devices)
        else:
            shown: list[OfferedDevice] = []
            for device, own in members:
                offered = _offered(device, own, snapshot, context, door, parts=parts)
                edits = None if own.edits == rule.edits else own.edits
                shown += offered if edits is None else [replace(each, edits=edits) for each in offered]
            resources.append(ResourceOffer(name, rule, tuple(shown)))
    return Offer(tuple(resources), tuple(sorted(withheld, key=lambda item: item.device.name)))


def _unruled(device: Device, snapshot: Snapshot, rules: Iterable[Rule]) -> tuple[str, Cause]:
    """Why no rule offers the device: for a GPU in MIG mode that is empty, what its rules wait for."""
    noted = _functions_of(device, snapshot)
    if noted:
        return f"{_UNRULED[0]}; {noted}", _UNRULED[1]
    waiting = [rule for rule in rules if rule.selector.kinds == (DeviceKind.MIG,)]
    if not waiting or not _is_empty(device, snapshot):
        return _UNRULED
    if any(rule.uniform for rule in waiting):
        return f"{_SINGLE} needs MIG instances on every GPU in MIG mode, and it has none; {_FILL}", Cause.NOT_UNIFORM
    return f"it is in MIG mode and has no MIG instances, and no rule offers it whole; {_FILL}", Cause.NO_RULE


def _is_empty(device: Device, snapshot: Snapshot) -> bool:
    """Whether it is a GPU in MIG mode without instances."""
    if device.kind is not DeviceKind.GPU or device.attribute("migEnabled") is not True:
        return False
    return not any(part.parent == device.name and not is_gone(part) for part in snapshot.devices)


def _not_shown(device: Device, rule: Rule, context: OfferContext, door: Door, parts: OfferedParts) -> _Why:
    if not rule.door.has(door) and not _lingers(device, rule, context, door):
        return f"its rule offers it through the {rule.door} door", Cause.OTHER_DOOR
    if door is Door.PLUGIN and device.uuid in context.made:
        return "it was made for a claim, and is removed with it", Cause.OTHER_DOOR
    if door is Door.DRA and rule.moves_interface and context.unmovable and not _is_held(device, context):
        return f"its network interface cannot move into pods: {context.unmovable}", Cause.UNMOVABLE
    if door is Door.DRA and device.name in parts.kept:
        return parts.kept[device.name], Cause.MIG_MODE
    is_in_mode = device.kind is DeviceKind.GPU and device.attribute("migEnabled") is True
    if door is Door.DRA and is_in_mode and device.name not in parts.wholes:
        # The plugin door offers it where a rule says so, as NVIDIA's plugin does; a scheduler that sees the whole
        # beside its parts would give both away, unless counters tell it that they are the same.
        return "it is in MIG mode, so that only its MIG devices can be allocated to claims", Cause.MIG_MODE
    return None


def _lingers(device: Device, rule: Rule, context: OfferContext, door: Door) -> bool:
    """Whether a door must go on showing a device that its rule has moved to the other door.

    Its holders need it: a kubelet that starts ends pods whose device it does not know, and a pod whose claim names a
    device of no slice is not scheduled. A resource of another plugin is not ours to show.
    """
    hold = context.held(device, door)
    if door is Door.DRA:
        return hold is not None or device.name in context.at_scheduler
    if hold is not None:
        return rule.resource_of(device) in (hold.resource, *(resource for resource, _ in hold.ids))
    return device.name in context.listed and device.name in context.at_kubelet


def _bad_resource(rule: Rule, name: str, groups: Mapping[str, list[tuple[Device, Rule]]]) -> _Why:
    if name not in groups:
        fault = explain_resource_name(name)
        return (fault, Cause.BAD_NAME) if fault else None
    if not groups[name][0][1].same_terms(rule):
        reason = f"two rules with different options give the resource {name!r}; the first one has it"
        return reason, Cause.RULE_CONFLICT
    return None


def _not_uniform(devices: list[Device], snapshot: Snapshot) -> str:
    devices = [device for device in devices if not is_gone(device)]
    shapes: dict[str, list[str]] = {}
    for device in devices:
        names = shapes.setdefault(device.text("profile") or device.kind.value, [])
        names.append(device.parent or device.name)
    if len(shapes) > 1:
        if not any(device.kind is DeviceKind.MIG for device in devices):
            return f"uniform: true needs devices of one kind, found {', '.join(sorted(shapes))}"
        found = ", ".join(f"{shape} ({_some(names)})" for shape, names in sorted(shapes.items()))
        return f"{_SINGLE} needs devices of one kind, found {found}; make all GPUs alike, or use the strategy mixed"
    empty = [gpu.name for gpu in snapshot.devices if not is_gone(gpu) and _is_empty(gpu, snapshot)]
    if empty:
        has = "has" if len(empty) == 1 else "have"
        return f"{_SINGLE} needs at least one instance on every GPU in MIG mode, {_some(empty)} {has} none; {_FILL}"
    return ""


def _some(names: Iterable[str]) -> str:
    found = list(dict.fromkeys(names))
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return f"{', '.join(found[:_MOST_NAMED])}{more}"


def _offered(
    device: Device, rule: Rule, snapshot: Snapshot, context: OfferContext, door: Door, *, parts: OfferedParts
) -> tuple[OfferedDevice, ...]:
    shared = rule.shared(device) if door is Door.PLUGIN else None
    if shared is not None:
        of_all = _not_given(device, rule, snapshot, None, parts=parts)
        return tuple(_replicas(device, rule, shared, context, of_all))
    id_ = offered_id(rule, device)
    why = _not_given(device, rule, snapshot, _AT_DOOR[door](device, rule, context), parts=parts)
    if why is not None:
        return (OfferedDevice(id_, device, False, *why),)
    note = _note(device) or parts.notes.get(device.name, "") or _functions_of(device, snapshot)
    return (OfferedDevice(id_, device, healthy=True, reason=note),)


def _note(device: Device) -> str:
    """The note that people see on a device that the door allocates."""
    return device.health.reason if device.health.state is HealthState.DEGRADED else ""


def _not_given(device: Device, rule: Rule, snapshot: Snapshot, at_door: _Why, *, parts: OfferedParts) -> _Why:
    """Why the device is not allocated; ``at_door``: what of both doors keeps it."""
    if not device.health.usable:
        return device.health.reason or device.health.state.value, _cause_of(device)
    why = at_door or _kept_for_node(device, rule, snapshot) or _link_down(device, rule)
    if why is not None:
        return why
    judged = parts.unmade.get(device.name, device)
    missing = unfit(offered_id(rule, judged), judged, rule.edits, snapshot.host) or _not_sharable(
        device, rule, snapshot
    )
    return (missing, Cause.UNFIT) if missing else None


def _not_sharable(device: Device, rule: Rule, snapshot: Snapshot) -> str:
    """Why the device cannot be shared as its rule says; empty if it can."""
    if rule.sharing is None or rule.sharing.replicas_of(device) <= 1:
        return ""
    return rule.sharing.unsuited(device) or dict(snapshot.host.mps_faults).get(device.name, "")


def _replicas(
    device: Device, rule: Rule, shared: SharedDevice, context: OfferContext, of_all: _Why
) -> Iterator[OfferedDevice]:
    """The replicas of a device; ``of_all``: why none of them is allocated, whoever has it."""
    id_ = offered_id(rule, device)
    moving = _moving(device, rule, context)
    for each in context.replicas(device, shared):
        name = replica_id(id_, each.share)
        if not each.share and (each.held is None or (shared.resource, name) not in each.held.ids):
            continue
        is_free = each.held is None and each.by is None
        first = not device.health.usable or (is_free and of_all is not None)
        why = of_all if first else _of_replica(each, device, name, shared) or of_all
        if why is None and each.held is None:
            why = moving
        sizes = (shared.amounts, shared.whole) if each.share else ((), ())
        if why is None:
            yield OfferedDevice(name, device, True, _note(device), None, None, each.share, *sizes)
        else:
            yield OfferedDevice(name, device, False, *why, None, each.share, *sizes)


def _of_replica(state: ReplicaState, device: Device, id_: str, shared: SharedDevice) -> _Why:
    """What of both doors keeps a replica from new pods."""
    hold = state.held or state.by
    if hold is None:
        return ("one share is more than the device has", Cause.UNFIT) if state.crowded else None
    if state.crowded:
        cause = Cause.OVERLAP if hold.door is Door.PLUGIN else Cause.OTHER_DOOR
        return f"other shares leave too little of it for this one: it is {hold.words}", cause
    if state.held is not None and (shared.resource, id_) in hold.ids:
        return None
    if hold.device == device.name and hold.door is Door.PLUGIN and hold.ids:
        return f"{hold.words} as {hold.ids[0][1]} of {hold.ids[0][0]}", Cause.OVERLAP
    return _because_of(hold, device, Door.PLUGIN)


def _cause_of(device: Device) -> Cause:
    """What makes a device that is not usable so."""
    if is_gone(device) and device.health.state is HealthState.UNHEALTHY:
        return Cause.GONE
    return Cause.LINK_DOWN if device.health.cause in _LINK else Cause.HEALTH


def _is_held(device: Device, context: OfferContext) -> bool:
    return any(context.held(device, door) is not None for door in Door)


def _at_plugin_door(device: Device, rule: Rule, context: OfferContext) -> _Why:
    """What of both doors keeps the device from new pods through the device plugin API."""
    hold = context.held(device, Door.PLUGIN)
    if hold is not None:
        # The kubelet knows of an id that it is taken, and would count it as ill; of another id it knows nothing.
        own = not hold.ids or (rule.resource_of(device), offered_id(rule, device)) in hold.ids
        return None if own else (f"{hold.words} as {hold.ids[0][1]} of {hold.ids[0][0]}", Cause.OVERLAP)
    if rule.partitions and device.kind is DeviceKind.GPU and device.attribute("migEnabled") is True:
        return "it is in MIG mode, which ends when no claim has a partition of it", Cause.MIG_MODE
    why = _obstructed(device, rule, context, Door.PLUGIN)
    if why is not None:
        return why
    return _moving(device, rule, context)


def _moving(device: Device, rule: Rule, context: OfferContext) -> _Why:
    """Why pods do not get a device yet, or any more, whose rule moves it between the doors."""
    if not context.known:
        # One of the pods may have it: nothing moves yet, and Allocate has the last word.
        return None
    if not rule.door.has(Door.PLUGIN):
        return f"its rule offers it through the {rule.door} door", Cause.MOVING
    still = device.name in context.at_scheduler and device.name not in context.offered
    if still and not rule.door.has(Door.DRA):
        return "it is being withdrawn from the dra door, where a claim may still get it", Cause.MOVING
    return None


def _at_dra_door(device: Device, rule: Rule, context: OfferContext) -> _Why:
    """What of both doors keeps the device from new claims."""
    why, still_there = _obstructed(device, rule, context, Door.DRA), _still_at_plugin_door(device, rule, context)
    if why is not None:
        # Of the pending steps the first one is reported: a look at what has just begun to move is soon over.
        return still_there if still_there is not None and why[1] is Cause.PENDING_RELEASE else why
    if not rule.door.has(Door.DRA):
        return f"its rule offers it through the {rule.door} door", Cause.MOVING
    missing = _missing_share(device, rule.shared(device), context)
    if context.held(device, Door.DRA) is not None:
        return missing
    if not context.known or (rule.door.has(Door.PLUGIN) and not context.settled):
        return "the kubelet has not reported what the plugin door has allocated", Cause.HOLDS_UNKNOWN
    return still_there or missing


def _missing_share(device: Device, shared: SharedDevice | None, context: OfferContext) -> _Why:
    """Why claims get no share of a device: pods have nearly all of it."""
    if shared is None:
        return None
    pods = [hold.amounts for hold in context.own(device.name) if hold.door is Door.PLUGIN and hold.share]
    left = left_of(shared.whole, pods)
    short = [name for name, amount in shared.amounts if left.get(name, 0) < amount] if pods else []
    return (too_little_left(short), Cause.OTHER_DOOR) if short else None


def _still_at_plugin_door(device: Device, rule: Rule, context: OfferContext) -> _Why:
    if device.name in context.at_kubelet and rule.door is Doors.DRA:
        return "the kubelet still counts it as allocatable through the plugin door", Cause.MOVING
    return None


_AT_DOOR: Mapping[Door, Callable[[Device, Rule, OfferContext], _Why]] = {
    Door.PLUGIN: _at_plugin_door,
    Door.DRA: _at_dra_door,
}


def _obstructed(device: Device, rule: Rule, context: OfferContext, door: Door) -> _Why:
    # What claims have of a GPU that is given in parts, counters tell the scheduler.
    counted, shared = (rule.partitions, rule.shared(device)) if door is Door.DRA else (False, None)
    hold = context.obstacle(device, door, counted=counted, shared=shared)
    return None if hold is None else _because_of(hold, device, door)


def _because_of(hold: Hold, device: Device, door: Door) -> tuple[str, Cause]:
    if hold.device != device.name:
        relation = "its part" if device.name in hold.within else "what it is a part of"
        cause = Cause.OVERLAP if hold.door is door else Cause.OTHER_DOOR
        return f"{relation}, {hold.device}, is {hold.words}", Cause.PENDING_RELEASE if _is_pending(hold) else cause
    return hold.words, Cause.PENDING_RELEASE if _is_pending(hold) else Cause.OTHER_DOOR


def _is_pending(hold: Hold) -> bool:
    return hold.state is HoldState.PENDING_RELEASE


def _kept_for_node(device: Device, rule: Rule, snapshot: Snapshot) -> _Why:
    """Why a device that the rule selects stays with the node; one that a pod holds is shown unhealthy anyway."""
    number, noted = device.attribute("sriovVfs"), _functions_of(device, snapshot)
    if not (device.host_use or number or noted) or rule.names(device):
        return None
    reasons = [noted] if noted else []
    if device.host_use:
        fix = "; name it in a rule to offer it anyway" if rule.by_name else ""
        reasons.insert(0, f"the node itself uses it: {device.host_use}{fix}")
    elif number:
        functions = "virtual function is" if number == 1 else "virtual functions are"
        reasons.insert(0, f"its {number} {functions} offered in its place")
    return "; ".join(reasons), Cause.NODE_USE


def _functions_of(device: Device, snapshot: Snapshot) -> str:
    """The note about the virtual functions that the configuration wants of the device; empty for none."""
    noted = snapshot.host.virtual_functions
    return dict(noted).get(device.name, "") if noted else ""


def _link_down(device: Device, rule: Rule) -> _Why:
    # A pod may do anything with the link of its NIC; that is no fault.
    if not rule.link_health or device.attribute("inPod") is True:
        return None
    return ("its link is down", Cause.LINK_DOWN) if device.attribute("linkUp") is False else None
