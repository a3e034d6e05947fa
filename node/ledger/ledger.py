"""Who holds which device, through which door: the one place that gives devices out and takes them back.

Every source of holds hands in plain ``Hold`` values: what Allocate has just given out, what the kubelet lists for pods,
claims that are prepared or about to be, and devices that are pending release. Invariants: holds that exclude each other
are never both taken, and if both exist on the node all the same (``restore``), neither is forgotten; taking is all or
nothing; a failed taking changes nothing. For the thread of the event loop alone: nothing here waits, so no lock is
needed, and of two that want a device one comes first.

The rule of overlap (``conflict``):

- A hold of a device as a whole excludes every other hold of it.
- Shares of one device exclude each other if they are the same share, or if the sum of all shares, through both doors
  and pending release alike, is more than the device has. Shares of different doors also exclude each other if the
  amounts of one are unknown. While no claim has a share, a pod is not kept from one by what only the kubelet's
  checkpoint has, for a pod that nobody knows: among pods the kubelet decides, and its checkpoint is older.
- A device that is part of another (a MIG device of its GPU, a virtual function or subfunction of its NIC) excludes the
  whole and the shares of the whole, not its siblings. Two partitions of one GPU exclude each other if they take the
  same memory slices, as far as their slices are known.

A hold names the devices its device is part of, because the inventory forgets devices that are gone while somebody still
holds them. They follow from the device alone (``wholes_of``), even if nobody offers or sees the whole. An AMD compute
partition is not a part of the first one, which has the GPU's name: their device nodes differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

from node.events import EventBus
from node.inventory.model import NIC_KINDS, Device, DeviceKind, is_gone
from node.inventory.pci import address_label
from node.rules import Door
from node.sharing import Amounts, amount_words, fit_within, left_of, total
from node.values import Value, quick, value


class HoldState(StrEnum):
    """How ostler knows of a hold, and so what it proves."""

    ALLOCATED = "allocated"
    """The plugin door gave it out, and the kubelet has not shown it yet."""
    LISTED = "listed"
    """The kubelet lists a live pod that has it."""
    RECORDED = "recorded"
    """It is in the kubelet's checkpoint alone: an init container, which may still run, or a pod that may be gone."""
    RESERVED = "reserved"
    """Allocated to a claim of a pod that is bound to this node, and not prepared yet."""
    PREPARED = "prepared"
    """A claim that is prepared, or being prepared."""
    PENDING_RELEASE = "draining"
    """Nobody has it according to the ledger, but it may still be in use: containers of a pod that had it still run, a
    process was left on it, or ostler is still checking.

    Its door is None, or the plugin door if that had it last: it still lists the device, and waits before giving it out.
    """


@quick
@value
class Hold(Value):
    """A device (by name) held through a door by a pod or claim (``namespace/name``) since a time (Unix seconds).

    ``door``: None for a device that is pending release and at neither door. ``owner``: whose holds are entered and
    released together: a claim's UID, ``plugin/<device>`` for all that pods have of a device through the plugin door,
    ``plugin/<device>::<share>`` for one replica of it, ``draining/<device>`` and ``draining/<device>::<share>`` for a
    pending release. ``share``: the share id if several claims share the device, the replica's number at the plugin
    door, else empty. ``admin``: admin access, which excludes nobody. ``within``: names of the devices it is a part of.
    ``amounts``: what a share takes of the device, and ``whole`` the device's total, as ``node.sharing`` counts; both
    empty for the device as a whole and for shares that nobody counts. ``slices``: first and number of the GPU's memory
    slices that a partition takes, None if unknown or if siblings use the same ones. ``resource``: the extended resource
    under which the plugin door gave it out; ``ids``: every resource and id that mean it there. ``bound``: the API
    server has the pod on this node. ``pods``: UIDs of the known pods that have it.
    """

    device: str
    door: Door | None
    holder: str
    since: float
    owner: str = ""
    share: str = ""
    admin: bool = False
    within: tuple[str, ...] = ()
    state: HoldState = HoldState.PREPARED
    resource: str = ""
    bound: bool = False
    ids: tuple[tuple[str, str], ...] = ()
    pods: tuple[str, ...] = ()
    amounts: Amounts = ()
    whole: Amounts = ()
    slices: tuple[int, int] | None = None

    @property
    def live(self) -> bool:
        """Whether a live pod is proved to have it; an Allocate or a checkpoint entry alone proves nothing."""
        return self.state is HoldState.LISTED or (self.state is HoldState.RECORDED and self.bound)

    @property
    def words(self) -> str:
        """Who has it and how, for people: ``held through the dra door by claim team/one (uid)``."""
        if self.door is None or self.state is HoldState.PENDING_RELEASE:
            return f"pending release: {self.holder}"
        shared = f" as share {self.share}" if self.share else ""
        owner = f" ({self.owner})" if self.owner and self.door is Door.DRA else ""
        return f"held through the {self.door} door by {self.holder}{owner}{shared}"


