"""Decides about each Allocate of the plugin door, and enters its devices into the ledger.

The ledger refuses what it knows to be held. Until the kubelet has reported what pods have, the ledger may lack some of
it. What overlaps the devices asked for is looked up in the kubelet's checkpoint then: the kubelet allocates for one
container at a time and has recorded every earlier one. Without a checkpoint, a device that overlaps one that a pod may
have is refused. For the event loop alone; nothing waits here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from node.clocks import Clocks
from node.inventory.model import Device, Snapshot
from node.ledger.allocations import KubeletAllocations
from node.ledger.events import HoldsChanged
from node.ledger.holds import HeldError, Hold, HoldState, Id, conflict, plugin_owner, slices_of, wholes_of
from node.ledger.ledger import Ledger
from node.ledger.naming import IdPlace
from node.ledger.pods import NoPodsKnown, PodsKnown
from node.ledger.releases import refusal
from node.ledger.tenants import Tenants
from node.offer import OfferedDevice
from node.rules import Door, Rule
from node.values import Value, quick, value

POSSIBLY = "a pod, possibly: the kubelet has not reported its allocations yet"
"""The holder of what pods may have."""
CURRENT = 10.0
"""Seconds for which a checkpoint counts: longer than Allocate waits for anything after it has read the file."""


@quick
@value
class _Granting(Value):
    """What every Allocate of an offered device has in common."""

    offered: OfferedDevice
    resource: str
    ids: tuple[Id, ...]
    owner: str
    place: IdPlace

    def hold(self, holder: str, at: float) -> Hold:
        """The hold of a new pod. Its arguments go by position: a pod may ask for a thousand shares."""
        offered, place = self.offered, self.place
        return Hold(
            place.device,
            Door.PLUGIN,
            holder,
            at,
            self.owner,
            place.share,
            False,
            place.within,
            HoldState.ALLOCATED,
            self.resource,
            False,
            self.ids,
            (),
            offered.amounts,
            offered.whole,
            place.slices,
        )


class PluginGrants:
    """Enters what the plugin door allocates into ``ledger``, or raises HeldError and changes nothing."""

    def __init__(self, ledger: Ledger, plugin: KubeletAllocations, tenants: Tenants, *, clocks: Clocks) -> None:
        self._ledger = ledger
        self._plugin = plugin
        self._tenants = tenants
        self._clock = clocks.clock
        self._monotonic = clocks.monotonic
        self._pods: PodsKnown = NoPodsKnown()
        self._rules: Mapping[str, Rule] = {}
        self.wholes: Mapping[str, tuple[str, ...]] = {}
        self._slices: Mapping[str, tuple[int, int]] = {}
        self._known: dict[Id, _Granting] = {}
        """What grants of these ids have in common, until the next snapshot."""
        self._possibly_held: frozenset[str] = frozenset()
        """Devices that the plugin door could allocate since the allocations of pods were last known."""
        self._answered_until = -math.inf

    def answered(self, until: float) -> None:
        """Another instance may have answered the kubelet until this time (monotonic)."""
        self._answered_until = until

    def know(self, pods: PodsKnown) -> None:
        """Use this source of knowledge about pods."""
        self._pods = pods

    def place(self, snapshot: Snapshot, rules: Mapping[str, Rule]) -> None:
        """Take in the devices, and by their names the configured rules."""
        self._rules = rules
        self.wholes = {device.name: wholes_of(device) for device in snapshot.devices}
        slices = ((device.name, slices_of(device)) for device in snapshot.devices)
        self._slices = {name: found for name, found in slices if found is not None}
        self._known = {}

    def remember(self, given: frozenset[str]) -> None:
        """Note what the plugin door may allocate under the current rules, as what pods may have had unnoticed."""
        self._possibly_held = given if self._plugin.known(self._monotonic()) else self._possibly_held | given

    def allocate(self, resource: str, devices: Sequence[OfferedDevice]) -> None:
        """Enter what the plugin door allocates, all or none; raises HeldError."""
        at = self._clock()
        self._refuse_possibly_crowded(resource, devices, at)
        possible = self.possibly_held(resource, devices)
        if possible is not None:
            raise possible
        self._refuse_pending(resource, devices, at)
        holder = f"a pod that asked for {resource}"
        holds, grants, ended = [], [], set()
        for offered in devices:
            id_ = resource, offered.id
            known = self._known.get(id_)
            if known is None or known.offered is not offered:
                known = self._known[id_] = self._granting(offered, id_)
            holds.append(known.hold(holder, at))
            grants.append((id_, known.place))
            if offered.share and _is_pending(self._ledger.of(plugin_owner(offered.device.name))):
                # The device is in use from now on, so that no check can find it free.
                ended.add(plugin_owner(offered.device.name))
        self._ledger.take_each(holds, ended)
        self._plugin.granted(grants, self._monotonic(), at)
        self._ledger.bus.publish(HoldsChanged())

    def is_refused(self, devices: Sequence[OfferedDevice]) -> bool:
        """Whether a claim has one of these devices, so that ``allocate`` refuses them without waiting for anything."""
        places = (place for each in devices for place in (each.device.name, *self.within(each.device)))
        if not self._ledger.has_claims(places):
            return False
        obstacles = (self._ledger.obstacle(self._hold(offered, offered.share)) for offered in devices)
        return any(by is not None and by.door is Door.DRA for by in obstacles)

    def crowded_by_ended(self, devices: Sequence[OfferedDevice]) -> frozenset[str]:
        """UIDs of pods that have ended, whose shares leave too little for these until their containers have ended.

        An earlier rule may have given more shares of a device than the present one.
        """
        found: set[str] = set()
        for offered in devices if self._tenants.waited_for else ():
            error = self._ledger.conflict(self._hold(offered, offered.share)) if offered.share else None
            if error is not None and error.shares and error.by.state is HoldState.PENDING_RELEASE:
                found |= self._tenants.waiting(offered.device.name)
        return frozenset(found)

    def _granting(self, offered: OfferedDevice, id_: Id) -> _Granting:
        device, share = offered.device, offered.share
        place = IdPlace(device.name, self.within(device), share, self._slices.get(device.name))
        return _Granting(offered, id_[0], (id_,), plugin_owner(device.name, share), place)

    def _hold(self, offered: OfferedDevice, share: str, holder: str = "", at: float = 0.0) -> Hold:
        """The hold of a pod that may have this share of the device, or may ask for it."""
        name = offered.device.name
        place = IdPlace(name, self.within(offered.device), share, self._slices.get(name))
        return _Granting(offered, "", (), plugin_owner(name, share), place).hold(holder, at)

    def within(self, device: Device) -> tuple[str, ...]:
        """``wholes_of``, from what ``place`` has computed for all devices."""
        within = self.wholes.get(device.name)
        return wholes_of(device) if within is None else within

    def possibly_held(
        self, resource: str, devices: Sequence[OfferedDevice], since: float = -math.inf
    ) -> HeldError | None:
        """The error for a part of a device that a pod may have, or for a device with such a part; None for no such.

        The kubelet gives no device twice, but knows nothing of devices that overlap; and until it reports what pods
        have, neither does the ledger. ``since``: the checkpoint counts only if it was read after this time (monotonic).
        """
        now = self._monotonic()
        if self._plugin.known(now) and self._plugin.read_since(self._answered_until):
            return None
        recorded = self._plugin.recorded_devices(self._pods, max(since, now - CURRENT))
        holders = dict.fromkeys(self._possibly_held, POSSIBLY) if recorded is None else recorded
        given = {name: within for name, within in self.wholes.items() if name in holders}
        for offered in devices:
            name, within = offered.device.name, self.within(offered.device)
            for other, its_wholes in given.items():
                if other in within or name in its_wholes:
                    at = self._clock()
                    wanted = Hold(name, Door.PLUGIN, f"a pod that asked for {resource}", at, within=within)
                    return HeldError(wanted, Hold(other, Door.PLUGIN, holders[other], at, within=its_wholes))
        return None

    def _refuse_possibly_crowded(self, resource: str, devices: Sequence[OfferedDevice], at: float) -> None:
        """Raise HeldError for replicas that are too many while it is not known which of them pods have."""
        if self._plugin.known(self._monotonic()):
            return
        for offered in devices:
            if offered.share:
                self._refuse_crowded(resource, offered, {each.share for each in devices}, at)

    def _refuse_crowded(self, resource: str, offered: OfferedDevice, asked: Collection[str], at: float) -> None:
        """Raise HeldError for a replica that is too much beside claims' shares and what pods may have of the device.

        The kubelet counts its replicas and knows nothing of claims. What pods have is in its checkpoint, which was read
        just before; without it every replica may be a pod's.
        """
        name = offered.device.name
        around = [hold for hold in self._ledger.all if hold.device == name and not hold.admin]
        if not any(hold.door is Door.DRA for hold in around):
            return
        shares = self._plugin.recorded_shares(name)
        if shares is None:
            rule = self._rules.get(name)
            shared = rule.shared(offered.device) if rule is not None else None
            shares = frozenset(map(str, range(shared.replicas))) if shared is not None else frozenset()
        held = {hold.share for hold in around} | {offered.share}
        others = [hold for hold in around if hold.owner != plugin_owner(name, offered.share)]
        others += [self._hold(offered, share, POSSIBLY, at) for share in sorted(shares.union(asked) - held)]
        error = conflict(self._hold(offered, offered.share, f"a pod that asked for {resource}", at), others)
        if error is not None:
            raise error

    def _refuse_pending(self, resource: str, devices: Sequence[OfferedDevice], at: float) -> None:
        """Raise HeldError for a device that waits for containers of a pod; ``Releases.ended`` usually did so before."""
        for offered in devices if self._tenants.waited_for else ():
            by = self._tenants.pending(offered.device.name, self.within(offered.device), offered.share)
            if by is not None:
                raise refusal(resource, by, at)


def _is_pending(holds: tuple[Hold, ...]) -> bool:
    return bool(holds) and all(hold.state is HoldState.PENDING_RELEASE for hold in holds)
