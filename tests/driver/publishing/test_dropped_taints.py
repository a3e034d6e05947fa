"""What becomes of the trust in taints when the server changes, or when several do not agree."""

from __future__ import annotations

from driver.publishing.publication import AGAIN, RAREST, DroppedTaints
from node.clocks import SystemClocks
from tests.making.clock import ManualClock


class _Rig:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.doubts = 0
        self.taints = DroppedTaints(SystemClocks(monotonic=self.clock))

    def after(self, seconds: float, *, dropped: bool = False) -> DroppedTaints:
        self.clock.now += seconds
        self.doubts += self.taints.seen(dropped=dropped)
        return self.taints


def test_taints_are_trusted_until_the_server_says_or_shows_that_it_drops_them() -> None:
    rig = _Rig()
    assert rig.after(0).withdraw
    assert not rig.taints.unsure
    rig.taints.answered(False)
    assert not rig.after(0).withdraw
    assert not rig.after(0).unsure, "nothing is to be seen before it says otherwise"
    rig.taints.answered(None)
    assert rig.after(0).withdraw
    assert not rig.after(0, dropped=True).withdraw


def test_one_loss_is_one_doubt() -> None:
    rig = _Rig()
    for _ in range(3):
        rig.after(1, dropped=True)
    assert rig.doubts == 1
    rig.after(1)
    rig.after(1, dropped=True)
    assert rig.doubts == 2


def test_what_was_dropped_is_sent_again_ever_more_rarely() -> None:
    rig = _Rig()
    rig.taints.answered(True)
    waits = []
    for _ in range(9):
        began = rig.clock.now
        while not rig.after(10, dropped=True).sends_again():
            pass
        waits.append(rig.clock.now - began)
        rig.taints.sent_again()
        assert not rig.taints.sends_again()
        rig.after(0, dropped=True)
    assert waits[0] == AGAIN + 10
    assert waits[1:4] == [2 * AGAIN, 4 * AGAIN, 8 * AGAIN]
    assert waits[-1] == RAREST


def test_what_is_known_to_be_dropped_is_not_sent_again_before_the_server_is_another() -> None:
    rig = _Rig()
    rig.taints.answered(True)
    rig.after(0, dropped=True)
    rig.taints.answered(False)
    assert not rig.after(10 * RAREST, dropped=True).sends_again()
    rig.taints.answered(True)
    assert rig.taints.sends_again(), "at once"


def test_trust_comes_back_after_a_while_where_the_server_says_that_it_keeps_taints() -> None:
    rig = _Rig()
    rig.taints.answered(True)
    rig.after(0, dropped=True)
    assert not rig.after(AGAIN - 1).withdraw, "what only a taint withdraws is left out, so nothing is dropped"
    assert rig.taints.unsure
    assert rig.after(1).withdraw
    rig.after(0, dropped=True)
    assert not rig.after(2 * AGAIN - 1).withdraw
    assert rig.after(1).withdraw


def test_a_loss_after_taints_were_kept_for_long_is_a_first_one() -> None:
    rig = _Rig()
    rig.taints.answered(True)
    rig.after(0, dropped=True)
    assert rig.after(AGAIN).withdraw
    rig.after(RAREST - 1, dropped=True)
    assert not rig.after(2 * AGAIN - 1).withdraw, "they were not kept for long"
    assert rig.after(1).withdraw
    rig.after(RAREST, dropped=True)
    assert not rig.after(AGAIN - 1).withdraw
    assert rig.after(1).withdraw


def test_trust_does_not_come_back_by_itself_where_the_server_says_nothing() -> None:
    rig = _Rig()
    rig.after(0, dropped=True)
    assert not rig.after(RAREST).withdraw
    rig.taints.answered(True)
    assert rig.after(0).withdraw
