"""Reconciles every source of holds into the node's ledger.

What pods have through the plugin door, what is pending release and what claims will need arrives as plain values;
prepared claims enter and leave the ledger themselves. ``settle`` makes the ledger agree with all of it, in the same
step in which anything changes, so that a device is never free between two of its states. ``node.ledger.states`` has
the table of states and transitions. Invariants:

- facts (what containers have) are always entered; wishes (reservations) only if nothing excludes them, and they are
  tried again with every change;
- a device that both doors may allocate becomes free only after a check found no process on it. While ostler checks it
  after a pod of the plugin door, that door may allocate it again: the kubelet counts it as free already. The other door
  waits;
- neither door allocates a device while containers run of a pod that had it and is gone according to the kubelet and
  the API server.

For the event loop alone; nothing waits here.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from node.clocks import Clocks
from node.inventory.model import Device, Snapshot
from node.ledger.allocations import KubeletAllocations
from node.ledger.events import ClaimRefused, HoldsChanged, ReleasesAdvanced, ReleasesPending
from node.ledger.grants import PluginGrants
from node.ledger.holds import HeldError, Hold, HoldState, pending_owner, plugin_owner
from node.ledger.ledger import HoldsReleased, HoldsTaken, Ledger
from node.ledger.offer_context import OfferContext, by_place
from node.ledger.pods import NoPodsKnown, PodsKnown
from node.ledger.process_check import PendingRelease
from node.ledger.reader import Holding, Reading
from node.ledger.states import (
    HAD_BY_CLAIM,
    IN_USE,
    TRANSITIONS,
    DeviceStates,
    LedgerEvent,
    LedgerFacts,
    LedgerState,
)
from node.ledger.tenants import Tenants
from node.rules import Door, Doors, Rule, rule_for
from node.values import replace

log = logging.getLogger("ostler.holds")


class HoldKeeper:
    """Keeps ``ledger``, and publishes on its bus what doors, claims and checks must know (``node.ledger.events``)."""

    def __init__(
        self,
        ledger: Ledger,
        plugin: KubeletAllocations,
        pending_release: PendingRelease,
        tenants: Tenants,
        grants: PluginGrants,
        *,
        clocks: Clocks,
    ) -> None:
        """``grants``: learns from here which devices pods may have."""
        self.ledger = ledger
        self.tenants = tenants
        self.plugin = plugin
        self._grants = grants
        self.pending_release = pending_release
        self.states = DeviceStates(ledger.bus)
        self.pods: PodsKnown = NoPodsKnown()
        """The API server's reports about this node's pods."""
        self._clock = clocks.clock
        self._monotonic = clocks.monotonic
        self._reserved: Mapping[str, tuple[Hold, ...]] = {}
        self._devices: tuple[tuple[Device, Rule], ...] = ()
        self._rules: Mapping[str, Rule] = {}
        self._at_plugin_door: frozenset[str] = frozenset()
        """Devices that the plugin door may allocate under the current rules."""
        self._unverified: set[str] = set()
        """Devices of one door that may still run a process started through the other, until a check finds them free.

        They are or were held through a door that their rule does not allow, a rule has just taken them from the plugin
        door, or claims may get them and nobody knows who had them before this process began.
        """
        self._reported: frozenset[tuple[str, str]] = frozenset()
        self._began = False
        """Whether the plugin door's holds were ever fully known."""
        self._settling = False
        self._unsettled = False
        self.answered_until = 0.0
        """Monotonic time until which an instance before this one may have answered the kubelet."""
        self._publish = ledger.bus.publish
        ledger.bus.subscribe(HoldsTaken, self._taken)
        ledger.bus.subscribe(HoldsReleased, self._released)
        ledger.bus.subscribe(ReleasesAdvanced, self._settle_after)

    def _settle_after(self, _: ReleasesAdvanced) -> None:
        self.settle()

    def _released(self, event: HoldsReleased) -> None:
        claims = [hold for hold in event.holds if hold.state is HoldState.PREPARED and not hold.admin]
        self.tenants.gave_back(claims, self._monotonic(), self._clock())
        self.settle()

    def know(self, pods: PodsKnown) -> None:
        """Use this source of knowledge about pods."""
        self.pods = pods
        self._grants.know(pods)

    def read(self, reading: Reading) -> None:
        """Take in a reading of the kubelet."""
        self.plugin.read(reading, self.pods, self._clock())
        self._note_tenants()
        self._note_plugin_door()
        self.settle()

    def attribute(self, recorded: tuple[Holding, ...]) -> None:
        """Take in the kubelet's checkpoint; see ``KubeletAllocations.attribute``."""
        self.plugin.attribute(recorded, self._monotonic())
        self._note_tenants()
        self._publish(ReleasesPending())

    def _note_tenants(self) -> None:
        tenancies = tuple(self.plugin.tenancies())
        self.tenants.note(tenancies)
        self.tenants.forget_proofs({each.uid for each in tenancies})

    def reserve(self, claims: Mapping[str, tuple[Hold, ...]]) -> bool:
        """Take in the claims, by UID, that pods of this node name, with the devices allocated to them.

        Returns whether what the plugin door holds, releases that are pending included, excludes one of these devices.
        """
        self._reserved = claims
        return self.settle()

    def place(self, snapshot: Snapshot, rules: Iterable[Rule]) -> None:
        """Take in the devices and the configured rules."""
        rules = tuple(rules)
        found = ((device, rule_for(device, rules)) for device in snapshot.devices)
        self._devices = tuple((device, rule) for device, rule in found if rule is not None)
        self._rules = {device.name: rule for device, rule in self._devices}
        self._grants.place(snapshot, self._rules)
        self._note_plugin_door()
        shared = ((device.name, rule.shared(device)) for device, rule in self._devices)
        self.plugin.place(
            snapshot,
            {rule.resource_of(device) for device, rule in self._devices},
            {name: found for name, found in shared if found is not None},
        )
        self.settle()

    def _note_plugin_door(self) -> None:
        """Track devices whose rule leaves the plugin door: a pod may still have one, which must be known first."""
        given = frozenset(device.name for device, rule in self._devices if rule.door.has(Door.PLUGIN))
        self._unverified |= self._at_plugin_door - given
        # Processes that pods leave on a device of the plugin door alone concern no other door.
        self._unverified -= {
            device.name
            for device, rule in self._devices
            if rule.door is Doors.PLUGIN and self.states.of(device.name) not in HAD_BY_CLAIM
        }
        self._at_plugin_door = given
        self._grants.remember(given)

    def release(self, device: str) -> bool:
        """Release a device that a person declares free; False if it is not pending release."""
        by_process, by_pod = self.pending_release.release(device), self.tenants.release(device)
        self.settle()
        return by_process or by_pod

    def settle(self) -> bool:
        """Make the ledger agree with everything that is known; returns whether it refuses a claim a pod's device.

        The call that is under way does the work of one that comes meanwhile, which returns False.
        """
        self._unsettled = True
        if self._settling:
            return False
        self._settling = True
        version = self.ledger.version
        refused: list[tuple[str, HeldError]] = []
        try:
            # Again if a device was given back meanwhile: it may need a check.
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
        return bool(refused)

    def begin(self, answered_until: float) -> None:
        """Start to serve the kubelet; the previous instance may have answered it until ``answered_until``."""
        self.plugin.barrier(self._monotonic())
        self.answered_until = answered_until
        self._grants.answered(self.answered_until)

    def changed_over(self, answered_until: float) -> None:
        """The kubelet calls this instance alone; the previous one answered until ``answered_until`` at the latest."""
        self.answered_until = min(self.answered_until, answered_until)
        self._grants.answered(self.answered_until)

    @property
    def known(self) -> bool:
        """Whether the ledger has everything that the plugin door has allocated, through any instance."""
        if not self.plugin.known(self._monotonic()):
            return False
        # Without a rule for the plugin door, no instance allocates a device there that the kubelet does not count.
        shared = any(rule.door.has(Door.PLUGIN) for _, rule in self._devices) or self.plugin.at_kubelet
        return not shared or self.plugin.read_since(self.answered_until)

    def context(
        self,
        *,
        listed: frozenset[str] = frozenset(),
        offered: Mapping[str, float] | None = None,
        healthy: frozenset[str] = frozenset(),
    ) -> OfferContext:
        """The facts that the offers of both doors depend on.

        ``listed``: what the plugin door lists, and ``healthy`` what of it may be allocated; ``offered``: when each
        device was last listed as healthy there (monotonic).
        """
        since = self.plugin.at_kubelet_since
        later = {name for name, when in (offered or {}).items() if since is None or when >= since}
        return OfferContext(
            by_place(self.ledger.all),
            known=self.plugin.known(self._monotonic()),
            settled=self.known,
            at_kubelet=self.plugin.at_kubelet | later,
            listed=listed,
            offered=healthy,
        )

    def _taken(self, event: HoldsTaken) -> None:
        """Allocate and claims take between two settlings; what they give back before the next one was held, too."""
        if self._settling:
            for hold in event.holds:
                # A share of a device that another claim has may be reserved, too.
                if hold.state is HoldState.RESERVED and not hold.admin:
                    state = self.states.of(hold.device)
                    if hold.share and state in IN_USE:
                        # Others have the rest of it, which is what its state tells.
                        continue
                    self.states.move(hold.device, LedgerFacts(claim=state is LedgerState.CLAIM, reserved=True))
            return
        self._note_doors(event.holds)
        has_findings = self.pending_release.has_findings
        for hold in event.holds:
            if hold.admin:
                continue
            if has_findings:
                self.pending_release.taken(hold.device, (hold.device, *hold.within))
            if hold.pods and hold.state is HoldState.PREPARED:
                # It may be given back before anything else is settled, and its pods' containers run on.
                self.tenants.took((hold,))
            state = self.states.of(hold.device)
            takes = LedgerEvent.POD_TAKES if hold.door is Door.PLUGIN else LedgerEvent.CLAIM_TAKES
            # In this state both have it already; most other calls of Allocate find the pod's state as well.
            if state is not LedgerState.BOTH and takes in TRANSITIONS[state]:
                self.states.advance(hold.device, takes)

    def _move_all(self, pods: Collection[str], claims: Iterable[Hold], pending: Collection[str]) -> None:
        """Bring every device to the state that agrees with the current facts."""
        holds = [hold for hold in claims if not hold.admin]
        reserved = {hold.device for hold in holds if hold.state is HoldState.RESERVED}
        prepared = {hold.device for hold in holds if hold.state is not HoldState.RESERVED}
        # What is reserved was found free before, but for reservations that are older than anybody's knowledge.
        unchecked = (self.pending_release.unchecked - reserved) | self.pending_release.wanted().keys()
        for device in sorted({*self.states.names, *pods, *prepared, *reserved, *pending, *unchecked}):
            facts = LedgerFacts(
                device in pods,
                device in prepared,
                device in reserved,
                device in pending,
                device in unchecked,
                bool(self.pending_release.left(device)),
            )
            self.states.move(device, facts)

    def _enter_facts(self) -> None:
        pods = self.plugin.wanted()
        claims = [hold for hold in self.ledger.all if hold.door is Door.DRA]
        held = (*pods.values(), *claims)
        self._order_checks(held)
        now = self._monotonic()
        had = [self._with_users(hold) for hold in held if hold.state is not HoldState.RESERVED]
        self.tenants.update(had, now, self._clock(), is_complete=self._began)
        self._publish(ReleasesPending())
        facts = {hold.owner: hold for hold in pods.values()}
        pending = self.tenants.wanted(now)
        waiting = {hold.device for hold in pending.values()}
        self._move_all({hold.device for hold in pods.values()}, claims, waiting)
        whole = {hold.device for hold in pending.values() if not hold.share}
        for device, hold in self.pending_release.wanted().items():
            if device not in whole:
                # While containers keep one share, claims wait for the check, and pods may have the other shares.
                by_pod = self.states.of(device) in (LedgerState.POD_CHECK, LedgerState.POD_CONTAINERS)
                # The plugin door may allocate the device again while it is checked.
                entered = replace(hold, door=Door.PLUGIN, owner=plugin_owner(hold.device)) if by_pod else hold
                facts.setdefault(entered.owner, entered)
        facts |= {hold.owner: hold for hold in pending.values()}
        for owner in self.ledger.owners:
            if owner not in facts and owner.startswith((plugin_owner(""), pending_owner(""))):
                self.ledger.release(owner)
        conflicts: list[HeldError] = []
        for owner, hold in facts.items():
            if self.ledger.of(owner) != (hold,):
                conflicts += self.ledger.restore(owner, (hold,))
        self._report(conflicts)

    def _with_users(self, hold: Hold) -> Hold:
        """The hold of a prepared claim with the pods that have named it since, which the kubelet does not report."""
        named = {uid for wish in self._reserved.get(hold.owner, ()) for uid in wish.pods} - set(hold.pods)
        return replace(hold, pods=(*hold.pods, *sorted(named))) if named else hold

    def _order_checks(self, held: tuple[Hold, ...]) -> None:
        now = self._monotonic()
        if not self._began and self.plugin.known(now):
            self._began = True
            self._unverified.update(device.name for device, rule in self._devices if rule.door.has(Door.DRA))
            # Earlier reservations cover devices that no check had seen.
            held = tuple(hold for hold in held if hold.state is not HoldState.RESERVED)
        if not self._began:
            # Nothing is known to be free yet, which must not restrict the plugin door.
            return
        self._unverified = {name for name in self._unverified if not self.pending_release.found_free(name)}
        self._note_doors(held)
        shared = [
            device for device, rule in self._devices if rule.door is Doors.BOTH or device.name in self._unverified
        ]
        # A reserved share proves nothing about processes: others may have had shares of the device beside it.
        used = [hold for hold in held if hold.state is not HoldState.RESERVED or not hold.amounts]
        self.pending_release.update(shared, used, now, self._clock())

    def _note_doors(self, held: Iterable[Hold]) -> None:
        """A device held through a door that its rule does not allow must be checked before the other door gets it."""
        for hold in held:
            if hold.door is Door.PLUGIN and hold.device in self._at_plugin_door:
                continue
            rule = self._rules.get(hold.device)
            if rule is not None and hold.door is not None and not rule.door.has(hold.door):
                self._unverified.add(hold.device)

    def _enter_wishes(self) -> list[tuple[str, HeldError]]:
        """Reserve what nothing excludes; returns what the plugin door has allocated."""
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

    def _report(self, conflicts: Iterable[HeldError]) -> None:
        """Log each device with two holders once; both doors withhold it from everybody else."""
        owners = set(self.ledger.owners)
        self._reported = frozenset(pair for pair in self._reported if owners.issuperset(pair))
        prepared = [error for error in conflicts if error.by.state is HoldState.PREPARED]
        for error in prepared:
            if (error.wanted.owner, error.by.owner) not in self._reported:
                log.error("a device has two holders", extra={"device": error.wanted.device, "reason": str(error)})
        self._reported |= {(error.wanted.owner, error.by.owner) for error in prepared}


def _is_wish(holds: tuple[Hold, ...]) -> bool:
    return bool(holds) and all(hold.state is HoldState.RESERVED for hold in holds)
