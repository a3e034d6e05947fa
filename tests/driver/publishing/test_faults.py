from __future__ import annotations

from driver.publishing.publication import FAILED, WORKS_AGAIN, PublishingFaults
from node.clocks import SystemClocks
from node.events import EventType


class _Heard:
    """An event sink that keeps reasons."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def emit(self, kind: EventType, reason: str, message: str) -> None:
        self.reasons.append(reason)


def test_the_same_fault_is_told_again_after_all_was_well() -> None:
    heard = _Heard()
    faults = PublishingFaults(heard, SystemClocks(monotonic=lambda: 0.0))
    for _ in range(2):
        faults.note(ValueError("a slice breaks a rule"), "checking a pool")
        faults.note(ValueError("a slice breaks a rule"), "checking a pool")
        faults.look(working=True)
    assert heard.reasons == [FAILED, WORKS_AGAIN, FAILED, WORKS_AGAIN]
    assert faults.last == ""
