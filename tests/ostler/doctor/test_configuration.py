"""The check of the configuration."""

from __future__ import annotations

from pathlib import Path

from node.values import replace
from ostler.doctor.agent import judge_configuration
from ostler.doctor.check import CheckVerdict
from tests.ostler.doctor.nodes import DEFAULTS, configured, examined, says, view


def test_defaults_are_usable_and_name_what_is_offered(tmp_path: Path) -> None:
    says(examined(view(tmp_path), "configuration"), CheckVerdict.OK, "usable (defaults), offers nvidia.com/gpu")


def test_problems_are_named_and_the_rest_checked_with_defaults() -> None:
    finding = judge_configuration(DEFAULTS, ("c.yaml:3: log.level: is loud; allowed: info",))
    says(finding, CheckVerdict.FAILED, "not usable: c.yaml:3: log.level: is loud", "ostler config check FILE")


def test_a_faulty_topology_file_is_a_warning(tmp_path: Path) -> None:
    loaded = configured("topology: {file: /nonexistent.xml}\n", tmp_path)
    says(judge_configuration(loaded, ()), CheckVerdict.WARNING, "/nonexistent.xml", "run 'ostler reload'")


def test_no_rules_offer_nothing() -> None:
    empty = replace(DEFAULTS, settings=replace(DEFAULTS.settings, rules=()))
    says(
        judge_configuration(empty, ()),
        CheckVerdict.WARNING,
        "no rule: nothing is offered",
        "add an entry to 'resources'",
    )
