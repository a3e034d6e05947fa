"""The table of a device's states: what it allows, and that whatever is known leads along it."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.ledger import states
from node.ledger.states import TRANSITIONS, LedgerEvent, LedgerFacts, LedgerState, events

FACTS = tuple(LedgerFacts(*each) for each in product((False, True), repeat=6))
HELD = {
    LedgerState.POD: (True, False),
    LedgerState.CLAIM: (False, True),
    LedgerState.BOTH: (True, True),
}
TAKING = (LedgerEvent.POD_TAKES, LedgerEvent.CLAIM_TAKES)


def after(state: LedgerState, facts: LedgerFacts) -> LedgerState:
    for event in events(state, facts):
        state = TRANSITIONS[state][event]
    return state


def agrees(state: LedgerState, facts: LedgerFacts) -> bool:
    """Whether the state says what is known, in the order of what matters most."""
    if facts.pod or facts.claim:
        return HELD.get(state) == (facts.pod, facts.claim)
    if facts.containers:
        return state in (LedgerState.POD_CONTAINERS, LedgerState.CLAIM_CONTAINERS)
    if facts.unchecked:
        left = (LedgerState.POD_PROCESSES, LedgerState.CLAIM_PROCESSES)
        return state in (left if facts.processes else (LedgerState.POD_CHECK, LedgerState.CLAIM_CHECK))
    return state is (LedgerState.RESERVED if facts.reserved else LedgerState.FREE)


@pytest.mark.parametrize("state", LedgerState)
def test_whatever_is_known_of_a_device_is_reached_along_the_table(state: LedgerState) -> None:
    for facts in FACTS:
        found = after(state, facts)
        assert agrees(found, facts), (state, facts, found)
        assert events(found, facts) == (), "what is known twice is no news"


@pytest.mark.parametrize("state", LedgerState)
def test_a_fact_is_entered_in_every_state_and_a_wish_only_in_a_free_one(state: LedgerState) -> None:
    for event, held in zip(TAKING, (0, 1), strict=True):
        assert HELD.get(state, (False, False))[held] or HELD[TRANSITIONS[state][event]][held]
    assert (LedgerEvent.RESERVE in TRANSITIONS[state]) == (state is LedgerState.FREE)


def test_only_freed_makes_a_device_free_and_it_can_from_everywhere() -> None:
    to_free = {(state, event) for state, row in TRANSITIONS.items() for event, to in row.items() if to == "free"}
    assert to_free == {(state, LedgerEvent.FREED) for state in LedgerState if state is not LedgerState.FREE}


def test_every_state_is_reached_from_a_free_device() -> None:
    reached = {LedgerState.FREE}
    for _ in LedgerState:
        reached |= {to for state in reached for to in TRANSITIONS[state].values()}
    assert reached == set(LedgerState)


@given(history=st.lists(st.sampled_from(FACTS), max_size=12))
def test_after_a_claim_nobody_gets_a_device_before_it_was_free_and_after_a_pod_its_door_may(
    history: list[LedgerFacts],
) -> None:
    state, last = LedgerState.FREE, "pod"
    for facts in history:
        for event in events(state, facts):
            state = TRANSITIONS[state][event]
            if event is LedgerEvent.FREED:
                last = "pod"
            elif state in HELD or state is LedgerState.RESERVED:
                last = "pod" if state is LedgerState.POD else "claim"
        if state not in (*HELD, LedgerState.FREE, LedgerState.RESERVED):
            assert state.value.startswith(last)


def test_the_docstring_names_every_state_and_event() -> None:
    rows = re.findall(r"^\| ([A-Z_]+) +\|", states.__doc__ or "", re.MULTILINE)
    assert rows == [each.name for each in (*LedgerState, *LedgerEvent)]
