"""Verdicts in their reports, and the judgements that need no program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest

from sandbox.conformance import session
from sandbox.conformance.cdi import cdi_file_fault, cdi_name_fault
from sandbox.conformance.driver_rules import DRIVER_RULES
from sandbox.conformance.growth import growth, is_judged
from sandbox.conformance.plugin_registration import each_plugin
from sandbox.conformance.plugin_rules import PLUGIN_RULES
from sandbox.conformance.report import document, junit, row, summary
from sandbox.conformance.rule import (
    ConformanceRule,
    NotReady,
    RuleBroken,
    RuleNotApplicable,
    RuleOutcome,
    RuleSource,
    RuleVerdict,
    UnknownRule,
    chosen,
    judge,
)
from sandbox.conformance.subject import ProcessSize, size_of
from sandbox.kubelet.plugin_process import BUILT_IN
from tests.waiting import until

SOURCE = RuleSource("somewhere", "https://example.com")


class _Bed:
    """A testbed that notes what is asked of it."""

    def __init__(self, ready: bool = True, own_ends: Sequence[str] = ()) -> None:
        self.ready = ready
        self.discarded = 0
        self._own_ends = list(own_ends)

    async def prepare(self) -> None:
        if not self.ready:
            raise NotReady("it is asleep")

    async def discard(self) -> None:
        self.discarded += 1

    async def own_end_now(self) -> str:
        return self._own_ends.pop(0) if self._own_ends else ""


async def _passes(bed: _Bed) -> str | None:
    return "a remark"


async def _fails(bed: _Bed) -> str | None:
    raise RuleBroken("seen: \x1b[31m<&>")


async def _concerns_nobody(bed: _Bed) -> str | None:
    raise RuleNotApplicable("no reason")


RULES: tuple[ConformanceRule[_Bed], ...] = (
    ConformanceRule("one", "Is one", SOURCE, _passes),
    ConformanceRule("two", "Is two", SOURCE, _fails),
    ConformanceRule("three", "Is three", SOURCE, _concerns_nobody),
)


async def test_every_outcome_is_in_every_report() -> None:
    bed = _Bed()
    verdicts = await judge(RULES, bed)
    assert bed.discarded == 1, "after the rule that failed"
    assert [row(verdict)[2] for verdict in verdicts] == [
        "passed: a remark",
        "FAILED: seen: \x1b[31m<&>",
        "not applicable: no reason",
    ]
    assert summary(verdicts).endswith("1 passed, 1 failed, 1 not applicable")
    report = json.loads(json.dumps(document("plugin", "my-plugin", verdicts)))
    assert report["summary"] == {"passed": 1, "failed": 1, "not applicable": 1, "not judged": 0}
    assert report["rules"][1]["seen"] == "seen: \x1b[31m<&>"
    suite = ET.fromstring(junit("plugin", "my-plugin", verdicts))[0]
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["3", "1", "0", "1"]
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.get("message") == "seen: \N{REPLACEMENT CHARACTER}[31m<&>"


async def test_a_program_that_is_not_ready_is_an_error_and_no_failure() -> None:
    bed = _Bed(ready=False)
    told: list[RuleVerdict] = []
    verdicts = await judge(RULES[:1], bed, told.append)
    assert told == verdicts
    assert (verdicts[0].outcome, verdicts[0].seen) == (RuleOutcome.NOT_JUDGED, "it is asleep")
    suite = ET.fromstring(junit("plugin", "my-plugin", verdicts))[0]
    assert (suite.get("errors"), suite.get("failures")) == ("1", "0")


@pytest.mark.parametrize(
    ("own_ends", "prepared", "seen", "discarded"),
    [
        # It ended because of a rule before, and not again.
        (["the plugin ended with exit code 1"], True, "seen: \x1b[31m<&>", 2),
        (["the plugin ended"] * 2, True, "seen: \x1b[31m<&>; the plugin ended", 2),
        # Such a rule starts the program itself, so that nothing was before.
        (["the plugin ended"], False, "seen: \x1b[31m<&>; the plugin ended", 1),
    ],
)
async def test_a_program_that_ended_in_a_rule_is_judged_once_more(
    own_ends: list[str], prepared: bool, seen: str, discarded: int
) -> None:
    bed = _Bed(own_ends=own_ends)
    (verdict,) = await judge([ConformanceRule("two", "Is two", SOURCE, _fails, prepared=prepared)], bed)
    assert (verdict.outcome, verdict.seen, bed.discarded) == (RuleOutcome.FAILED, seen, discarded)


def test_rules_are_chosen_by_name_in_their_own_order() -> None:
    assert [rule.name for rule in chosen(RULES, ["three", "one"])] == ["one", "three"]
    assert chosen(RULES, []) == RULES
    with pytest.raises(UnknownRule, match="there is no rule 'four'; must be one of one, two, three"):
        chosen(RULES, ["one", "four"])


def test_no_two_rules_have_one_name() -> None:
    plugin, driver = [rule.name for rule in PLUGIN_RULES], [rule.name for rule in DRIVER_RULES]
    assert len(set(plugin)) == len(plugin)
    assert len(set(driver)) == len(driver)


@pytest.mark.parametrize(
    ("memory", "descriptors", "problem"),
    [
        ((100, 9000, 9500, 9000), (10, 10, 10, 10), ""),
        ((100, 5000, 5100, 5200), (10, 10, 10, 10), ""),
        (
            (100, 2000, 4000, 6000),
            (10, 10, 10, 10),
            "memory grew in every round of work: by 1900 KiB, 2000 KiB, 2000 KiB",
        ),
        ((100, 100, 100, 100), (10, 20, 30, 40), "descriptors grew in every round of work: by 10, 10, 10"),
        ((100, 100, 100, 100), (10, 20, 10, 20), ""),
    ],
)
def test_growth_is_what_comes_in_every_round(memory: Sequence[int], descriptors: Sequence[int], problem: str) -> None:
    sizes = [ProcessSize(*each) for each in zip(memory, descriptors, strict=True)]
    assert growth(sizes, "work") == problem


def test_a_process_whose_threads_come_and_go_has_a_size_at_any_moment() -> None:
    code = "import threading\nprint(flush=True)\nwhile True:\n    threading.Thread(target=int).start()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            sizes = [size_of(process.pid) for _ in range(1000)]
        finally:
            process.kill()
    assert None not in sizes
    assert size_of(process.pid) is None


def test_growth_is_measured_on_until_a_round_brings_none() -> None:
    sizes = [ProcessSize(memory, 10) for memory in (100, 2000, 4000, 6000, 6100)]
    assert [is_judged(sizes[:count]) for count in range(6)] == [False, False, False, False, False, True]
    assert is_judged([ProcessSize(100, 10)] * 4)


def test_every_socket_that_a_program_can_serve_can_be_dialled() -> None:
    with session._folder() as root:
        assert len(str(root / session.KUBELET)) <= len(str(BUILT_IN))
    assert not root.exists()


def test_the_size_of_a_process_counts_its_children() -> None:
    code = "import subprocess; subprocess.run(['sleep', '60'])"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            (child,) = map(int, until(lambda: children.read_text().split(), "the child"))
            until(lambda: Path(f"/proc/{child}/comm").read_text() == "sleep\n", "the child's program")
            whole, part = size_of(process.pid), size_of(child)
            assert whole is not None
            assert part is not None
            assert whole.memory > part.memory > 0
            assert whole.descriptors >= part.descriptors + 3
            os.kill(child, 9)
        finally:
            process.kill()
    assert size_of(process.pid) is None


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("example.com/gpu=0", ""),
        ("example.com/gpu=a:1.b-c_d", ""),
        ("example.com=0", "the CDI device 'example.com=0' is not of the form vendor/class=name"),
        ("example.com/gpu", "the CDI device 'example.com/gpu' is not of the form vendor/class=name"),
        ("1example/gpu=0", "the CDI device '1example/gpu=0' has the vendor '1example', which no runtime takes"),
        ("example.com/=0", "the CDI device 'example.com/=0' has the class '', which no runtime takes"),
        ("example.com/gpu=", "the CDI device 'example.com/gpu=' has the name '', which no runtime takes"),
        ("example.com/gpu=a/b", "the CDI device 'example.com/gpu=a/b' has the name 'a/b', which no runtime takes"),
    ],
)
def test_a_cdi_name_is_judged(name: str, fault: str) -> None:
    assert cdi_name_fault(name) == fault


@pytest.mark.parametrize(
    ("file", "text", "fault"),
    [
        ("a.json", '{"cdiVersion": "0.5.0", "kind": "a.b/c", "devices": [{"name": "d"}]}', ""),
        ("a.yaml", 'cdiVersion: "0.5.0"\nkind: a.b/c\ndevices: [{name: d}]\n', ""),
        ("a.txt", "anything", ""),
        ("a.json", "{", "cannot be read: "),
        ("a.json", "[]", "is not an object"),
        ("a.json", '{"kind": "a.b/c"}', "has no cdiVersion"),
        ("a.json", '{"cdiVersion": "0.5.0"}', "has no kind"),
        ("a.json", '{"cdiVersion": "0.5.0", "kind": "a.b/c", "devices": []}', "has no devices"),
        ("a.json", '{"cdiVersion": "0.5.0", "kind": "a.b/c", "devices": [{}]}', "has a device without a name"),
        (
            "a.json",
            '{"cdiVersion": "0.5.0", "kind": "a", "devices": [{"name": "d"}]}',
            "is refused by runtimes: the CDI device 'a=d' is not of the form vendor/class=name",
        ),
    ],
)
def test_a_cdi_file_is_judged(file: str, text: str, fault: str) -> None:
    found = cdi_file_fault(Path(file), text.encode())
    assert found.startswith(fault)
    assert bool(found) == bool(fault)


async def test_what_is_true_of_several_resources_is_said_once() -> None:
    plugins = [SimpleNamespace(name=f"a.example/{name}") for name in ("gpu", "nic", "disk")]

    class Plugins:
        async def plugins(self) -> list[SimpleNamespace]:
            return plugins

    async def judge(plugin: SimpleNamespace) -> str:
        if plugin.name == "a.example/disk":
            raise RuleNotApplicable(f"{plugin.name} has no device")
        return f"{plugin.name} lists one device"

    said = await each_plugin(Plugins(), judge)  # type: ignore[arg-type]
    assert said == "a.example/gpu lists one device (the same of one more resource); a.example/disk has no device"
