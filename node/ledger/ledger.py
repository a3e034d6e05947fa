"""Who holds which device, through which door: the one place that allocates devices and takes them back.

Every source of holds hands in plain ``Hold`` values: what an Allocate has just taken, what the kubelet lists for pods,
claims that are prepared or about to be, and devices that are pending release. Invariants: holds that exclude each other
(``node.ledger.holds.conflict``) are never both taken, and if both exist on the node anyway (``restore``), neither is
forgotten; a change enters all of its holds or none. For the thread of the event loop alone: nothing
here waits, so no lock is needed, and of two that want a device one comes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from node.events import EventBus
from node.ledger.holds import HeldError, Hold, HoldState, conflict, excludes, is_counted
from node.rules import Door
from node.sharing import total
from node.values import Value, quick, value


@quick
@value
class HoldsTaken(Value):
    """Holds that were entered in one step, for the first time or in place of their owners' earlier holds."""

    holds: tuple[Hold, ...]


@value
class HoldsReleased(Value):
    """Holds that an owner has given back; its remaining holds are in the ledger already."""

    holds: tuple[Hold, ...]


class _Shares:
    """Owners that have one counted share of a device each and nothing else of it, with their sum."""

    def __init__(self) -> None:
        self.holds: dict[str, Hold] = {}
        self.names: dict[str, int] = {}
        """How often each share is held: more than once only if the node was found like that."""
        self.taken: dict[str, int] = {}

    def add(self, owner: str, hold: Hold) -> None:
        """The owner holds this from now on."""
        self.holds[owner] = hold
        self._count(hold, 1)

    def remove(self, owner: str) -> None:
        """The owner holds it no longer."""
        self._count(self.holds.pop(owner), -1)

    def _count(self, hold: Hold, sign: int) -> None:
        self.names[hold.share] = self.names.get(hold.share, 0) + sign
        for name, amount in hold.amounts:
            self.taken[name] = self.taken.get(name, 0) + sign * amount


_NOBODY: Mapping[str, None] = MappingProxyType({})


