"""Holds of the node's devices as values, and the rule by which two exclude each other.

Pure functions of plain values, for any thread: ``node.ledger.ledger`` keeps the holds. The rule of overlap
(``conflict``):

- A hold of a device as a whole excludes every other hold of it.
- Shares of one device exclude each other if they are the same share, or if the sum of all shares, through both doors
  and pending release alike, is more than the device has. Shares of different doors also exclude each other if the
  amounts of one are unknown. While no claim has a share, an entry of the kubelet's checkpoint for an unknown pod does
  not keep another pod from one: among pods the kubelet decides, and its checkpoint is older.
- A device that is part of another (a MIG device of its GPU, a virtual function or subfunction of its NIC) excludes the
  whole and the shares of the whole, not its siblings. Two partitions of one GPU exclude each other if they take the
  same memory slices, as far as their slices are known.

A hold names the devices its device is part of, because the inventory forgets devices that are gone while somebody still
holds them. They follow from the device alone (``wholes_of``), even if nobody offers or sees the whole. An AMD compute
partition is not a part of the first one, which has the GPU's name: their device nodes differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from node.inventory.model import NIC_KINDS, Device, DeviceKind, is_gone
from node.inventory.pci import address_label
from node.rules import Door
from node.sharing import Amounts, amount_words, fit_within, left_of
from node.values import Value, quick, value

Id = tuple[str, str]
"""Of the kubelet: resource and id."""


class HoldState(StrEnum):
    """How ostler knows of a hold, and so what it proves."""

    ALLOCATED = "allocated"
    """The plugin door allocated it, and the kubelet has not shown it yet."""
    LISTED = "listed"
    """The kubelet lists a live pod that has it."""
    RECORDED = "recorded"
    """It is in the kubelet's checkpoint alone: an init container, which may still run, or a pod that may be gone."""
    RESERVED = "reserved"
    """Allocated to a claim of a pod that is bound to this node, and not prepared yet."""
    PREPARED = "prepared"
    """A claim that is prepared, or being prepared."""
    PENDING_RELEASE = "draining"
    """The device is free according to the ledger, but may still be in use: containers of a pod that had it still run, a
    process was left on it, or ostler is still checking.

    Its door is None, or the plugin door if that had it last: it still lists the device, and waits before allocating it.
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
    under which the plugin door allocated it; ``ids``: every resource and id that mean it there. ``bound``: the API
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
    ids: tuple[Id, ...] = ()
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
        """The holder and the kind of hold, for people: ``held through the dra door by claim team/one (uid)``."""
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
    what they leave is less than the wanted amount.
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
        # While ostler checks a device that a pod gave back, the plugin door may allocate it and what overlaps it.
        return False
    if one.device == other.device:
        if not one.share or not other.share or one.share == other.share:
            return True
        return one.door is not other.door and not (is_counted(one) and is_counted(other))
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
    if not wanted.share or wanted.admin or not is_counted(wanted) or _fits(wanted, shares):
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


def is_counted(share: Hold) -> bool:
    """Whether it is known how much of the device the share takes."""
    return bool(share.share and share.amounts and share.whole and not share.admin)


def _share_slices(one: Hold, other: Hold) -> bool:
    (start, size), (begin, count) = one.slices or (0, 0), other.slices or (0, 0)
    overlap = start < begin + count and begin < start + size
    return overlap and not set(one.within).isdisjoint(other.within)


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
    """The memory slices of its GPU that a MIG device has to itself: first and number, None if unknown.

    Compute instances that share one GPU instance share its slices.
    """
    start, size = device.attribute("placementStart"), device.attribute("placementSize")
    if device.kind is not DeviceKind.MIG or not isinstance(start, int) or not isinstance(size, int):
        return None
    shared = device.attribute("computeSlices") != device.attribute("gpuSlices")
    return None if shared or is_gone(device) else (start, size)
