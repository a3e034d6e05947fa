"""Follows every device through the ledger's table of states, and compares each state with the ledger's holds."""

from __future__ import annotations

from collections.abc import Iterable

from node.ledger.bookkeeping import Bookkeeping
from node.ledger.events import HoldsChanged
from node.ledger.holds import Hold, HoldState
from node.ledger.states import TRANSITIONS, DeviceMoved, LedgerState
from node.rules import Door

PENDING = frozenset(state for state in LedgerState if state.value.startswith(("pod-", "claim-")))

_POD, _CLAIM = f"held by {Door.PLUGIN}", f"held by {Door.DRA}"
_WAITS, _PENDING = "pending for the plugin door", "pending"
_EXPECTED: dict[LedgerState, tuple[set[str], ...]] = {
    LedgerState.FREE: (set(),),
    LedgerState.RESERVED: ({"reserved"},),
    LedgerState.POD: ({_POD},),
    LedgerState.CLAIM: ({_CLAIM},),
    LedgerState.BOTH: ({_POD, _CLAIM},),
    LedgerState.POD_CHECK: ({_WAITS},),
    # It stays in the plugin door's list for some seconds, and each share of it for as many.
    LedgerState.POD_CONTAINERS: ({_WAITS}, {_PENDING}, {_WAITS, _PENDING}),
    LedgerState.CLAIM_CONTAINERS: ({_WAITS}, {_PENDING}, {_WAITS, _PENDING}),
}
"""What the ledger may have of a device in each state; in the others it waits."""


class StatesWatch:
    """What is wrong goes into ``problems``; ``seen`` are the transitions that were made."""

    def __init__(self, books: Bookkeeping) -> None:
        self._books = books
        self._states: dict[str, LedgerState] = {}
        self.problems: list[str] = []
        self.seen: set[tuple[LedgerState, LedgerState]] = set()
        books.bus.subscribe(DeviceMoved, self._moved)
        books.bus.subscribe(HoldsChanged, lambda _: self.compare())

    def _moved(self, move: DeviceMoved) -> None:
        before = self._states.get(move.device, LedgerState.FREE)
        if before is not move.before:
            self.problems.append(f"{move.device} moved from {move.before}, and was {before}")
        if TRANSITIONS[move.before].get(move.event) is not move.after:
            self.problems.append(f"{move.device}: {move.before} and {move.event} make no {move.after}")
        self._states[move.device] = move.after
        self.seen.add((move.before, move.after))

    def compare(self) -> None:
        """What the ledger has of each device is what its state says."""
        entered: dict[str, list[Hold]] = {}
        places: set[str] = set()
        for hold in self._books.ledger.all:
            if not hold.admin:
                entered.setdefault(hold.device, []).append(hold)
                places.update((hold.device, *hold.within))
        for device in sorted({*self._states, *entered}):
            state, found = self._states.get(device, LedgerState.FREE), _found(entered.get(device, ()))
            expected = _EXPECTED.get(state, ({_PENDING},))
            if found not in expected and not self._waits_behind_another(device, state, found, places):
                self.problems.append(f"{device} is {state}, and the ledger has {sorted(found)}")

    def _waits_behind_another(self, device: str, state: LedgerState, found: set[str], places: set[str]) -> bool:
        """Its check has to wait, because something that overlaps it is held."""
        if state not in PENDING or found:
            return False
        within = self._books.grants.wholes.get(device, ())
        return device in places or any(hold.device in within for hold in self._books.ledger.all)


def _found(holds: Iterable[Hold]) -> set[str]:
    found: dict[str, bool] = {}
    for hold in holds:
        if hold.state is HoldState.PENDING_RELEASE:
            word = "pending for the plugin door" if hold.door is Door.PLUGIN else "pending"
        elif hold.state is HoldState.RESERVED:
            word = "reserved"
        else:
            word = f"held by {hold.door}"
        found[word] = found.get(word, True) and bool(hold.share and hold.amounts)
    held = {word for word in found if word.startswith("held")}
    # Of a shared device others may be reserved, or pending release: the state is of the shares that are held.
    hidden = {word for word, shares in found.items() if shares and (held or word == "reserved")} - held
    if any(found[word] for word in held):
        hidden |= found.keys() - held
    if len(found) > 1:
        return set(found) - hidden - ({"reserved"} if f"held by {Door.DRA}" in found else set())
    return set(found)
