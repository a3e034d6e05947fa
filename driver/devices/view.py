"""Turns a snapshot into what the DRA door shows: the offer of that door, placed and in the order of the slices.

Pure, and one decision with ``node.eligibility``: this module neither adds nor hides a device. Only the way to
containers differs from the plugin door: DRA gives devices by CDI, whatever list strategies a rule has, so a device is
fit if CDI can describe it. Of each kind, the devices that only this door offers come first, and those of both doors
after them, equal ones reversed: the plugin door takes its devices from the front.

A device that must not be allocated has a taint: new claims avoid it, running pods stay. A claim that tolerates the
cause can still be allocated the device, and preparation may then refuse it. A taint evicts pods in two cases only. One
is a device that is known to be unhealthy or gone, if the health policy says so; a device of unknown state (the driver
is away, NVML does not answer) never costs a running pod. The other is a device that a live pod has through the plugin
door while a claim was allocated it: the claim's pod never started and cannot start here, and its eviction lets the
scheduler place it again. This case precedes all other causes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from driver.devices.partitions import CounterSet, GpuPart, Partitioned
from driver.devices.placement import DevicePlacement, placement
from driver.devices.shares import is_shared, missing_share
from driver.names import TaintEffect
from kube.bodies import Json, text_at
from node.edits.options import by_cdi
from node.eligibility import OfferedParts, offer
from node.health.state import HealthState
from node.inventory.model import Attribute, Device, Host, Snapshot
from node.ledger.offer_context import NOTHING_HELD, OfferContext
from node.offer import Cause, Offer, OfferedDevice
from node.rules import Door, Doors, Rule, rule_for
from node.sharing import Amounts, total
from node.values import Value, quick, remembers, replace, value

OF_DOORS = frozenset((Cause.OTHER_DOOR, Cause.OVERLAP, Cause.PENDING_RELEASE, Cause.HOLDS_UNKNOWN, Cause.MOVING))
"""Causes that come from holds and not from the device: it works, but is not available."""


def door_offer(parted: Partitioned, rules: Iterable[Rule], context: OfferContext = NOTHING_HELD) -> Offer:
    """The offer behind the view, which also says what is withheld."""
    return offer(parted.snapshot, _for_this_door(tuple(rules)), context, Door.DRA, parted.offered)


def view_of(parted: Partitioned, shown: Offer, context: OfferContext, rules: Iterable[Rule]) -> DoorView:
    """The view of that offer, which was made by ``rules``; rules of one resource may be for different doors."""
    snapshot, ours = parted.snapshot, _for_this_door(tuple(rules))
    found = [
        (parted.offered.rules.get(item.device.name) or rule_for(item.device, ours) or resource.rule, item)
        for resource in shown.resources
        for item in resource.devices
    ]
    placed = placement(snapshot, (item.device for _, item in found), parted.order)
    devices = tuple(
        _with_shares(
            DraDevice(
                item.device,
                rule,
                item.healthy,
                item.reason,
                item.cause,
                placed.attributes[item.device.name],
                contested=item.device.name in context.contested,
                part=parted.parts.get(item.device.name),
                uses=parted.uses.get(item.device.name),
            ),
            context,
        )
        for rule, item in _sorted(found, placed)
    )
    others = tuple(_others(shown, ours))
    unmovable = tuple((each.device.name, each.reason) for each in shown.withheld if each.cause is Cause.UNMOVABLE)
    return DoorView(devices, snapshot.host, snapshot.generation, others, parted.sets, unmovable)


def _with_shares(offered: DraDevice, context: OfferContext) -> DraDevice:
    """The device with the shares that pods have through the plugin door, which its slice subtracts."""
    device, sharing = offered.device, offered.rule.sharing
    if sharing is None or not is_shared(device, sharing):
        return offered
    held = total(hold.amounts for hold in context.own(device.name) if hold.door is Door.PLUGIN and hold.share)
    offered = replace(offered, held=tuple(sorted(held.items())))
    missing = missing_share(device, sharing, offered.held)
    if offered.healthy and missing:
        return replace(offered, healthy=False, reason=missing, cause=Cause.OTHER_DOOR)
    return offered


def _others(shown: Offer, rules: tuple[Rule, ...]) -> Iterator[DraDevice]:
    for each in shown.withheld:
        rule = rule_for(each.device, rules) if each.cause is Cause.OTHER_DOOR else None
        if rule is not None:
            yield DraDevice(each.device, rule, False, each.reason, each.cause)


def without_holds(offered: DraDevice, host: Host) -> DraDevice:
    """The device as this door would show it without any holds, and if its rule were for this door."""
    rule, name = replace(offered.rule, door=Doors.DRA, uniform=False), offered.device.name
    unmade = {name: offered.part.gpu} if offered.part is not None and not offered.part.made else {}
    parts = OfferedParts({name: rule}, unmade, frozenset((name,)) if offered.uses is not None else frozenset())
    shown = offer(Snapshot(devices=(offered.device,), host=host), (rule,), NOTHING_HELD, Door.DRA, parts)
    for resource in shown.resources:
        (item,) = resource.devices
        return replace(offered, healthy=item.healthy, reason=item.reason, cause=item.cause, contested=False)
    (kept,) = shown.withheld
    return replace(offered, healthy=False, reason=kept.reason, cause=kept.cause, contested=False)


_Found = tuple[Rule, OfferedDevice]


def _sorted(found: Iterable[_Found], placed: DevicePlacement) -> list[_Found]:
    by_name = sorted(found, key=lambda pair: pair[1].device.name)
    alone = [pair for pair in by_name if pair[0].door is not Doors.BOTH]
    both = [pair for pair in reversed(by_name) if pair[0].door is Doors.BOTH]
    alone.sort(key=lambda pair: placed.keys[pair[1].device.name])
    both.sort(key=lambda pair: placed.back[pair[1].device.name])
    return sorted((*alone, *both), key=lambda pair: placed.keys[pair[1].device.name][0])


@remembers
def _for_this_door(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    return tuple(replace(rule, edits=by_cdi(rule.edits)) for rule in rules)


@quick
@value
class DraDevice(Value):
    """A device that a rule offers through DRA. ``reason`` and ``cause``: why it must not be allocated, if so.

    ``rule``: as configured, but with edits by CDI only. ``placement``: attributes of its place on the node and of its
    neighbours (``cell4``, ``switch``). ``contested``: a live pod has it through the plugin door, and a claim of a pod
    on this node was allocated it. ``part``: set for a partition of a GPU, whether it exists or not. ``uses``: the
    counters that it consumes of a GPU in parts. ``held``: of a shared device, what pods have through the plugin door.
    """

    device: Device
    rule: Rule
    healthy: bool
    reason: str = ""
    cause: Cause | None = None
    placement: tuple[Attribute, ...] = ()
    contested: bool = False
    part: GpuPart | None = None
    uses: CounterSet | None = None
    held: Amounts = ()

    @property
    def must_leave_mig(self) -> bool:
        """Whether it is a GPU that must leave MIG mode before a claim gets it whole."""
        return self.part is None and self.uses is not None and self.device.attribute("migEnabled") is True


@value
class DoorView(Value):
    """Everything that answers need: the offered devices, in the order of the slices, and the host.

    ``generation``: of its snapshot. ``others``: devices that rules offer through the plugin door alone. No slice has
    them, but a monitoring claim may have been allocated one just when its rule changed. ``counters``: of the GPUs in
    parts. ``unmovable``: names of devices that no slice has because their interfaces cannot move into pods at present,
    with the reason.
    """

    devices: tuple[DraDevice, ...] = ()
    host: Host = Host()
    generation: int = 0
    others: tuple[DraDevice, ...] = ()
    counters: tuple[CounterSet, ...] = ()
    unmovable: tuple[tuple[str, str], ...] = ()

    def device(self, name: str) -> DraDevice | None:
        """The device with that name, which is also its name in the slices."""
        return next((offered for offered in self.devices if offered.device.name == name), None)

    def device_for(self, name: str, *, looking: bool) -> DraDevice | None:
        """The device for a claim that was allocated it; ``looking``: with ``adminAccess``."""
        found = self.device(name)
        if found is None and looking:
            return next((other for other in self.others if other.device.name == name), None)
        return found


DOMAIN = "ostler.dev"
"""The domain of the keys, whatever the driver's name is: people write tolerations into their claims."""


