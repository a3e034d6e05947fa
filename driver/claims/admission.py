"""Whether a claim gets its devices: the ledger decides, in one step without waiting.

What the slices and the view said a moment ago is behind what the ledger knows now, so nothing but the ledger refuses a
device because it is held. Three kinds of refusal need three answers. A device that another claim has, or that is about
to be free, is waited for. A device that a pod has through the plugin door is not, because that pod may run for months.
While the devices that the plugin door has given out are not all known, nothing new is taken, but they may be known in a
moment.

The scheduler does not know what the kubelet gives out, so it may allocate a device in the moment in which a pod gets it
through the plugin door. The claim's pod then waits here for ever, unless a taint on the device evicts it and it is
scheduled elsewhere. ``Losers`` says which devices get that taint; all of this must hold:

- the claim is waiting: it is not prepared, it is not being released, and its pod is still there;
- a pod is proved to live that has the device (``Hold.live``);
- no other claim is prepared with the device, because its pods would be evicted as well.

Claims with adminAccess are in nobody's way and never lose a device.
"""

from __future__ import annotations

from collections.abc import Mapping

from driver.claims.book import ClaimBook
from driver.claims.record import ClaimRecord
from node.events import EventBus
from node.ledger.events import OfferChanged
from node.ledger.holds import HeldError, Hold, HoldState, conflict, excludes
from node.ledger.ledger import Ledger
from node.rules import Door
from node.values import Value, value

_UNKNOWN = "the kubelet has not reported yet which devices pods have through the plugin door, so these may be in use"
_UNKNOWN_ADVICE = "'ostler holds' says what is missing; the kubelet asks again"
_EVICTED = "the pod of this claim is evicted, so that its controller creates one that is scheduled again"
_NOT_EVICTED = (
    "if the API server drops device taints, it waits until the other pod ends; delete it to have it scheduled elsewhere"
)
_SHARED_ADVICE = "it waits until one of them ends; delete its pod to have it scheduled elsewhere"


@value
class AdmissionRefusal(Value):
    """``text``: why the devices cannot be taken at the moment; ``advice``: what ends that.

    ``holder``: UID of the claim that is in the way, if one is. ``lost``: everything that pods have through the plugin
    door, if anything, so that waiting is pointless. ``cause``: what the ledger said.
    """

    text: str
    advice: str
    holder: str = ""
    lost: tuple[HeldError, ...] = ()
    cause: HeldError | None = None

    def __str__(self) -> str:
        return f"{self.text}; {self.advice}"


def take(book: ClaimBook, record: ClaimRecord, *, known: bool) -> AdmissionRefusal | None:
    """Take the record's devices, or change nothing and say why not.

    ``known``: whether everything that the plugin door has given out is in the ledger.
    """
    if not known and any(not device.admin_access for device in record.devices):
        return AdmissionRefusal(_UNKNOWN, _UNKNOWN_ADVICE)
    try:
        book.take(record)
    except HeldError as error:
        return _refusal(error, _lost(book, record))
    return None


def _lost(book: ClaimBook, record: ClaimRecord) -> tuple[HeldError, ...]:
    """All that pods have of it: the first thing in the way may be another one."""
    errors = (book.ledger.conflict(hold) for hold in record.holds)
    return tuple(error for error in errors if error is not None and lost_to_pod(error))


def _refusal(error: HeldError, lost: tuple[HeldError, ...]) -> AdmissionRefusal:
    if lost:
        error = lost[0]
        return AdmissionRefusal(str(error), _advice_on_pod(error), lost=lost, cause=error)
    by = error.by
    if by.state is HoldState.PENDING_RELEASE:
        advice = f"it becomes free when no process uses it; 'ostler holds release {by.device}' ends the wait"
        return AdmissionRefusal(str(error), advice, cause=error)
    holder = by.owner if by.door is Door.DRA else ""
    return AdmissionRefusal(str(error), "it becomes free when that claim is released", holder, cause=error)


def _advice_on_pod(error: HeldError) -> str:
    """Whether taints are kept is not known here, so that what is said is true where they are dropped as well."""
    if any(share.door is Door.DRA for share in error.shares):
        # A taint would evict the pods of those claims, too.
        return _SHARED_ADVICE
    when = "" if error.by.live else "once that pod is known to run, "
    return f"{when}{_EVICTED}; {_NOT_EVICTED}"


