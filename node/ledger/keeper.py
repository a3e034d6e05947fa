"""Everything that is known of who has what, brought together in the one ledger of the node.

What pods have through the plugin door, what drains and what claims are about to need comes from elsewhere as plain
values; prepared claims enter and leave the ledger themselves. ``settle`` makes the ledger agree with all of it, and is
called in the same step in which anything changes, so that a device is never free between two of its states. Invariants:

- facts (what containers have) are entered whatever else there is; wishes (reservations) only where nothing is in the
  way, and they are tried again with every change;
- a device that both doors may give out becomes free only when a look has found no process on it. While it is being
  looked at after a pod of the plugin door, that door may give it out again: the kubelet counts it as free already. The
  other door waits;
- no device is given out, through either door, while containers run of a pod that had it and is gone by the books.

For the event loop alone; nothing waits here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from node.inventory.model import Device, Snapshot
from node.ledger.allocations import Grant, KubeletAllocations, NobodyKnown, PodsKnown
from node.ledger.events import ClaimRefused, HoldsChanged, ReleasesAdvanced, ReleasesPending
from node.ledger.ledger import (
    HeldError,
    Hold,
    HoldsReleased,
    HoldState,
    Ledger,
    draining_owner,
    plugin_owner,
    wholes_of,
)
from node.ledger.offer_context import OfferContext, by_place
from node.ledger.process_check import PendingRelease
from node.ledger.reader import Holding, Reading
from node.ledger.releases import refusal
from node.ledger.tenants import Tenants
from node.offer import OfferedDevice
from node.rules import Door, Doors, Rule, rule_for
from node.values import replace

log = logging.getLogger("ostler.holds")


class HoldKeeper:
    """Keeps ``ledger``, and publishes on its bus what follows for doors, claims and checks (``node.ledger.events``)."""

    def __init__(
        self,
        ledger: Ledger,
        plugin: KubeletAllocations,
        draining: PendingRelease,
        *,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        tenants: Tenants | None = None,
    ) -> None:
        self.ledger = ledger
        self.tenants = Tenants() if tenants is None else tenants
        self.plugin = plugin
        self.draining = draining
        self.pods: PodsKnown = NobodyKnown()
        """What is known of this node's pods."""
        self._clock = clock
        self._monotonic = monotonic
        self._reserved: Mapping[str, tuple[Hold, ...]] = {}
        self._devices: tuple[tuple[Device, Rule], ...] = ()
        self._wholes: Mapping[str, tuple[str, ...]] = {}
        self._given: frozenset[str] = frozenset()
        """Devices that the plugin door may give out by the rules of now."""
        self._may_be_had: frozenset[str] = frozenset()
        """Devices that the plugin door could give out when it was last known what pods have, or since then."""
        self._strangers: set[str] = set()
        """Devices of one door that the other may have left processes on, as long as no look has found them free.

        They are or were held through a door that their rule has not (any more), a rule has just taken them from the
        plugin door, or claims may get them and nobody knows what was before this process began.
        """
        self._last: dict[str, Door] = {}
        """The door through which each device was held last."""
        self._told: frozenset[tuple[str, str]] = frozenset()
        self._began = False
        """Whether the plugin door's holds were known once."""
        self._given_back: tuple[Hold, ...] = ()
        self._settling = False
        self._unsettled = False
        self.relieved = 0.0
        """Monotonic time until which an instance before this one may have answered the kubelet."""
        self._publish = ledger.bus.publish
        ledger.bus.subscribe(HoldsReleased, self._released)
        ledger.bus.subscribe(ReleasesAdvanced, lambda _: self.settle())

    def know(self, pods: PodsKnown) -> None:
        """Ask these of pods from now on."""
        self.pods = pods

    def allocate(self, resource: str, devices: Sequence[OfferedDevice]) -> None:
        """The plugin door gives these out now: all are taken, or none. Raises HeldError."""
        at = self._clock()
        self._refuse_what_may_be_had(resource, devices, at)
        self._refuse_pending(resource, devices, at)
        holder, door, state = f"a pod that asked for {resource}", Door.PLUGIN, HoldState.ALLOCATED
        holds = []
        for offered in devices:
            name, within = offered.device.name, self._within(offered.device)
            own, ids = plugin_owner(name), ((resource, offered.id),)
            holds.append(Hold(name, door, holder, at, own, "", False, within, state, resource, False, ids))
        self.ledger.take_each(holds)
        grants = [Grant(hold.device, hold.within, resource, each.id) for hold, each in zip(holds, devices, strict=True)]
        self.plugin.granted(grants, self._monotonic(), at)
        self._publish(HoldsChanged())

    def is_refused(self, devices: Sequence[OfferedDevice]) -> bool:
        """Whether a claim has one of these, so that ``allocate`` refuses them and nothing has to be waited for."""
        for offered in devices:
            name, within = offered.device.name, self._within(offered.device)
            by = self.ledger.obstacle(Hold(name, Door.PLUGIN, "", 0.0, plugin_owner(name), within=within))
            if by is not None and by.door is Door.DRA:
                return True
        return False

    def _within(self, device: Device) -> tuple[str, ...]:
        """``wholes_of``, which was asked of all devices when they were placed."""
        within = self._wholes.get(device.name)
        return wholes_of(device) if within is None else within

    def _refuse_what_may_be_had(self, resource: str, devices: Sequence[OfferedDevice], at: float) -> None:
        """Raise HeldError for a part of a device that a pod may have, or the other way round.

        The kubelet takes care that no device is given twice, but of what overlaps it knows nothing; and as long as it
        has not told what pods have, the ledger does not either.
        """
        if self.plugin.known(self._monotonic()):
            return
        given = {name: within for name, within in self._wholes.items() if name in self._may_be_had}
        for offered in devices:
            name, within = offered.device.name, self._within(offered.device)
            for other, its_wholes in given.items():
                if other in within or name in its_wholes:
                    holder = "a pod, perhaps: the kubelet has not told yet which devices pods have"
                    wanted = Hold(name, Door.PLUGIN, f"a pod that asked for {resource}", at, within=within)
                    raise HeldError(wanted, Hold(other, Door.PLUGIN, holder, at, within=its_wholes))

    def _refuse_pending(self, resource: str, devices: Sequence[OfferedDevice], at: float) -> None:
        """Raise HeldError for a device of a pod whose containers are waited for; mostly that was done before."""
        for offered in devices:
            by = self.tenants.pending(offered.device.name, self._within(offered.device))
            if by is not None:
                raise refusal(resource, by, at)

    def read(self, reading: Reading) -> None:
        """The kubelet said this."""
        self.plugin.read(reading, self.pods, self._clock())
        self._note_tenants()
        self._remember_what_may_be_had()
        self.settle()

    def attribute(self, recorded: tuple[Holding, ...]) -> None:
        """The kubelet's checkpoint says this; see ``KubeletAllocations.attribute``."""
        self.plugin.attribute(recorded, self._monotonic())
        self._note_tenants()
        self._publish(ReleasesPending())

    def _note_tenants(self) -> None:
        tenancies = tuple(self.plugin.tenancies())
        self.tenants.note(tenancies)
        self.tenants.named_by_nobody({each.uid for each in tenancies})

    def reserve(self, claims: Mapping[str, tuple[Hold, ...]]) -> None:
        """These are all claims, by UID, that pods of this node name, with what was allocated to them."""
        self._reserved = claims
        self.settle()

    def place(self, snapshot: Snapshot, rules: Iterable[Rule]) -> None:
        """These are the devices, and the rules as they are wanted."""
        rules = tuple(rules)
        found = ((device, rule_for(device, rules)) for device in snapshot.devices)
        self._devices = tuple((device, rule) for device, rule in found if rule is not None)
        self._wholes = {device.name: wholes_of(device) for device in snapshot.devices}
        self._remember_what_may_be_had()
        self.plugin.place(snapshot, {rule.resource_of(device) for device, rule in self._devices})
        self.settle()

    def _remember_what_may_be_had(self) -> None:
        """A rule that takes a device from the plugin door takes it from no pod; who has it must first be known."""
        given = frozenset(device.name for device, rule in self._devices if rule.door.has(Door.PLUGIN))
        self._strangers |= self._given - given
        # What pods leave on a device of theirs is no matter of any other door.
        self._strangers -= {
            device.name
            for device, rule in self._devices
            if rule.door is Doors.PLUGIN and self._last.get(device.name) is not Door.DRA
        }
        self._given = given
        self._may_be_had = given if self.plugin.known(self._monotonic()) else self._may_be_had | given

    def release(self, device: str) -> bool:
        """A person says that a draining device is free; False if it is not draining."""
        by_process, by_pod = self.draining.release(device), self.tenants.release(device)
        self.settle()
        return by_process or by_pod

    def settle(self) -> None:
        """Make the ledger agree with everything that is known."""
        self._unsettled = True
        if self._settling:
            return
        self._settling = True
        version = self.ledger.version
        refused: list[tuple[str, HeldError]] = []
        try:
            # Again where something was given back meanwhile: it may have to drain.
            while self._unsettled:
                self._unsettled = False
                self._enter_facts()
                refused = self._enter_wishes()
        finally:
            self._settling = False
        for uid, error in refused:
            self._publish(ClaimRefused(uid, error))
        if self.ledger.version != version:
            self._publish(HoldsChanged())

    def begin(self, answered_until: float) -> None:
        """The kubelet is served by this instance from now on, and may be answered by the one before until then."""
        self.plugin.barrier(self._monotonic())
        self.relieved = answered_until

    def changed_over(self, answered_until: float) -> None:
        """The kubelet asks this instance alone; the one before may have answered until then, if not less long."""
        self.relieved = min(self.relieved, answered_until)

    @property
    def known(self) -> bool:
        """Whether all that the plugin door has given out is in the ledger, by whichever instance."""
        if not self.plugin.known(self._monotonic()):
            return False
        # What no rule gives to the plugin door no instance gives out there, if the kubelet does not count it either.
        shared = any(rule.door.has(Door.PLUGIN) for _, rule in self._devices) or self.plugin.at_kubelet
        return not shared or self.plugin.read_since(self.relieved)

    def context(
        self,
        *,
        listed: frozenset[str] = frozenset(),
        offered: Mapping[str, float] | None = None,
        healthy: frozenset[str] = frozenset(),
        at_scheduler: frozenset[str] = frozenset(),
        contested: frozenset[str] = frozenset(),
    ) -> OfferContext:
        """What the offers of both doors are decided by.

        ``listed``: what the plugin door shows, and ``healthy`` what of it may be given out; ``offered``: when each
        device was last shown healthy there (monotonic).
        """
        since = self.plugin.at_kubelet_since
        later = {name for name, when in (offered or {}).items() if since is None or when >= since}
        return OfferContext(
            by_place(self.ledger.all),
            known=self.plugin.known(self._monotonic()),
            settled=self.known,
            at_kubelet=self.plugin.at_kubelet | later,
            at_scheduler=at_scheduler,
            listed=listed,
            offered=healthy,
            contested=contested,
        )

    def _released(self, event: HoldsReleased) -> None:
        for hold in event.holds:
            if hold.door is not None and not hold.admin and hold.state is not HoldState.DRAINING:
                self._last[hold.device] = hold.door
                self._given_back += (hold,)
        self.settle()

    def _enter_facts(self) -> None:
        pods = self.plugin.wanted()
        claims = [hold for hold in self.ledger.all if hold.door is Door.DRA]
        held = (*pods.values(), *claims)
        self._last |= {hold.device: hold.door for hold in held if hold.door is not None and not hold.admin}
        self._look_for_free_ones(held)
        now = self._monotonic()
        had = [self._with_users(hold) for hold in held if hold.state is not HoldState.RESERVED]
        self.tenants.update(had, now, self._clock(), sure=self._began)
        self._publish(ReleasesPending())
        facts = {hold.owner: hold for hold in pods.values()}
        pending = self.tenants.wanted(now)
        for device, hold in self.draining.wanted().items():
            if device not in pending:
                entered = self._drain(device, hold)
                facts.setdefault(entered.owner, entered)
        facts |= {hold.owner: hold for hold in pending.values()}
        for owner in self.ledger.owners:
            if owner not in facts and self._is_mine(owner):
                self.ledger.release(owner)
        conflicts: list[HeldError] = []
        for owner, hold in facts.items():
            if self.ledger.of(owner) != (hold,):
                conflicts += self.ledger.restore(owner, (hold,))
        self._tell(conflicts)

    def _with_users(self, hold: Hold) -> Hold:
        """The hold of a prepared claim with the pods that came to name it since, which the kubelet tells nobody of."""
        named = {uid for wish in self._reserved.get(hold.owner, ()) for uid in wish.pods} - set(hold.pods)
        return replace(hold, pods=(*hold.pods, *sorted(named))) if named else hold

    def _look_for_free_ones(self, held: tuple[Hold, ...]) -> None:
        now = self._monotonic()
        if not self._began and self.plugin.known(now):
            self._began = True
            self._strangers.update(device.name for device, rule in self._devices if rule.door.has(Door.DRA))
            # Wishes of before have reserved what nobody had looked at.
            held = tuple(hold for hold in held if hold.state is not HoldState.RESERVED)
        given_back, self._given_back = self._given_back, ()
        if not self._began:
            # Nothing is known to be free, and the plugin door must not suffer from that.
            return
        shared = self._shared((*held, *given_back))
        for those in ((*held, *given_back), held) if given_back else (held,):
            # Claims take without a word: what one has given back was held, whatever was found before.
            self.draining.update(shared, those, now, self._clock())

    def _shared(self, held: Iterable[Hold]) -> list[Device]:
        """Devices that both doors may give out, by their rule or because a rule has changed."""
        rules = {device.name: rule for device, rule in self._devices}
        self._strangers = {name for name in self._strangers if not self.draining.found_free(name)}
        for hold in held:
            rule = rules.get(hold.device)
            if rule is not None and hold.door is not None and not rule.door.has(hold.door):
                self._strangers.add(hold.device)
        return [device for device, rule in self._devices if rule.door is Doors.BOTH or device.name in self._strangers]

    def _drain(self, device: str, hold: Hold) -> Hold:
        """The hold of a device that drains, for the door that may still give it out."""
        if self.draining.left(device) or self._last.get(device) is Door.DRA:
            return hold
        return Hold(
            device,
            Door.PLUGIN,
            hold.holder,
            hold.since,
            owner=plugin_owner(device),
            within=hold.within,
            state=HoldState.DRAINING,
        )

    @staticmethod
    def _is_mine(owner: str) -> bool:
        return owner.startswith((plugin_owner(""), draining_owner("")))

    def _enter_wishes(self) -> list[tuple[str, HeldError]]:
        """Reserve what nothing is in the way of; returns what the plugin door has given out."""
        refused = []
        for owner in self.ledger.owners:
            if owner not in self._reserved and _is_wish(self.ledger.of(owner)):
                self.ledger.release(owner)
        for uid, holds in self._reserved.items():
            have = self.ledger.of(uid)
            if have and not _is_wish(have):
                continue
            errors = self.ledger.reserve(uid, holds)
            refused += [(uid, error) for error in errors if error.by.door is Door.PLUGIN]
        return refused

    def _tell(self, conflicts: Iterable[HeldError]) -> None:
        """Log what has two holders, once; both doors keep it from everybody else."""
        owners = set(self.ledger.owners)
        self._told = frozenset(pair for pair in self._told if owners.issuperset(pair))
        prepared = [error for error in conflicts if error.by.state is HoldState.PREPARED]
        for error in prepared:
            if (error.wanted.owner, error.by.owner) not in self._told:
                log.error("a device has two holders", extra={"device": error.wanted.device, "reason": str(error)})
        self._told |= {(error.wanted.owner, error.by.owner) for error in prepared}


def _is_wish(holds: tuple[Hold, ...]) -> bool:
    return bool(holds) and all(hold.state is HoldState.RESERVED for hold in holds)
