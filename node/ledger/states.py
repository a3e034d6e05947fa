"""The life of one device in the ledger: its states, what can happen to it, and what follows, as one pure table.

| State            | What it says                                                | Plugin door | Claims |
| ---------------- | ----------------------------------------------------------- | ----------- | ------ |
| FREE             | nobody has it, and no check is due                          | yes         | yes    |
| RESERVED         | allocated to a claim of a pod of this node, not prepared    | no          | that one |
| POD              | a pod has it through the plugin door                        | no          | no     |
| CLAIM            | a prepared claim has it                                     | no          | no (1) |
| BOTH             | a pod and a claim have it: shares of it, or a conflict (4)  | no          | no     |
| POD_CONTAINERS   | its pod is gone from the ledger, but its containers run     | waits (2)   | no     |
| POD_CHECK        | given back by a pod, or never seen free: a check is due     | yes (3)     | no     |
| POD_PROCESSES    | a check found processes that a pod left                     | no          | no     |
| CLAIM_CONTAINERS | its claim is gone from the ledger, but its containers run   | no          | no     |
| CLAIM_CHECK      | given back by a claim: a check is due                       | no          | no     |
| CLAIM_PROCESSES  | a check found processes that a claim's pod left             | no          | no     |

(1) Other claims may get other shares of it. (2) It stays in the list for some seconds, in which Allocate waits for the
containers to end (``node.ledger.tenants``). (3) The kubelet counts it as free already, and would refuse the pod for
good; a device whose part or whole is held waits for its check, too, and is excluded meanwhile. (4) Neither door
allocates a whole device that the other one has allocated; a conflict exists only if the node was found like that.

A shared device has one state for all its shares, the one of those that are held: RESERVED, POD, CLAIM and BOTH then say
that somebody has a share, and both doors may allocate what is left (``node.ledger.holds.conflict``). A share that is
given back while others are held is free as soon as no container of its own pod runs; until then a pending release of
its own keeps it, which the device's state does not show. A check for processes would find those of the other shares, so
it is due only when the last share was given back. POD_CONTAINERS then keeps the shares whose containers run from pods,
and all of the device from claims, as POD_CHECK does.

| Event          | From                           | To                                    |
| -------------- | ------------------------------ | ------------------------------------- |
| POD_TAKES      | CLAIM; every other             | BOTH; POD                             |
| CLAIM_TAKES    | POD; every other               | BOTH; CLAIM                           |
| POD_LEAVES     | BOTH                           | CLAIM                                 |
| CLAIM_LEAVES   | BOTH                           | POD                                   |
| RESERVE        | FREE                           | RESERVED                              |
| CONTAINERS_RUN | FREE, POD...; the others       | POD_CONTAINERS; CLAIM_CONTAINERS      |
| CHECK_ORDERED  | FREE, POD...; the others       | POD_CHECK; CLAIM_CHECK                |
| PROCESS_FOUND  | POD_CHECK...; CLAIM_CHECK...   | POD_PROCESSES; CLAIM_PROCESSES        |
| FREED          | every other                    | FREE                                  |

Facts beat wishes: what a container has is entered in every state, a reservation only in FREE. Only FREED makes a device
free. What a state remembers is which door had the device last: after a pod the kubelet may allocate it again at once,
after a claim nobody may. ``events`` is level-triggered: it compares a state with everything that is known now and gives
the events that lead there, so that nothing is lost where a change was not observed by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

from node.events import EventBus
from node.values import Value, quick, value


class LedgerState(StrEnum):
    """See the table."""

    FREE = "free"
    RESERVED = "reserved"
    POD = "pod"
    CLAIM = "claim"
    BOTH = "both"
    POD_CONTAINERS = "pod-containers"
    POD_CHECK = "pod-check"
    POD_PROCESSES = "pod-processes"
    CLAIM_CONTAINERS = "claim-containers"
    CLAIM_CHECK = "claim-check"
    CLAIM_PROCESSES = "claim-processes"


class LedgerEvent(StrEnum):
    """See the table."""

    POD_TAKES = "pod-takes"
    CLAIM_TAKES = "claim-takes"
    POD_LEAVES = "pod-leaves"
    CLAIM_LEAVES = "claim-leaves"
    RESERVE = "reserve"
    CONTAINERS_RUN = "containers-run"
    CHECK_ORDERED = "check-ordered"
    PROCESS_FOUND = "process-found"
    FREED = "freed"


_S, _E = LedgerState, LedgerEvent
HAD_BY_CLAIM = frozenset((_S.RESERVED, _S.CLAIM, _S.BOTH, _S.CLAIM_CONTAINERS, _S.CLAIM_CHECK, _S.CLAIM_PROCESSES))
"""States in which a claim has or had the device last."""
_CONTAINERS = (_S.POD_CONTAINERS, _S.CLAIM_CONTAINERS)
IN_USE = frozenset((_S.POD, _S.CLAIM, _S.BOTH, *_CONTAINERS))
"""States of a shared device in which a further share of it can be reserved."""
_CHECK = (_S.POD_CHECK, _S.CLAIM_CHECK)
_PROCESSES = (_S.POD_PROCESSES, _S.CLAIM_PROCESSES)


def _transitions(state: LedgerState) -> Mapping[LedgerEvent, LedgerState]:
    by_claim = state in HAD_BY_CLAIM
    found = {
        _E.POD_TAKES: _S.BOTH if state is _S.CLAIM else _S.POD,
        _E.CLAIM_TAKES: _S.BOTH if state is _S.POD else _S.CLAIM,
        _E.CONTAINERS_RUN: _CONTAINERS[by_claim],
        _E.CHECK_ORDERED: _CHECK[by_claim],
        _E.FREED: _S.FREE,
    }
    if state is _S.FREE:
        found[_E.RESERVE] = _S.RESERVED
    if state is _S.BOTH:
        found |= {_E.POD_LEAVES: _S.CLAIM, _E.CLAIM_LEAVES: _S.POD}
    if state in (*_CHECK, *_CONTAINERS):
        found[_E.PROCESS_FOUND] = _PROCESSES[by_claim]
    return {event: after for event, after in found.items() if after is not state}


TRANSITIONS: Mapping[LedgerState, Mapping[LedgerEvent, LedgerState]] = {
    each: _transitions(each) for each in LedgerState
}
"""The next state by state and event; a missing pair cannot happen."""


@quick
@value
class LedgerFacts(Value):
    """The current facts about a device, from every source.

    ``pod``, ``claim``: who has it; ``reserved``: for a claim, in the ledger; ``containers``: of an ended pod that had
    it run; ``unchecked``: it must be checked for processes before another door has it; ``processes``: the last check
    found some.
    """

    pod: bool = False
    claim: bool = False
    reserved: bool = False
    containers: bool = False
    unchecked: bool = False
    processes: bool = False


@value
class DeviceMoved(Value):
    """A device has gone from one state to the next; published for everything that watches."""

    device: str
    before: LedgerState
    event: LedgerEvent
    after: LedgerState


def events(state: LedgerState, facts: LedgerFacts) -> tuple[LedgerEvent, ...]:
    """The events that lead from a state to the current facts, in order; none if it agrees."""
    pod, claim = state in (_S.POD, _S.BOTH), state in (_S.CLAIM, _S.BOTH)
    found = []
    if facts.pod or facts.claim:
        steps = (
            (_E.POD_TAKES, facts.pod and not pod),
            (_E.CLAIM_TAKES, facts.claim and not claim),
            (_E.POD_LEAVES, pod and not facts.pod),
            (_E.CLAIM_LEAVES, claim and not facts.claim),
        )
        return tuple([event for event, happens in steps if happens])
    if facts.containers:
        return () if state in _CONTAINERS else (_E.CONTAINERS_RUN,)
    if facts.unchecked:
        if facts.processes:
            if state in _PROCESSES:
                return ()
            return (_E.PROCESS_FOUND,) if state in _CHECK else (_E.CHECK_ORDERED, _E.PROCESS_FOUND)
        return () if state in _CHECK else (_E.CHECK_ORDERED,)
    if facts.reserved:
        if state is _S.RESERVED:
            return ()
        if state is not _S.FREE:
            found.append(_E.FREED)
        return (*found, _E.RESERVE)
    return () if state is _S.FREE else (_E.FREED,)


class DeviceStates:
    """The state of every device; publishes each step as ``DeviceMoved``."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        self._states: dict[str, LedgerState] = {}
        """Without devices that are free."""

    @property
    def names(self) -> Collection[str]:
        """The devices that are not free."""
        return self._states.keys()

    def of(self, device: str) -> LedgerState:
        """Where the device is in its life."""
        return self._states.get(device, LedgerState.FREE)

    def move(self, device: str, facts: LedgerFacts) -> None:
        """Bring the device to the state that agrees with these facts."""
        for event in events(self.of(device), facts):
            self.advance(device, event)

    def advance(self, device: str, event: LedgerEvent) -> None:
        """Take one step of the table; raises KeyError for a step that is not in it."""
        before = self.of(device)
        after = TRANSITIONS[before][event]
        self._bus.publish(DeviceMoved(device, before, event, after))
        if after is LedgerState.FREE:
            self._states.pop(device, None)
        else:
            self._states[device] = after
