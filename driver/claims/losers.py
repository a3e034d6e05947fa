"""Claims of pods on this node that cannot have a device, because a pod has it through the plugin door.

The scheduler does not know what the kubelet gives out, so it may allocate a device in the moment in which a pod gets it
through the plugin door. The claim's pod then waits here for ever, unless it is evicted and scheduled elsewhere; what
evicts it is a taint on the device. Since that is a heavy word, it is said only where all of this holds:

- the claim is waiting: it is not prepared, it is not being released, and its pod is still there;
- a pod is proved to live that has the device (``Hold.live``);
- no other claim is prepared with the device, for its pods would be evicted as well.

Claims for looking only (adminAccess) are in nobody's way and never lose. For the event loop alone, but for
``by_device``; nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from node.ledger.ledger import HeldError, Hold, HoldState, Ledger, excludes
from node.rules import Door
from node.values import Value, value


@value
class LostDevice(Value):
    """``claim`` (``namespace/name``) waits for ``wanted``; a pod had it, or what overlaps it."""

    claim: str
    wanted: Hold


def lost_to_pod(error: HeldError) -> bool:
    """Whether a pod has the device, so that waiting for it is in vain; one that drains is about to be free."""
    return error.by.door is Door.PLUGIN and error.by.state is not HoldState.DRAINING


class Losers:
    """Claims by UID, each with the devices that it lost. ``told`` hears of every conflict once."""

    def __init__(self, told: Callable[[str, str, HeldError], None]) -> None:
        """``told``: the claim's UID and name, and why it cannot have the device."""
        self._told = told
        self._lost: dict[str, dict[str, LostDevice]] = {}

    def lost(self, uid: str, claim: str, error: HeldError) -> bool:
        """A claim could not take a device; whether that is new."""
        if not lost_to_pod(error) or error.wanted.admin:
            return False
        conflicts = self._lost.setdefault(uid, {})
        if error.wanted.device in conflicts:
            return False
        conflicts[error.wanted.device] = LostDevice(claim, error.wanted)
        self._told(uid, claim, error)
        return True

    def settled(self, uid: str) -> bool:
        """The claim is prepared, is being released, or its pod is gone; whether it had lost anything."""
        return self._lost.pop(uid, None) is not None

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
            for device, conflict in tuple(conflicts.items()):
                if _goes_on(conflict, holds):
                    found.setdefault(device, set()).add(conflict.claim)
        return {device: tuple(sorted(claims)) for device, claims in found.items()}

    def _forget_ended(self, holds: tuple[Hold, ...]) -> None:
        """Conflicts that ended because the pod gave the device back are none any more."""
        for uid, conflicts in [*self._lost.items()]:
            for device, conflict in [*conflicts.items()]:
                if not _goes_on(conflict, holds):
                    del conflicts[device]
            if not conflicts:
                del self._lost[uid]


def _goes_on(conflict: LostDevice, holds: tuple[Hold, ...]) -> bool:
    return any(_in_the_way(hold, conflict.wanted) for hold in holds)


def _in_the_way(hold: Hold, wanted: Hold) -> bool:
    return lost_to_pod(HeldError(wanted, hold)) and excludes(hold, wanted)


def _is_proved(wanted: Hold, holds: tuple[Hold, ...]) -> bool:
    """Whether a live pod has it, and no claim that is prepared would be evicted with, or as, the one that waits."""
    if any(hold.device == wanted.device and hold.state is HoldState.PREPARED and not hold.admin for hold in holds):
        return False
    return any(hold.live and _in_the_way(hold, wanted) for hold in holds)
