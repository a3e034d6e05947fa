"""Who holds which device, through which door: the one place that gives devices out and takes them back.

Every source of holds hands in plain ``Hold`` values; today there is one, the prepared claims. Invariants: two holds
that exclude each other are never both in the ledger, except where a restart finds them so on disk (``restore``), and
then neither is forgotten; taking is all or nothing; a failed taking changes nothing. For the thread of the event loop
alone: nothing here waits, so no lock is needed and two claims cannot both be first.

A device that is part of another (a MIG device of its GPU, a virtual function of its NIC) excludes the whole, not its
siblings. What a device is part of is written into its hold, because the inventory forgets devices that are gone while
somebody still holds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from node.rules import Door
from node.values import Value, value


@value
class Hold(Value):
    """A device (by name) held through a door by a pod or claim (``namespace/name``) since a time (Unix seconds).

    ``owner``: UID of that pod or claim. ``share``: the share id where a device is given to several claims, else empty.
    ``admin``: for looking only, beside whoever holds the device. ``within``: names of the devices it is a part of.
    """

    device: str
    door: Door
    holder: str
    since: float
    owner: str = ""
    share: str = ""
    admin: bool = False
    within: tuple[str, ...] = ()


class HeldError(Exception):
    """A device cannot be taken: ``wanted`` is refused because of ``by``, which is in the ledger."""

    def __init__(self, wanted: Hold, by: Hold) -> None:
        what = wanted.device
        if by.device != wanted.device:
            part = by.device in wanted.within
            what = f"{what}, which is part of {by.device}," if part else f"{what}, whose part {by.device}"
        shared = f" as share {by.share}" if by.share else ""
        super().__init__(f"device {what} is held through the {by.door} door by {by.holder} ({by.owner}){shared}")
        self.wanted = wanted
        self.by = by


def excludes(one: Hold, other: Hold) -> bool:
    """Whether the two cannot be held at a time: symmetric, and false among the holds of one owner.

    A device may have several holders if each has a share of its own of it.
    """
    if one.admin or other.admin or (one.owner and one.owner == other.owner):
        return False
    if one.device == other.device:
        return one.door is not other.door or not one.share or not other.share or one.share == other.share
    return one.device in other.within or other.device in one.within


class Ledger:
    """All holds of this node; see the module for what is always true of it."""

    def __init__(self) -> None:
        self._by_owner: dict[str, tuple[Hold, ...]] = {}
        self._by_place: dict[str, dict[str, None]] = {}
        """Owners by every device that a hold of theirs is or is within: where a conflict can be."""

    def take(self, owner: str, holds: Iterable[Hold]) -> None:
        """Enter an owner's holds in place of those it has; raises HeldError and changes nothing if one is excluded."""
        wanted = tuple(holds)
        for hold in wanted:
            by = self.obstacle(hold)
            if by is not None:
                raise HeldError(hold, by)
        self._enter(owner, wanted)

    def restore(self, owner: str, holds: Iterable[Hold]) -> tuple[HeldError, ...]:
        """Enter what was found on disk, excluded or not: whoever had it may still use it. Returns the conflicts."""
        wanted = tuple(holds)
        conflicts = [HeldError(hold, by) for hold in wanted if (by := self.obstacle(hold)) is not None]
        self._enter(owner, wanted)
        return tuple(conflicts)

    def release(self, owner: str) -> tuple[Hold, ...]:
        """Forget everything that the owner holds; returns it, nothing if it held nothing."""
        released = self._by_owner.pop(owner, ())
        for hold in released:
            for place in (hold.device, *hold.within):
                owners = self._by_place.get(place)
                if owners is not None:
                    owners.pop(owner, None)
                    if not owners:
                        del self._by_place[place]
        return released

    def obstacle(self, wanted: Hold) -> Hold | None:
        """The first hold in the ledger that excludes this one."""
        for place in (wanted.device, *wanted.within):
            for owner in self._by_place.get(place, ()):
                for hold in self._by_owner[owner]:
                    if excludes(hold, wanted):
                        return hold
        return None

    def of(self, owner: str) -> tuple[Hold, ...]:
        """What an owner holds."""
        return self._by_owner.get(owner, ())

    @property
    def all(self) -> tuple[Hold, ...]:
        """Every hold, owners in the order in which they came."""
        return tuple(hold for holds in self._by_owner.values() for hold in holds)

    def by_device(self) -> Mapping[str, Hold]:
        """For every held device the hold that decides what doors show of it; admin access decides nothing."""
        deciding: dict[str, Hold] = {}
        for hold in self.all:
            if not hold.admin:
                deciding.setdefault(hold.device, hold)
        return deciding

    def _enter(self, owner: str, holds: tuple[Hold, ...]) -> None:
        if any(hold.owner != owner for hold in holds):
            raise ValueError(f"holds of somebody else are entered for {owner}")
        self.release(owner)
        if holds:
            self._by_owner[owner] = holds
        for hold in holds:
            for place in (hold.device, *hold.within):
                self._by_place.setdefault(place, {})[owner] = None
