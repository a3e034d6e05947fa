"""Metrics are made in a thread of their own, while the loop changes what they are made of."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from ostler.admin.health import HealthView
from protos.agent.v1alpha1 import agent_pb2
from tests.node.health.rig import A, B, C, D, HealthRig, lost


def traced(work: Callable[[], object], at_every_line: Callable[[], object]) -> None:
    """Do ``work`` and call ``at_every_line`` in between, as another thread could at any of them."""

    def switch(frame: FrameType, event: str, argument: Any) -> Any:
        at_every_line()
        return switch

    before = sys.gettrace()
    sys.settrace(switch)
    try:
        work()
    finally:
        sys.settrace(before)


def interrupted(asked: Callable[[], object], change: Callable[[], None], moment: int) -> bool:
    """Call ``asked`` and, in the middle of it, ``change``; False where it had ended before it came to that line."""
    moments = itertools.count(1)
    came = []

    def at_every_line() -> None:
        if next(moments) == moment:
            came.append(moment)
            change()

    traced(asked, at_every_line)
    return bool(came)


def _all_sick(rig: HealthRig) -> None:
    rig.scan(*lost(A, B, C, D))
    rig.time.forward(20)


def _all_well(rig: HealthRig) -> None:
    if rig.keeper.eviction_limits:
        rig.keeper.release_eviction_limit("gpu")
    rig.scan(A, B, C, D)
    rig.time.forward(10_000)


def _all_removed(rig: HealthRig) -> None:
    rig.scan(gone=[device.name for device in (A, B, C, D)])


CHANGES = [(_all_sick, _all_well), (_all_well, _all_sick), (_all_sick, _all_removed)]


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_how_devices_are_can_be_asked_by_another_thread_at_any_moment(
    before: Callable[[HealthRig], None], after: Callable[[HealthRig], None]
) -> None:
    moment, goes_on = 0, True
    while goes_on:
        moment += 1
        rig = _rig(before)
        view = HealthView(rig.keeper)
        goes_on = interrupted(view.report, partial(after, rig), moment)
        assert len(view.report().devices) == (0 if goes_on and after is _all_removed else 4)
    assert moment > 50


@pytest.mark.parametrize(
    ("before", "after"), [(_all_sick, _all_well), (_all_well, _all_sick), (_all_sick, _all_removed)]
)
def test_how_devices_are_can_be_asked_while_that_changes(
    before: Callable[[HealthRig], None], after: Callable[[HealthRig], None]
) -> None:
    rig = _rig(before)
    view = HealthView(rig.keeper)
    asked: list[agent_pb2.ListHealthResponse] = []
    traced(partial(after, rig), lambda: asked.append(view.report()))
    assert asked[0] != asked[-1]
    assert len(asked) > 100


def _rig(before: Callable[[HealthRig], None]) -> HealthRig:
    rig = HealthRig([A, B, C, D])
    before(rig)
    return rig