def plugin_owner(device: str, share: str = "") -> str:
    """The owner of all that pods have of a device, or of one replica, through the plugin door."""
    return f"plugin/{device}::{share}" if share else f"plugin/{device}"


def pending_owner(device: str, share: str = "") -> str:
    """The owner of the hold of a device, or of one share, that is pending release."""
    return f"draining/{device}::{share}" if share else f"draining/{device}"


NAMED = 3
"""Most holders of shares that a refusal names."""


class HeldError(Exception):
    """A device cannot be taken: the hold ``by`` in the ledger excludes ``wanted``.

    ``advice``: what to do. ``shares``: all shares of the device, where ``by`` is in the way only together with them:
    what they leave is less than what is wanted.
    """

    def __init__(self, wanted: Hold, by: Hold, advice: str = "", shares: Sequence[Hold] = ()) -> None:
        super().__init__(wanted, by, advice)
        self.wanted = wanted
        self.by = by
        self.advice = advice
        self.shares = tuple(shares)

    def __str__(self) -> str:
        wanted, by = self.wanted, self.by
        advice = f"; {self.advice}" if self.advice else ""
        if self.shares:
            return f"device {wanted.device} {self._too_little()}{advice}"
        what = wanted.device
        if by.device != wanted.device:
            if by.device in wanted.within:
                what = f"{what}, which is part of {by.device},"
            elif wanted.device in by.within:
                what = f"{what}, whose part {by.device}"
            else:
                what = f"{what} takes the same slices of {wanted.within[0]} as {by.device}, which"
        return f"device {what} is {by.words}{advice}"

    def _too_little(self) -> str:
        wanted = self.wanted
        others = [share for share in self.shares if share is not wanted]
        left = left_of(wanted.whole, (share.amounts for share in others))
        asked = tuple((name, left.get(name, 0)) for name, _ in wanted.amounts)
        words = f"has too little left for share {wanted.share}, which takes {amount_words(wanted.amounts)}: "
        words += f"{amount_words(asked)} are left"
        if not others:
            return words
        named = [f"{share.words} ({amount_words(share.amounts)})" for share in others[:NAMED]]
        more = f", and {len(others) - NAMED} more shares are held" if len(others) > NAMED else ""
        return f"{words}; it is {', '.join(named)}{more}"


def excludes(one: Hold, other: Hold) -> bool:
    """Whether the two cannot be held at the same time, whatever they take: symmetric, false for holds of one owner.

    ``conflict`` also adds up the shares of a device.
    """
    if one.admin or other.admin or (one.owner and one.owner == other.owner):
        return False
    if one.door is other.door is Door.PLUGIN and HoldState.PENDING_RELEASE in (one.state, other.state):
        # While ostler checks a device that a pod gave back, the plugin door may give out it and what overlaps it.
        return False
    if one.device == other.device:
        if not one.share or not other.share or one.share == other.share:
            return True
        return one.door is not other.door and not (_is_counted(one) and _is_counted(other))
    if one.device in other.within or other.device in one.within:
        return True
    return one.slices is not None and other.slices is not None and _share_slices(one, other)


def conflict(wanted: Hold, others: Iterable[Hold]) -> HeldError | None:
    """Why the wanted hold cannot be entered beside these, which are the holds of other owners; None if it can.

    Shares of the same owner may be among the others: they count towards the sum and are nothing else in the way.
    """
    shares = []
    for hold in others:
        if excludes(hold, wanted):
            return HeldError(wanted, hold)
        if hold.share and hold.device == wanted.device and not hold.admin:
            shares.append(hold)
    if not wanted.share or wanted.admin or not _is_counted(wanted) or _fits(wanted, shares):
        return None
    if wanted.door is Door.PLUGIN and all(share.door is Door.PLUGIN for share in shares):
        shares = [share for share in shares if share.state is not HoldState.RECORDED or share.bound]
        if _fits(wanted, shares):
            return None
    return HeldError(wanted, _in_the_way(wanted, shares), shares=shares or (wanted,))


def _in_the_way(wanted: Hold, shares: Sequence[Hold]) -> Hold:
    """The share that a wanted one waits for: one that is about to be free, of its own door, or of the other door."""
    pending = [share for share in shares if share.state is HoldState.PENDING_RELEASE]
    lasting = [share for share in shares if share.state is not HoldState.PENDING_RELEASE]
    if pending and _fits(wanted, lasting):
        return pending[0]
    own = [share for share in lasting if share.door is wanted.door]
    if own and not _fits(wanted, own):
        return own[0]
    return next((share for share in lasting if share.door is not wanted.door), wanted)


def _fits(wanted: Hold, shares: Iterable[Hold]) -> bool:
    return fit_within((wanted.amounts, *(share.amounts for share in shares)), wanted.whole)


def _is_counted(share: Hold) -> bool:
    return bool(share.share and share.amounts and share.whole and not share.admin)


