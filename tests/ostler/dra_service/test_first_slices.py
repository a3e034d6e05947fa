"""The first slices: published as soon as nothing in them would have to be written again in a moment."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from node.rules import Doors, Rule, Selector
from node.values import replace
from sandbox.apiserver.server import ApiServer
from tests.making.both_doors import Both, gpus
from tests.waiting import eventually

NEVER = 3600.0
CLAIMED = "gpu-0000"


@pytest.fixture
async def both(short_dir: Path, server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Both:
    monkeypatch.setattr("ostler.agent.dra_service.FIRST_SLICES", NEVER)
    return Both(short_dir, server, gpus(2), Doors.DRA)


def use(both: Both, doors: Doors) -> None:
    """Two rules, of which one is for the plugin door alone."""
    rules = (Rule("nvidia.com/claimed", Selector(names=(CLAIMED,)), doors), Rule("nvidia.com/gpu", door=Doors.PLUGIN))
    both.settings = replace(both.settings, rules=rules)
    both.publisher.use(both.settings)


async def test_what_claims_alone_can_have_does_not_wait_for_an_instance_that_may_still_answer(both: Both) -> None:
    use(both, Doors.DRA)
    async with both.running():
        both.books.keeper.answered_until = time.monotonic() + NEVER
        await eventually(lambda: both.in_slices() == {CLAIMED})
        assert not both.books.keeper.known


async def test_what_both_doors_have_waits_for_it(both: Both) -> None:
    use(both, Doors.BOTH)
    async with both.running():
        both.books.keeper.answered_until = time.monotonic() + NEVER
        await eventually(lambda: both.publisher.context.known)
        assert both.in_slices(free=False) == set()
        both.books.keeper.answered_until = 0.0
        both.books.kubelet_changed()
        await eventually(lambda: both.in_slices() == {CLAIMED})
