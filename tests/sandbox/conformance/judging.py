"""Whole runs of conformance on programs of this process, all side by side and once for all workers.

A run waits more than it computes, so that eight at a time take little longer than one.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from sandbox.conformance.rule import RuleOutcome, RuleVerdict
from tests.making.tours import made_once

AT_ONCE = 8
Seen = Mapping[str, Mapping[str, str]]
"""Outcome -> rule -> what was seen."""
Judge = Callable[[Path, str], Awaitable[list[RuleVerdict]]]
"""Judges the program with a flaw, in a folder of its own."""


def judged_once(file: Path, names: Iterable[str], judge: Judge) -> Mapping[str, Seen]:
    """Name -> verdicts; kept in ``file``, which the first worker makes."""
    text = made_once(file, lambda: json.dumps(asyncio.run(_judged(tuple(names), judge))))
    found: Mapping[str, Seen] = json.loads(text)
    return found


async def _judged(names: tuple[str, ...], judge: Judge) -> dict[str, dict[str, dict[str, str]]]:
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> dict[str, dict[str, str]]:
        async with limit:
            folder = Path(tempfile.mkdtemp(prefix="ostler-", dir="/tmp"))
            try:
                verdicts = await judge(folder, name)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        return {
            outcome.value: {verdict.rule: verdict.seen for verdict in verdicts if verdict.outcome is outcome}
            for outcome in RuleOutcome
        }

    return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))
