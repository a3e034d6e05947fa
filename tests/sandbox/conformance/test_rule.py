"""What judging does with a rule that never ends."""

from __future__ import annotations

import asyncio

import pytest

from sandbox.conformance import rule
from sandbox.conformance.rule import ConformanceRule, RuleOutcome, RuleSource, judge


class CountingTestbed:
    """A program that always works, and how often it was discarded."""

    def __init__(self) -> None:
        self.discarded = 0

    async def prepare(self) -> None: ...

    async def discard(self) -> None:
        self.discarded += 1

    async def own_end_now(self) -> str:
        return ""


async def hang(_: CountingTestbed) -> None:
    await asyncio.Event().wait()


async def test_a_rule_that_hangs_fails_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule, "LONGEST", 0.05)
    bed = CountingTestbed()
    hanging = ConformanceRule("hangs", "It hangs.", RuleSource("a document", "https://a.example"), hang)
    (verdict,) = await judge([hanging], bed)
    assert verdict.outcome is RuleOutcome.FAILED
    assert verdict.seen == "the rule was not finished within 0.05 s"
    assert bed.discarded == 1, "the next rule gets a new program"
