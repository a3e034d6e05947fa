"""The section health: defaults are the policy's own, and everything that is given arrives."""

from __future__ import annotations

import pytest

from node.health.policy import HealthPace, Policy
from node.health.signal import Trouble
from node.health.state import Action
from node.health.xids import Profile, XidTable
from ostler.config.health import ACTIONS, ACTIONS_SECTION, EFFECTS, HEALTH, SCANNED, key_of
from ostler.config.load import load_bytes

HEADER = "apiVersion: ostler.dev/v1alpha1\nkind: Config\n"
EVERYTHING = frozenset(EFFECTS)


def policy(body: str) -> Policy:
    return load_bytes("config.yaml", (HEADER + body).encode(), {}, {}).settings.health


def test_a_file_that_says_nothing_gives_the_policys_own_defaults() -> None:
    assert policy("") == policy("health:\n") == Policy()


def test_everything_that_is_given_arrives() -> None:
    given = policy(
        """
health:
  dryRun: true
  xids:
    profile: compat
    unknown: warn
    overrides:
      - {ids: [94, 63], action: drain}
      - {ids: [79], action: replace}
  actions: {carrier: warn, pcieLink: ignore, recovery: drain}
  effects: {lost: NoSchedule, xid: NoExecute}
  brake: false
  evictAfter: 1m
  quiet: {looks: 5, apart: 20s, warn: 1h, drain: 2m}
  flapping: {times: 4, window: 30m, longest: 1h}
"""
    )
    xids = XidTable(Profile.COMPAT, Action.WARN, ((94, Action.DRAIN), (63, Action.DRAIN), (79, Action.REPLACE)))
    assert given == Policy(
        xids,
        ((Trouble.CARRIER, Action.WARN), (Trouble.PCIE_LINK, Action.IGNORE), (Trouble.RECOVERY, Action.DRAIN)),
        frozenset({Trouble.XID}),
        limits_evictions=False,
        dry_run=True,
        pace=HealthPace(
            looks=5, apart=20, warn=3600, drain=120, flaps=4, window=1800, longest=3600, evict_after=60, together=60
        ),
    )


@pytest.mark.parametrize(
    ("body", "evicting"),
    [
        ("", {Trouble.LOST}),
        ("dra: {taintEffect: NoExecute}", EVERYTHING),
        ("dra: {taintEffect: NoExecute}\nhealth: {effects: {carrier: NoSchedule}}", EVERYTHING - {Trouble.CARRIER}),
        ("dra: {taintEffect: NoSchedule}", {Trouble.LOST}),
        ("health: {effects: {lost: NoSchedule}}", set()),
        ("health: {effects: {person: NoExecute}}", {Trouble.LOST, Trouble.PERSON}),
    ],
)
def test_the_older_key_for_the_taints_effect_is_the_default_of_all_effects(body: str, evicting: set[Trouble]) -> None:
    assert policy(body).evicting == evicting


def test_no_configuration_makes_a_silent_driver_evict() -> None:
    assert Trouble.SILENT not in EFFECTS
    assert Trouble.SILENT not in policy("dra: {taintEffect: NoExecute}").evicting


def test_the_example_of_what_scans_find_as_well_is_one_that_has_an_effect() -> None:
    for kind, field in ACTIONS.items():
        assert field.type.example == ("reset" if kind in SCANNED else "ignore")
    assert all(key_of(kind) in ACTIONS_SECTION.help for kind in SCANNED)


def test_keys_are_the_kinds_of_trouble_in_lower_camel_case() -> None:
    assert {key_of(Trouble.PCIE_LINK), key_of(Trouble.ROW_REMAP), key_of(Trouble.ECC)} == {
        "pcieLink",
        "rowRemap",
        "ecc",
    }
    assert {*ACTIONS} | {*EFFECTS} | {Trouble.SILENT} == {*Trouble}
    assert HEALTH.key == "health"
