"""The conditions of a GPU that follow from this look at it and the one before.

Pure. Only the growth of a counter matters: what it counted before the first look, or before the driver was loaded, does
not. So growth is a condition of one look, and the health tracker decides how long it counts against the GPU. An NVLink
that is down is a trouble only if it was up: boards leave links unwired, and fabrics come up late.
"""

from __future__ import annotations

from collections.abc import Iterator

from node.health.policy import FAILED, PENDING, RECOVERY_WORDS
from node.health.signal import Condition, Trouble
from node.inventory.nvidia.health import SRAM_EXCEEDED, trouble
from node.inventory.nvidia.signals.vitals import Vitals

LINK_DOWN, LINK_ERRORS = 0, 1
"""The conditions of NVLinks."""
RESET = 1
"""The recovery action of a GPU that answers with RESET_REQUIRED."""

_HW_THERMAL, _HW_POWER_BRAKE = 0x40, 0x80
"""Reasons for slower clocks that hardware gives for its own protection (nvmlClocksEventReason...)."""


def conditions(now: Vitals, before: Vitals, up: frozenset[int]) -> tuple[Condition, ...]:
    """The conditions; ``before`` is an empty value at the first look, ``up`` are the links that have been seen up."""
    if now.gone is not None:
        return (_gone(now.gone),)
    return (
        *_recovery(now),
        *_memory(now, before),
        *_rows(now),
        *_sram(now),
        *_fabric(now),
        *_links(now, before, up),
        *_clocks(now),
    )


def _gone(error: str) -> Condition:
    if error == "RESET_REQUIRED":
        return Condition(Trouble.RECOVERY, f"the GPU must be reset before it can be used again ({error})", RESET)
    return Condition(Trouble.LOST, f"the GPU fell off the bus or no longer answers the driver ({error})")


def _recovery(now: Vitals) -> Iterator[Condition]:
    if now.recovery:
        action = RECOVERY_WORDS.get(now.recovery, f"recovery action {now.recovery}")
        yield Condition(Trouble.RECOVERY, f"the driver asks for {action}", now.recovery)


def _memory(now: Vitals, before: Vitals) -> Iterator[Condition]:
    grown = _growth(now.ecc_volatile, before.ecc_volatile)
    if grown:
        plural = "s" if grown > 1 else ""
        detail = f"{grown} new uncorrectable memory error{plural}, {now.ecc_volatile} since the driver was loaded"
        yield Condition(Trouble.ECC, detail)


def _rows(now: Vitals) -> Iterator[Condition]:
    if now.rows_failed:
        yield Condition(Trouble.ROW_REMAP, "a memory row could not be remapped: no spare rows are left for it", FAILED)
    elif now.rows_pending:
        yield Condition(Trouble.ROW_REMAP, "a memory row waits to be remapped at the next reset of the GPU", PENDING)
    elif now.pages_pending:
        yield Condition(Trouble.ROW_REMAP, "memory pages wait to be retired at the next reset of the GPU", PENDING)


def _sram(now: Vitals) -> Iterator[Condition]:
    if now.sram is not None and now.sram.threshold_exceeded:
        yield Condition(Trouble.SRAM, SRAM_EXCEEDED)


def _fabric(now: Vitals) -> Iterator[Condition]:
    found = None if now.mig else trouble(now.fabric)
    if found is not None:
        yield found


def _links(now: Vitals, before: Vitals, up: frozenset[int]) -> Iterator[Condition]:
    down = [link for link, active in now.links if not active and link in up]
    if down:
        plural = "s" if len(down) > 1 else ""
        yield Condition(Trouble.NVLINK, f"NVLink{plural} {', '.join(map(str, down))} went down", LINK_DOWN)
        return
    counted = dict(before.link_errors)
    grown = [(kind, _growth(count, counted.get(kind))) for kind, count in now.link_errors]
    words = [f"{kind} +{more}" for kind, more in grown if more]
    if words:
        yield Condition(Trouble.NVLINK, f"NVLink errors since the last look: {', '.join(words)}", LINK_ERRORS)


def _clocks(now: Vitals) -> Iterator[Condition]:
    reasons = now.clocks or 0
    if reasons & _HW_THERMAL:
        yield Condition(Trouble.THERMAL, "the hardware slows the GPU down because it is too hot")
    if reasons & _HW_POWER_BRAKE:
        yield Condition(Trouble.POWER, "the power supply makes the GPU slow down (power brake)")


def _growth(now: int | None, before: int | None) -> int:
    """By how much a counter grew; a smaller one started again with the driver."""
    return max(0, now - before) if now is not None and before is not None else 0