class Ledger:
    """All holds of this node; see the module for the invariants.

    ``bus``: publishes ``HoldsTaken``, ``HoldsReleased``, and the events of the parts around the ledger.
    """

    def __init__(self) -> None:
        self.bus = EventBus()
        self.version = 0
        """Grows with every change."""
        self._by_owner: dict[str, tuple[Hold, ...]] = {}
        self._by_place: dict[str, dict[str, None]] = {}
        """Owners by every device that they hold or hold a part of: where a conflict can be."""
        self._claiming: set[str] = set()
        """Owners that have a hold through the DRA door."""
        self._shares: dict[str, _Shares] = {}
        """By device, the owners of one counted share each."""

    def take(self, owner: str, holds: Iterable[Hold]) -> None:
        """Enter an owner's holds in place of its earlier ones; raises HeldError, changing none, if one is excluded."""
        wanted = tuple(holds)
        refused = self.conflict(wanted[0]) if len(wanted) == 1 else next(iter(self._judged(wanted, (owner,))[1]), None)
        if refused is not None:
            raise refused
        self._enter(owner, wanted)

    def take_each(self, holds: Iterable[Hold], ended: Collection[str] = ()) -> None:
        """Enter holds of several owners, each in place of all that its owner has, and forget ``ended`` owners.

        All or none: raises HeldError, also where two of them exclude each other.
        """
        holds = tuple(holds)
        if len(holds) == 1 and not ended:
            self.take(holds[0].owner, holds)
            return
        if not ended and self._are_apart(holds):
            self._announce(holds, self._replace_each(holds))
            return
        wanted: dict[str, list[Hold]] = {owner: [] for owner in ended}
        for hold in holds:
            wanted.setdefault(hold.owner, []).append(hold)
        if not self._have_room(holds, wanted.keys()):
            # A whole device that is asked for once excludes no other of these.
            several = len({hold.device for hold in holds}) < len(holds)
            times = Counter(hold.device for hold in holds) if several else {}
            parts = [hold for hold in holds if hold.within or hold.share or times.get(hold.device, 0) > 1]
            _, refused = self._judged(holds, wanted.keys(), parts)
            if refused:
                raise refused[0]
        before = [hold for owner, each in wanted.items() for hold in self._replace(owner, tuple(each))]
        self._announce(holds, before)

    def reserve(self, owner: str, holds: Iterable[Hold]) -> tuple[HeldError, ...]:
        """Enter those of an owner's holds that nothing excludes, in place of its earlier ones; returns the obstacles.

        A claim that waits for one device keeps its other devices from being given away meanwhile.
        """
        free, refused = self._judged(tuple(holds), (owner,))
        if free != self.of(owner):
            self._enter(owner, free)
        return refused

    def restore(self, owner: str, holds: Iterable[Hold]) -> tuple[HeldError, ...]:
        """Enter holds that exist on the node, excluded or not: their holder may use them. Returns the conflicts."""
        wanted = tuple(holds)
        _, conflicts = self._judged(wanted, (owner,))
        self._enter(owner, wanted)
        return conflicts

    def release(self, owner: str) -> tuple[Hold, ...]:
        """Forget all holds of the owner, and return them."""
        released = self._forget(owner)
        if released:
            self.bus.publish(HoldsReleased(released))
        return released

    def _forget(self, owner: str) -> tuple[Hold, ...]:
        released = self._by_owner.pop(owner, ())
        self._claiming.discard(owner)
        self.version += bool(released)
        if len(released) == 1 and is_counted(released[0]):
            self._shares[released[0].device].remove(owner)
        for hold in released:
            for place in (hold.device, *hold.within):
                owners = self._by_place.get(place)
                if owners is not None:
                    owners.pop(owner, None)
                    if not owners:
                        del self._by_place[place]
        return released

    def conflict(self, wanted: Hold) -> HeldError | None:
        """Why this hold cannot be taken beside what other owners hold; None if it can."""
        if wanted.share and self._has_room((wanted,), (wanted.owner,)):
            return None
        return conflict(wanted, self._around(wanted, (wanted.owner,)))

    def obstacle(self, wanted: Hold) -> Hold | None:
        """The first hold in the ledger that excludes this one, alone or with other shares of the device."""
        error = self.conflict(wanted)
        return None if error is None else error.by

    def _judged(
        self, wanted: tuple[Hold, ...], replaced: Collection[str], parts: Sequence[Hold] = ()
    ) -> tuple[tuple[Hold, ...], tuple[HeldError, ...]]:
        """Which of these can be held beside the existing holds of owners other than ``replaced``, and why not others.

        ``parts``: those that others of them may exclude.
        """
        taken: list[Hold] = []
        refused: list[HeldError] = []
        shares: dict[str, list[Hold]] = {}
        for hold in wanted:
            if hold.share and not shares.setdefault(hold.device, []) and self._has_room((hold,), replaced):
                error = None
            else:
                # Earlier holds of the same call count, whoever their owners are.
                around = [*self._around(hold, replaced), *shares.get(hold.device, ())]
                error = conflict(hold, around) if around or hold.share else None
            if error is None and parts:
                others = (part for part in parts if part is not hold and not _are_shares(part, hold))
                by = next((part for part in others if excludes(part, hold)), None)
                error = HeldError(hold, by) if by is not None else None
            if error is not None:
                refused.append(error)
                continue
            taken.append(hold)
            if hold.share and not hold.admin:
                shares[hold.device].append(hold)
        return tuple(taken), tuple(refused)

    def _are_apart(self, wanted: Sequence[Hold]) -> bool:
        """Whether these are whole devices, each for an owner of its own, and nobody else holds any of one.

        So it is with most calls of Allocate, and then nothing needs to be compared in pairs.
        """
        devices, owners, held = set(), set(), self._by_place
        for hold in wanted:
            device, owner = hold.device, hold.owner
            holding = held.get(device)
            if hold.share or hold.within or hold.admin or (holding and (len(holding) > 1 or owner not in holding)):
                return False
            devices.add(device)
            owners.add(owner)
        return len(devices) == len(owners) == len(wanted)

    def _have_room(self, wanted: Iterable[Hold], replaced: Collection[str]) -> bool:
        """Whether all of these are shares that fit: a pod may ask for a thousand, which are not compared in pairs."""
        shares: dict[str, list[Hold]] = {}
        for hold in wanted:
            if not hold.share:
                return False
            shares.setdefault(hold.device, []).append(hold)
        return all(self._has_room(each, replaced) for each in shares.values())

    def _has_room(self, wanted: Sequence[Hold], replaced: Collection[str]) -> bool:
        """Whether shares of one device fit beside counted shares alone, without comparing it with each."""
        left, names = dict(wanted[0].whole), {hold.share for hold in wanted}
        if len(names) < len(wanted):
            return False
        if any(hold.within or hold.admin or not is_counted(hold) or hold.whole != wanted[0].whole for hold in wanted):
            return False
        owners = self._by_place.get(wanted[0].device, _NOBODY)
        if owners:
            held = self._shares.get(wanted[0].device) or _Shares()
            if len(held.holds) != len(owners):
                others = (hold for owner in owners if owner not in held.holds for hold in self._by_owner[owner])
                if not all(hold.admin for hold in others):
                    return False
            before = [hold for owner in replaced if (hold := held.holds.get(owner)) is not None]
            own = Counter(hold.share for hold in before)
            if any(held.names.get(name, 0) > own[name] for name in names):
                return False
            for name, amount in held.taken.items():
                left[name] = left.get(name, 0) - amount
            for name, amount in total(hold.amounts for hold in before).items():
                left[name] += amount
        return all(amount <= left.get(name, 0) for name, amount in total(hold.amounts for hold in wanted).items())

    def _around(self, wanted: Hold, replaced: Collection[str]) -> list[Hold]:
        """Everything that could be in the way of a hold, but for what the ``replaced`` owners have."""
        owners: Mapping[str, None] = self._by_place.get(wanted.device, _NOBODY)
        for place in wanted.within:
            # A hold of a part is at the place of its whole, too.
            owners = {**owners, **self._by_place.get(place, {})}
        return [hold for owner in owners if owner not in replaced for hold in self._by_owner[owner]]

    def has_claims(self, places: Iterable[str]) -> bool:
        """Whether an owner that holds one of these devices, or a part of one, has any hold through the DRA door."""
        if not self._claiming:
            return False
        return any(not self._claiming.isdisjoint(self._by_place.get(place, ())) for place in places)

    def of(self, owner: str) -> tuple[Hold, ...]:
        """All holds of an owner."""
        return self._by_owner.get(owner, ())

    @property
    def owners(self) -> tuple[str, ...]:
        """All owners, in the order in which they came."""
        return tuple(self._by_owner)

    @property
    def all(self) -> tuple[Hold, ...]:
        """Every hold, by owner in the order in which they came; safe from any thread."""
        return tuple([hold for holds in tuple(self._by_owner.values()) for hold in holds])

    def by_device(self) -> Mapping[str, Hold]:
        """The first hold of every held device, without admin access."""
        first: dict[str, Hold] = {}
        for hold in self.all:
            if not hold.admin:
                first.setdefault(hold.device, hold)
        return first

    def _enter(self, owner: str, holds: tuple[Hold, ...]) -> None:
        self._announce(holds, self._replace(owner, holds))

    def _replace(self, owner: str, holds: tuple[Hold, ...]) -> tuple[Hold, ...]:
        """Enter an owner's holds without publishing anything; returns its earlier ones."""
        for hold in holds:
            if hold.owner != owner:
                raise ValueError(f"{owner} cannot enter a hold of {hold.owner}")
        before = self._by_owner.get(owner, ())
        if len(before) == len(holds) == 1 and _are_alike(before[0], holds[0]):
            self._renew(owner, holds)
            return before
        self._forget(owner)
        if not holds:
            return before
        self._by_owner[owner] = holds
        self.version += 1
        if len(holds) == 1 and is_counted(holds[0]):
            self._shares.setdefault(holds[0].device, _Shares()).add(owner, holds[0])
        for hold in holds:
            if hold.door is Door.DRA:
                self._claiming.add(owner)
            for place in (hold.device, *hold.within):
                self._by_place.setdefault(place, {})[owner] = None
        return before

    def _replace_each(self, holds: Iterable[Hold]) -> list[Hold]:
        """Enter holds that are apart (``_are_apart``); returns the earlier ones, without those that are taken again.

        ``_announce`` would leave these out: a hold of the same device and share that is taken again has not ended.
        """
        before: list[Hold] = []
        by_owner = self._by_owner
        for hold in holds:
            owner = hold.owner
            earlier = by_owner.get(owner, ())
            if len(earlier) == 1 and _are_alike(earlier[0], hold):
                self._renew(owner, (hold,))
            else:
                before += self._replace(owner, (hold,))
        return before

    def _renew(self, owner: str, holds: tuple[Hold, ...]) -> None:
        """Enter a hold in place of one that is alike (``_are_alike``)."""
        # Owners are in the order in which they last took devices.
        del self._by_owner[owner]
        self._by_owner[owner] = holds
        self.version += 1

    def _announce(self, holds: tuple[Hold, ...], before: Collection[Hold]) -> None:
        """Publish the holds entered, and those of ``before`` that have ended."""
        if holds:
            self.bus.publish(HoldsTaken(holds))
        if not before:
            return
        kept = {(hold.device, hold.share, hold.admin) for hold in holds}
        ended = [hold for hold in before if (hold.device, hold.share, hold.admin) not in kept]
        if not ended:
            return
        taken = {hold.device for hold in holds}
        # What was about to be free is not given back by being taken.
        freed = [hold for hold in ended if hold.state is not HoldState.PENDING_RELEASE or hold.device not in taken]
        if freed:
            self.bus.publish(HoldsReleased(tuple(freed)))


def _are_alike(one: Hold, other: Hold) -> bool:
    """Whether both are of the same whole device, through the same door and with the same access.

    Where a conflict can be stays the same, and to take one in place of the other ends nothing.
    """
    if one.share or other.share or one.within or other.within:
        return False
    return one.device == other.device and one.door is other.door and one.admin == other.admin


def _are_shares(one: Hold, other: Hold) -> bool:
    """Whether both are shares of one device, which are added up instead of compared."""
    return bool(one.share and other.share and one.device == other.device)
