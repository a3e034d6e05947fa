"""Decides whether a claim gets its devices: the ledger answers, in one step and without waiting.

Slices and view are a moment older than the ledger, so only the ledger refuses a device because it is held. There are
three kinds of refusal, with three answers. The claim waits for a device that another claim holds or that is about to
become free. It does not wait for a device that a pod got through the plugin door, because that pod may run for months.
As long as the ledger does not know every device that the plugin door has allocated, it takes nothing new; that may
change in a moment.

The scheduler does not know what the kubelet allocates, so it may allocate a device just when a pod gets it through the
plugin door. The claim's pod would then wait for ever, unless a taint on the device evicts it and the scheduler places
it elsewhere. ``Losers`` says which devices get that taint; all of this must hold:

- the claim is waiting: it is not prepared, it is not being released, and its pod still exists;
- a pod that is proved to be alive has the device (``Hold.live``);
- no other claim is prepared with the device, because its pods would be evicted as well.

Claims with adminAccess exclude nobody and never lose a device.
"""

from __future__ import annotations

from collections.abc import Mapping

from driver.claims.book import ClaimBook
from driver.claims.record import ClaimRecord
from node.events import EventBus
from node.ledger.events import OfferChanged
from node.ledger.holds import HeldError, Hold, HoldState, conflict, excludes, pending_owner, plugin_owner
from node.ledger.ledger import Ledger
from node.rules import Door
from node.values import Value, value

_UNKNOWN = "the kubelet has not reported yet which devices pods have through the plugin door, so these may be in use"
_UNKNOWN_ADVICE = "'ostler holds' lists what is missing; the kubelet asks again"
_EVICTED = "the pod of this claim is evicted, and its controller creates a new one, which is scheduled again"
_NOT_EVICTED = (
    "if the API server drops device taints, it waits until the other pod ends; delete it to have it scheduled elsewhere"
)
_SHARED_ADVICE = "it waits until one of them ends; delete its pod to have it scheduled elsewhere"


@value
class AdmissionRefusal(Value):
    """Why a claim cannot take its devices at the moment (``text``), and what ends that (``advice``).

    ``holder``: UID of the claim that holds the device, if one does. ``lost``: the conflicts with pods of the plugin
    door; if there is one, waiting is pointless. ``cause``: the ledger's refusal.
    """

    text: str
    advice: str
    holder: str = ""
    lost: tuple[HeldError, ...] = ()
    cause: HeldError | None = None

    def __str__(self) -> str:
        return f"{self.text}; {self.advice}"


def take(book: ClaimBook, record: ClaimRecord, *, known: bool) -> AdmissionRefusal | None:
    """Take the record's devices; on a conflict change nothing and return the reason.

    ``known``: whether the ledger has every device that the plugin door has allocated.
    """
    if not known and any(not device.admin_access for device in record.devices):
        return AdmissionRefusal(_UNKNOWN, _UNKNOWN_ADVICE)
    try:
        book.take(record)
    except HeldError as error:
        return _refusal(error, _lost(book, record))
    return None


def _lost(book: ClaimBook, record: ClaimRecord) -> tuple[HeldError, ...]:
    """All conflicts of the claim with pods; the ledger reports only its first conflict, which may be another one."""
    errors = (book.ledger.conflict(hold) for hold in record.holds)
    return tuple(error for error in errors if error is not None and lost_to_pod(error))


def _refusal(error: HeldError, lost: tuple[HeldError, ...]) -> AdmissionRefusal:
    if lost:
        error = lost[0]
        return AdmissionRefusal(str(error), _advice_on_pod(error), lost=lost, cause=error)
    by = error.by
    if by.state is HoldState.PENDING_RELEASE:
        if by.owner in (pending_owner(by.device, by.share), plugin_owner(by.device, by.share)):
            advice = f"it becomes free when no process uses it; 'ostler holds release {by.device}' ends the wait"
        else:
            advice = "ostler frees it when that is over, and the kubelet asks again"
        return AdmissionRefusal(str(error), advice, cause=error)
    holder = by.owner if by.door is Door.DRA else ""
    return AdmissionRefusal(str(error), "it becomes free when that claim is released", holder, cause=error)


def _advice_on_pod(error: HeldError) -> str:
    """How to end the conflict with a pod; true whether or not the API server keeps taints."""
    if any(share.door is Door.DRA for share in error.shares):
        # A taint would evict the pods of those claims as well.
        return _SHARED_ADVICE
    when = "" if error.by.live else "once that pod is known to run, "
    return f"{when}{_EVICTED}; {_NOT_EVICTED}"


@value
class LostDevice(Value):
    """The claim ``claim`` (``namespace/name``) waits for ``wanted``; a pod has it, or a device that overlaps it."""

    claim: str
    wanted: Hold


def lost_to_pod(error: HeldError) -> bool:
    """Whether a pod has the device, so that waiting is pointless; one that is pending release soon becomes free."""
    return error.by.door is Door.PLUGIN and error.by.state is not HoldState.PENDING_RELEASE


@value
class DeviceLost(Value):
    """The claim with this UID and ``namespace/name`` was allocated a device that a pod already has."""

    uid: str
    claim: str
    error: HeldError


class Losers:
    """Claims by UID, each with the devices that it lost to pods of the plugin door.

    Publishes ``DeviceLost`` once for every conflict, and ``OfferChanged`` when a conflict begins or a claim is settled.
    """

    def __init__(self, bus: EventBus) -> None:
        self._publish = bus.publish
        self._lost: dict[str, dict[str, LostDevice]] = {}

    def lost(self, uid: str, claim: str, error: HeldError) -> bool:
        """Note that a claim could not take a device; returns whether that is new."""
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
        """Forget the claim: it is prepared or being released, or its pod is gone."""
        if self._lost.pop(uid, None) is not None:
            self._publish(OfferChanged())

    def contested(self, ledger: Ledger) -> frozenset[str]:
        """Devices whose waiting claims must be evicted."""
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
        """The names of the claims that wait for each device; safe to call from any thread, and changes nothing."""
        holds = ledger.all if self._lost else ()
        found: dict[str, set[str]] = {}
        for conflicts in tuple(self._lost.values()):
            for device, lost in tuple(conflicts.items()):
                if _goes_on(lost, holds):
                    found.setdefault(device, set()).add(lost.claim)
        return {device: tuple(sorted(claims)) for device, claims in found.items()}

    def _forget_ended(self, holds: tuple[Hold, ...]) -> None:
        """Drop conflicts that are over because the pod has given the device back."""
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
    """Whether a live pod has the device and an eviction would hit no prepared claim."""
    if any(hold.device == wanted.device and hold.state is HoldState.PREPARED and not hold.admin for hold in holds):
        return False
    if any(hold.live and _in_the_way(hold, wanted) for hold in holds):
        return True
    own = [hold for hold in holds if hold.device == wanted.device and hold.owner != wanted.owner and not hold.admin]
    if any(hold.door is Door.DRA for hold in own):
        # Claims hold shares of it as well: what they wait for is not taken from them.
        return False
    return any(hold.live for hold in own) and _is_crowded_out(wanted, holds)
