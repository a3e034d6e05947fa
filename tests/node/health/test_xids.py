"""What each XID asks for, by profile and by the configuration."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.health.policy import DEFAULT_ACTIONS, Policy
from node.health.signal import Trouble
from node.health.state import Action, HealthState
from node.health.xids import Profile, XidTable, is_known, known_xids, meaning

PAGE = Path(__file__).resolve().parents[3] / "docs/health.md"
IGNORE, WARN, DRAIN, RESET, REPLACE = Action
CATALOG, COMPAT, STRICT = (XidTable(profile) for profile in Profile)


@pytest.mark.parametrize(
    ("action", "xids"),
    [
        (WARN, (8, 11, 13, 25, 31, 32, 45, 68, 69, 94, 96, 105, 126, 135, 139)),
        (IGNORE, (37, 43, 44, 63, 92, 106, 121, 137, 154, 157, 160)),
        (RESET, (46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 151, 155, 156, 158)),
        (DRAIN, (142, 144, 150, 159, 171, 172)),
        (REPLACE, (54,)),
        (DRAIN, (1, 2, 61, 65, 173, 9999)),
    ],
)
def test_the_catalogs_actions(action: Action, xids: tuple[int, ...]) -> None:
    assert {xid: CATALOG.action(xid) for xid in xids} == dict.fromkeys(xids, action)


def test_the_plugins_six_warn_and_all_others_take_the_gpu_away() -> None:
    six = {13, 31, 43, 45, 68, 109}
    assert {xid for xid in range(1, 200) if COMPAT.action(xid) is WARN} == six
    assert {COMPAT.action(xid) for xid in range(1, 200) if xid not in {*six, 154}} == {RESET}


def test_that_the_recovery_action_changed_is_ignored_in_every_profile() -> None:
    assert [table.action(154) for table in (CATALOG, COMPAT, STRICT)] == [IGNORE] * 3
    assert XidTable(Profile.COMPAT, overrides=((154, WARN),)).action(154) is WARN


def test_strict_is_never_softer_than_the_catalog() -> None:
    order = [IGNORE, WARN, DRAIN, RESET, REPLACE]
    harder = [xid for xid in known_xids() if order.index(STRICT.action(xid)) > order.index(CATALOG.action(xid))]
    assert all(order.index(STRICT.action(xid)) >= order.index(CATALOG.action(xid)) for xid in range(1, 300))
    assert {13, 43, 94} <= {*harder}
    assert 154 not in harder


@given(st.sampled_from(Profile), st.integers(1, 400), st.sampled_from(Action), st.sampled_from(Action))
def test_the_configuration_goes_before_every_profile(profile: Profile, xid: int, own: Action, unknown: Action) -> None:
    assert XidTable(profile, unknown, ((xid, own),)).action(xid) is own
    found = XidTable(profile, unknown).action(xid)
    assert found is (XidTable(profile).action(xid) if is_known(xid) else unknown)


def test_what_an_xid_means_is_said_of_those_that_people_meet() -> None:
    assert all(meaning(xid) for xid in (13, 31, 43, 45, 48, 63, 64, 74, 79, 94, 95, 109, 119, 120))
    assert meaning(9999) == ""


def test_every_kind_of_trouble_has_an_action() -> None:
    policy = Policy()
    actions = {kind: policy.action(kind) for kind in Trouble}
    assert {kind: actions[kind] for kind in DEFAULT_ACTIONS} == DEFAULT_ACTIONS
    assert policy.action(Trouble.RECOVERY) is DRAIN
    assert [policy.action(Trouble.RECOVERY, code) for code in range(1, 9)] == [
        *(RESET, RESET, DRAIN, RESET, DRAIN, RESET, RESET),
        RESET,
    ]
    assert [policy.action(Trouble.ROW_REMAP, code) for code in (0, 1)] == [WARN, REPLACE]
    assert [policy.action(Trouble.AER, code) for code in (0, 1, 2)] == [WARN, DRAIN, DRAIN]


def test_the_configuration_goes_before_what_a_kind_asks_for() -> None:
    policy = Policy(actions=((Trouble.ROW_REMAP, IGNORE), (Trouble.RECOVERY, WARN)))
    assert [policy.action(Trouble.ROW_REMAP, code) for code in (0, 1)] == [IGNORE, IGNORE]
    assert policy.action(Trouble.RECOVERY, 2) is WARN


def test_a_default_that_is_written_out_changes_nothing() -> None:
    written = Policy(actions=tuple(DEFAULT_ACTIONS.items()))
    for kind in DEFAULT_ACTIONS:
        for code in (None, 0, 1, 2):
            assert written.action(kind, code) is Policy().action(kind, code)


@pytest.mark.parametrize("given", Action)
def test_a_row_that_no_reset_helps_and_corrected_errors_are_what_they_are_unless_they_are_ignored(
    given: Action,
) -> None:
    policy = Policy(actions=((Trouble.ROW_REMAP, given), (Trouble.AER, given)))
    ignored = given is IGNORE
    assert [policy.action(Trouble.ROW_REMAP, code) for code in (0, 1)] == [given, IGNORE if ignored else REPLACE]
    assert [policy.action(Trouble.AER, code) for code in (0, None)] == [IGNORE if ignored else WARN, given]


def numbers(text: str) -> set[int]:
    ranges = re.findall(r"(\d+)(?:-(\d+))?", text)
    return {number for first, last in ranges for number in range(int(first), int(last or first) + 1)}


def test_the_page_has_the_table() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d, -]+)", PAGE.read_text(), re.MULTILINE))
    assert {action: numbers(text) for action, text in rows.items()} == {
        action.value: {xid for xid in known_xids() if CATALOG.action(xid) is action} for action in Action
    }


def test_an_action_says_how_the_device_is() -> None:
    assert [action.state for action in Action] == [
        HealthState.HEALTHY,
        HealthState.DEGRADED,
        *([HealthState.UNHEALTHY] * 3),
    ]
