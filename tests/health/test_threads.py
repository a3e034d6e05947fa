"""Metrics are made in a thread of their own, while the loop changes what they are made of."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from ostler.health_view import KeeperView
from tests.health.rig import UNHEALTHY, WELL, A, B, C, D, Rig, lost


def interrupted(asked: Callable[[], object], change: Callable[[], None], moment: int) -> bool:
    """Call ``asked`` and, in the middle of it, ``change``; False where it had ended before it came to that line."""
    left = moment

    def switch(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            change()
        return switch

    before = sys.gettrace()
    sys.settrace(switch)
    try:
        asked()
    finally:
        sys.settrace(before)
    return left <= 0


def _all_sick(rig: Rig) -> None:
    rig.scan(*lost(A, B, C, D))
    rig.time.forward(20)


def _all_well(rig: Rig) -> None:
    rig.keeper.release_brake("gpu")
    rig.scan(A, B, C, D)
    rig.time.forward(10_000)


@pytest.mark.parametrize("sick", [True, False])
def test_how_devices_are_can_be_asked_by_another_thread_at_any_moment(sick: bool) -> None:
    moment, goes_on = 0, True
    while goes_on:
        moment += 1
        rig = Rig([A, B, C, D])
        if sick:
            _all_sick(rig)
        view = KeeperView(rig.keeper)
        goes_on = interrupted(view.health, partial(_all_well if sick else _all_sick, rig), moment)
        report = view.health()
        if goes_on:
            assert len(report.brakes) == (0 if sick else 1)
            assert {device.health.state for device in report.devices} == {WELL.state if sick else UNHEALTHY}
    assert moment > 50
