"""Where claims are stuck: what ``ostler claims`` shows besides the records."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from driver.claims.model import ClaimReference, PreparedDevice
from driver.claims.record import ClaimRecord
from node.values import Value, value

MOST = 256
"""Refused claims that are remembered; the oldest go first."""


@value
class ClaimStatus(Value):
    """A claim on this node.

    ``state``: ``prepared``, ``started`` (the kubelet was not answered), ``void`` (prepared before a reboot), or
    ``refused``. ``users``: UIDs of the pods it was reserved for. ``since``: Unix seconds. ``problem``: what was said
    the last time it could not be prepared, empty if it could.
    """

    claim: ClaimReference
    state: str
    devices: tuple[PreparedDevice, ...] = ()
    users: tuple[str, ...] = ()
    since: float = 0.0
    problem: str = ""


class Failures:
    """The last word on every claim that could not be prepared."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._said: dict[str, ClaimStatus] = {}

    def add(self, claim: ClaimReference, problem: str) -> None:
        """Remember it."""
        self._said.pop(claim.uid, None)
        self._said[claim.uid] = ClaimStatus(claim, "refused", since=self._clock(), problem=problem)
        if len(self._said) > MOST:
            del self._said[next(iter(self._said))]

    def said(self, uid: str) -> str:
        """It, empty for none."""
        status = self._said.get(uid)
        return status.problem if status is not None else ""

    def forget(self, uid: str) -> None:
        """The claim is prepared, or released."""
        self._said.pop(uid, None)

    def statuses(self, records: Iterable[ClaimRecord], boot: str) -> tuple[ClaimStatus, ...]:
        """Of all claims that have a record or a problem, by namespace and name."""
        found = {}
        for record in records:
            said = self._said.get(record.claim.uid)
            found[record.claim.uid] = ClaimStatus(
                record.claim,
                _state(record, boot),
                record.answer,
                record.users,
                record.since,
                said.problem if said is not None else "",
            )
        every = {**self._said, **found}.values()
        return tuple(sorted(every, key=lambda status: (str(status.claim), status.claim.uid)))


def _state(record: ClaimRecord, boot: str) -> str:
    if not record.made_in(boot):
        return "void"
    return "prepared" if record.prepared_in(boot) else "started"
