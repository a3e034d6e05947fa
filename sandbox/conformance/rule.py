"""Rules of conformance and their verdicts.

A rule judges one property of a running program on a testbed and is independent of every other rule: the testbed gives
it a program without a known fault, and starts a new one after a rule that failed. A rule ends in one of four ways: it
passes (and may say what it could not judge), it raises ``RuleBroken`` with what it saw, it raises ``RuleNotApplicable``
with the reason, or the testbed raises ``NotReady``: the rule could not be judged at all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, Protocol, TypeVar

LONGEST: Final = 180.0
"""Seconds after which a rule that still runs counts as failed."""


class RuleBroken(Exception):
    """The program breaks the rule; the text says what was seen."""


class RuleNotApplicable(Exception):
    """The rule does not concern this program; the text says why."""


class NotReady(Exception):
    """The program is not in a state in which rules can be judged; the text says why."""


class CannotJudge(Exception):
    """No rule can be judged at all: the command cannot be started, or nobody answers at the socket."""


class RuleOutcome(StrEnum):
    """The outcome of judging a rule."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True)
class RuleSource:
    """The public document, or behaviour of the kubelet, that a rule comes from."""

    name: str
    url: str


class Testbed(Protocol):
    """The program that is judged, in a state in which it can be."""

    async def prepare(self) -> None:
        """Start the program unless it runs and works; raises ``NotReady`` or ``CannotJudge``."""

    async def discard(self) -> None:
        """End the program: the next rule gets a new one."""

    async def own_end_now(self) -> str:
        """Say how the program ended itself, empty while it runs; waits for one that is ending."""


Bed = TypeVar("Bed", bound=Testbed)


@dataclass(frozen=True)  # With slots a generic class could not be made by its alias in Python 3.11.
class ConformanceRule(Generic[Bed]):
    """One rule. ``judge`` returns a remark on a pass, mostly none.

    ``prepared``: it is judged on a program that works; else it prepares the testbed itself.
    """

    name: str
    title: str
    source: RuleSource
    judge: Callable[[Bed], Awaitable[str | None]]
    prepared: bool = True


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """The outcome of one rule; ``seen`` is what was seen, the reason, or a remark on a pass."""

    rule: str
    title: str
    source: RuleSource
    outcome: RuleOutcome
    seen: str
    seconds: float


class UnknownRule(LookupError):
    """No rule has this name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"there is no rule {name!r}; must be one of {', '.join(known)}")


def chosen(rules: Sequence[ConformanceRule[Bed]], names: Sequence[str]) -> tuple[ConformanceRule[Bed], ...]:
    """The rules of these names in the order of ``rules``, all without names; raises ``UnknownRule``."""
    known = {rule.name for rule in rules}
    for name in names:
        if name not in known:
            raise UnknownRule(name, (rule.name for rule in rules))
    return tuple(rule for rule in rules if not names or rule.name in names)


async def judge(
    rules: Iterable[ConformanceRule[Bed]], bed: Bed, on_verdict: Callable[[RuleVerdict], None] = lambda _: None
) -> list[RuleVerdict]:
    """Judge the rules one after the other; ``on_verdict`` is called after each. Raises ``CannotJudge``.

    A rule in which the program ended itself is judged again on a new start, so that only the rule that ends it fails.
    """
    verdicts = []
    for rule in rules:
        began = time.monotonic()
        outcome, seen = await _judge(rule, bed)
        if outcome is RuleOutcome.FAILED and (ended := await bed.own_end_now()):
            if rule.prepared:
                # It may have ended because of what an earlier rule did.
                await bed.discard()
                outcome, seen = await _judge(rule, bed)
                ended = await bed.own_end_now() if outcome is RuleOutcome.FAILED else ""
            if ended and ended not in seen:
                seen = f"{seen}; {ended}"
        if outcome in (RuleOutcome.FAILED, RuleOutcome.NOT_JUDGED):
            await bed.discard()
        seconds = time.monotonic() - began
        verdicts.append(RuleVerdict(rule.name, rule.title, rule.source, outcome, seen, seconds))
        on_verdict(verdicts[-1])
    return verdicts


async def _judge(rule: ConformanceRule[Bed], bed: Bed) -> tuple[RuleOutcome, str]:
    try:
        async with asyncio.timeout(LONGEST):
            if rule.prepared:
                await bed.prepare()
            return RuleOutcome.PASSED, await rule.judge(bed) or ""
    except RuleBroken as broken:
        return RuleOutcome.FAILED, str(broken)
    except RuleNotApplicable as reason:
        return RuleOutcome.NOT_APPLICABLE, str(reason)
    except NotReady as reason:
        return RuleOutcome.NOT_JUDGED, str(reason)
    except TimeoutError:
        return RuleOutcome.FAILED, f"the rule was not finished within {LONGEST:g} s"