def _are_shares(one: Hold, other: Hold) -> bool:
    """Whether both are shares of one device, which are added up instead of compared."""
    return bool(one.share and other.share and one.device == other.device)


def _share_slices(one: Hold, other: Hold) -> bool:
    (start, size), (begin, count) = one.slices or (0, 0), other.slices or (0, 0)
    overlap = start < begin + count and begin < start + size
    return overlap and not set(one.within).isdisjoint(other.within)


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
        """How often each share is held: more than once only where the world has it so."""
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
        self._shares: dict[str, _Shares] = {}
        """By device the owners of one counted share each."""

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
        wanted: dict[str, list[Hold]] = {owner: [] for owner in ended}
        for hold in holds:
            wanted.setdefault(hold.owner, []).append(hold)
        if not self._have_room(holds, wanted.keys()):
            times = Counter(hold.device for hold in holds)
            # What is neither a part nor a share nor there twice is in nobody's way here.
            parts = [hold for hold in holds if hold.within or hold.share or times[hold.device] > 1]
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
        self.version += bool(released)
        if len(released) == 1 and _is_counted(released[0]):
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
        """Which of these can be held together beside what is there but for the ``replaced`` owners, and why not others.

        ``parts``: those that others of them may exclude.
        """
        taken: list[Hold] = []
        refused: list[HeldError] = []
        shares: dict[str, list[Hold]] = {}
        for hold in wanted:
            if hold.share and not shares.setdefault(hold.device, []) and self._has_room((hold,), replaced):
                error = None
            else:
                # Those before it of the same call count, whoever they are of.
                error = conflict(hold, [*self._around(hold, replaced), *shares.get(hold.device, ())])
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

    def _have_room(self, wanted: Iterable[Hold], replaced: Collection[str]) -> bool:
        """Whether all of these are shares that fit: a pod may ask for a thousand, which are not compared in pairs."""
        shares: dict[str, list[Hold]] = {}
        for hold in wanted:
            if not hold.share:
                return False
            shares.setdefault(hold.device, []).append(hold)
        return all(self._has_room(each, replaced) for each in shares.values())

    def _has_room(self, wanted: Sequence[Hold], replaced: Collection[str]) -> bool:
        """Whether shares of one device fit beside counted shares alone, without a look at each."""
        left, names = dict(wanted[0].whole), {hold.share for hold in wanted}
        if len(names) < len(wanted):
            return False
        if any(hold.within or hold.admin or not _is_counted(hold) or hold.whole != wanted[0].whole for hold in wanted):
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
        owners = self._by_place.get(wanted.device, {})
        for place in wanted.within:
            # Whoever holds a part is at the place of its whole, too.
            owners = {**owners, **self._by_place.get(place, {})}
        return [hold for owner in owners if owner not in replaced for hold in self._by_owner[owner]]

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
        before = self._forget(owner)
        if holds:
            self._by_owner[owner] = holds
            self.version += 1
            if len(holds) == 1 and _is_counted(holds[0]):
                self._shares.setdefault(holds[0].device, _Shares()).add(owner, holds[0])
        for hold in holds:
            for place in (hold.device, *hold.within):
                self._by_place.setdefault(place, {})[owner] = None
        return before

    def _announce(self, holds: tuple[Hold, ...], before: Iterable[Hold]) -> None:
        """Publish the holds entered, and those of ``before`` that have ended."""
        if holds:
            self.bus.publish(HoldsTaken(holds))
        kept = {(hold.device, hold.share, hold.admin) for hold in holds}
        taken = {hold.device for hold in holds}
        given_back = tuple(
            [
                hold
                for hold in before
                # What was about to be free is not given back by being taken.
                if (hold.device, hold.share, hold.admin) not in kept
                and not (hold.state is HoldState.PENDING_RELEASE and hold.device in taken)
            ]
        )
        if given_back:
            self.bus.publish(HoldsReleased(given_back))


def wholes_of(device: Device) -> tuple[str, ...]:
    """Names of the devices that this one is a part of; some of them may not exist."""
    if device.kind is DeviceKind.MIG:
        return (device.parent,) if device.parent else ()
    if device.text("sriovFunction") in ("vf", "sf"):
        address = device.text("pfPciAddress")
        # The kind of its physical function is unknown here; only one of the two names can exist.
        kinds = NIC_KINDS if device.kind in NIC_KINDS else (device.kind,)
        return tuple(f"{kind}-{address_label(address)}" for kind in kinds) if address else ()
    return ()


def slices_of(device: Device) -> tuple[int, int] | None:
    """The memory slices of its GPU that a MIG device has to itself: first and number, None where that is unknown.

    Compute instances that share one GPU instance share its slices.
    """
    start, size = device.attribute("placementStart"), device.attribute("placementSize")
    if device.kind is not DeviceKind.MIG or not isinstance(start, int) or not isinstance(size, int):
        return None
    shared = device.attribute("computeSlices") != device.attribute("gpuSlices")
    return None if shared or is_gone(device) else (start, size)
