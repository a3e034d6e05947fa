"""The last word on whether a claim gets its devices: the ledger's, in one step without waiting.

What the slices and the view said a moment ago is behind what the ledger knows now, so nothing but the ledger refuses a
device for being held. Three kinds of refusal call for three answers: a device that another claim has, or that drains,
is waited for; one that a pod has through the plugin door is not, because that pod may run for months; and while it is
not known what that door has given out nothing new is taken, but what is missing may be known in a moment.
"""

from __future__ import annotations

from collections.abc import Callable

from driver.claims.book import ClaimBook
from driver.claims.losers import lost_to_pod
from driver.claims.plan import holds_of
from driver.claims.record import ClaimRecord
from node.ledger.ledger import HeldError, HoldState
from node.rules import Door
from node.values import Value, value

_UNKNOWN = "the kubelet has not told yet which devices pods have through the plugin door, so these may be in use"
_UNKNOWN_ADVICE = "'ostler holds' says what is missing; the kubelet asks again"
_EVICTED = "the pod of this claim is evicted, so that its controller makes one that is scheduled anew"
_NOT_EVICTED = (
    "where the API server drops device taints it waits until the other pod ends, or is deleted to be scheduled anew"
)


@value
class Refusal(Value):
    """``text``: why the devices cannot be taken at the moment; ``advice``: what ends that.

    ``holder``: UID of the claim that is in the way, if one is. ``lost``: everything that pods have through the plugin
    door, if anything, so that waiting is in vain. ``cause``: what the ledger said.
    """

    text: str
    advice: str
    holder: str = ""
    lost: tuple[HeldError, ...] = ()
    cause: HeldError | None = None

    def __str__(self) -> str:
        return f"{self.text}; {self.advice}"


def take(book: ClaimBook, record: ClaimRecord, known: Callable[[], bool]) -> Refusal | None:
    """Take the record's devices, or change nothing and say why not.

    ``known``: whether everything that the plugin door has given out is in the ledger.
    """
    if not known() and any(not device.admin_access for device in record.devices):
        return Refusal(_UNKNOWN, _UNKNOWN_ADVICE)
    try:
        book.take(record)
    except HeldError as error:
        return _refusal(error, _lost(book, record))
    return None


def _lost(book: ClaimBook, record: ClaimRecord) -> tuple[HeldError, ...]:
    """All that pods have of it: the first thing in the way may be another one."""
    found = ((hold, book.ledger.obstacle(hold)) for hold in holds_of(record))
    errors = (HeldError(hold, by) for hold, by in found if by is not None)
    return tuple(error for error in errors if lost_to_pod(error))


def _refusal(error: HeldError, lost: tuple[HeldError, ...]) -> Refusal:
    if lost:
        error = lost[0]
        return Refusal(str(error), _advice_on_pod(error), lost=lost, cause=error)
    by = error.by
    if by.state is HoldState.DRAINING:
        advice = f"it is free when no process is left on it; 'ostler holds release {by.device}' ends the wait"
        return Refusal(str(error), advice, cause=error)
    holder = by.owner if by.door is Door.DRA else ""
    return Refusal(str(error), "it is free when that claim is released", holder, cause=error)


def _advice_on_pod(error: HeldError) -> str:
    """Whether taints are kept is not known here, so that what is said is true where they are dropped as well."""
    when = "" if error.by.live else "as soon as that pod is known to live, "
    return f"{when}{_EVICTED}; {_NOT_EVICTED}"