@value
class LostDevice(Value):
    """``claim`` (``namespace/name``) waits for ``wanted``; a pod had it, or what overlaps it."""

    claim: str
    wanted: Hold


def lost_to_pod(error: HeldError) -> bool:
    """Whether a pod has the device, so that waiting is pointless; one that is pending release is about to be free."""
    return error.by.door is Door.PLUGIN and error.by.state is not HoldState.PENDING_RELEASE


@value
class DeviceLost(Value):
    """A claim, by UID and ``namespace/name``, was allocated a device that it cannot have: a pod has it."""

    uid: str
    claim: str
    error: HeldError


class Losers:
    """Claims by UID, each with the devices that it lost.

    Publishes ``DeviceLost`` once for every conflict, and ``OfferChanged`` when one begins or a claim is settled.
    """

    def __init__(self, bus: EventBus) -> None:
        self._publish = bus.publish
        self._lost: dict[str, dict[str, LostDevice]] = {}

    def lost(self, uid: str, claim: str, error: HeldError) -> bool:
        """A claim could not take a device; whether that is new."""
        if not lost_to_pod(error) or error.wanted.admin:
            return False
        conflicts = self._lost.setdefault(uid, {})
        if error.wanted.device in conflicts:
            return False
        conflicts[error.wanted.device] = LostDevice(claim, error.wanted)
        self._publish(DeviceLost(uid, claim, error))
        self._publish(OfferChanged())
        return True

    def settled(self, uid: str) -> None:
        """The claim is prepared, is being released, or its pod is gone."""
        if self._lost.pop(uid, None) is not None:
            self._publish(OfferChanged())

    def contested(self, ledger: Ledger) -> frozenset[str]:
        """Devices whose claims are to be evicted."""
        if not self._lost:
            return frozenset()
        holds = ledger.all
        self._forget_ended(holds)
        return frozenset(
            device
            for conflicts in self._lost.values()
            for device, conflict in conflicts.items()
            if _is_proved(conflict.wanted, holds)
        )

    def by_device(self, ledger: Ledger) -> Mapping[str, tuple[str, ...]]:
        """The claims that wait for each device, by name; may be asked by any thread, and forgets nothing."""
        holds = ledger.all if self._lost else ()
        found: dict[str, set[str]] = {}
        for conflicts in tuple(self._lost.values()):
            for device, lost in tuple(conflicts.items()):
                if _goes_on(lost, holds):
                    found.setdefault(device, set()).add(lost.claim)
        return {device: tuple(sorted(claims)) for device, claims in found.items()}

    def _forget_ended(self, holds: tuple[Hold, ...]) -> None:
        """Conflicts that ended because the pod gave the device back are none any more."""
        for uid, conflicts in [*self._lost.items()]:
            for device, lost in [*conflicts.items()]:
                if not _goes_on(lost, holds):
                    del conflicts[device]
            if not conflicts:
                del self._lost[uid]


def _goes_on(lost: LostDevice, holds: tuple[Hold, ...]) -> bool:
    return any(_in_the_way(hold, lost.wanted) for hold in holds) or _is_crowded_out(lost.wanted, holds)


def _is_crowded_out(wanted: Hold, holds: tuple[Hold, ...]) -> bool:
    """Whether pods' shares of the device leave too little for the wanted one."""
    error = conflict(wanted, [hold for hold in holds if hold.owner != wanted.owner]) if wanted.share else None
    return error is not None and bool(error.shares) and lost_to_pod(error)


def _in_the_way(hold: Hold, wanted: Hold) -> bool:
    return lost_to_pod(HeldError(wanted, hold)) and excludes(hold, wanted)


def _is_proved(wanted: Hold, holds: tuple[Hold, ...]) -> bool:
    """Whether a live pod has it, and no claim that is prepared would be evicted with, or as, the one that waits."""
    if any(hold.device == wanted.device and hold.state is HoldState.PREPARED and not hold.admin for hold in holds):
        return False
    if any(hold.live and _in_the_way(hold, wanted) for hold in holds):
        return True
    own = [hold for hold in holds if hold.device == wanted.device and hold.owner != wanted.owner and not hold.admin]
    if any(hold.door is Door.DRA for hold in own):
        # What they wait for is not taken from them.
        return False
    return any(hold.live for hold in own) and _is_crowded_out(wanted, holds)