def taints(offered: DraDevice) -> list[Json]:
    """The device's taints, none for one that may be allocated.

    The key names the cause (``ostler.dev/link-down``). The value is the state of health (``unhealthy``, ``unknown``),
    or the door that has the device if that is the cause, and otherwise left out. The API server sets ``timeAdded``.
    """
    if offered.contested:
        return [_taint(Cause.OTHER_DOOR, TaintEffect.NO_EXECUTE, offered)]
    if offered.healthy:
        return []
    cause = offered.cause or Cause.HEALTH
    evicts = _is_sick(offered, cause) and offered.device.health.evicts
    return [_taint(cause, TaintEffect.NO_EXECUTE if evicts else TaintEffect.NO_SCHEDULE, offered)]


def evicting(view: DoorView) -> frozenset[str]:
    """Names of the devices with a taint that evicts."""
    return frozenset(
        offered.device.name
        for offered in view.devices
        if any(text_at(taint, "effect") == TaintEffect.NO_EXECUTE.value for taint in taints(offered))
    )


def _taint(cause: Cause, effect: TaintEffect, offered: DraDevice) -> Json:
    taint: dict[str, Json] = {"key": f"{DOMAIN}/{cause.value.replace('_', '-')}", "effect": effect.value}
    if cause is Cause.HEALTH:
        taint["value"] = offered.device.health.state.value
    elif cause is Cause.OTHER_DOOR:
        taint["value"] = Door.PLUGIN.value
    return taint


def _is_sick(offered: DraDevice, cause: Cause) -> bool:
    return cause in (Cause.HEALTH, Cause.GONE) and offered.device.health.state is HealthState.UNHEALTHY
