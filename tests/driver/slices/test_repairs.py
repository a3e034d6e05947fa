from __future__ import annotations

from driver.slices.queue import Repairs
from node.clocks import SystemClocks


def test_somebody_who_goes_on_is_answered_more_and_more_slowly() -> None:
    now = [0.0]
    repairs = Repairs(0.2, SystemClocks(monotonic=lambda: now[0]))
    delays = []
    for _ in range(25):
        delays.append(repairs.delay("p"))
        repairs.made("p")
    assert delays[:10] == [0.2] * 10
    assert delays[10:13] == [0.4, 0.8, 1.6]
    assert delays[-1] == 30.0
    assert repairs.delay("q") == 0.2
    now[0] = 61.0
    assert repairs.delay("p") == 0.2
