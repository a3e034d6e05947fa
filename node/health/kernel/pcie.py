"""What PCIe counters and link registers mean for a device. Pure.

Errors (Advanced Error Reporting, the kernel's ABI file sysfs-bus-pci-devices-aer_stats) are counted since boot, so only
growth between two looks says something: any growth of errors that were not correctable, and of correctable ones a rate
that a link in order does not have.

The link should be what the lesser of its two ends can do. Lanes that are missing are a fault of every device. Speed is
one of NICs only: GPUs lower it when they are idle (to 2.5 GT/s and back within milliseconds), so for them it says
nothing. Virtual functions have no link of their own.
"""

from __future__ import annotations

import re
from typing import TypeVar

from node.health.signal import Condition, Trouble
from node.values import Value, value

CORRECTABLE, NONFATAL, FATAL = 0, 1, 2
"""``Condition.code`` of ``Trouble.AER``: the worst kind of error that was counted."""
CORRECTABLE_PER_SECOND = 10.0
"""Corrected errors beyond which a link is bad: NVIDIA and NIC vendors tolerate some a minute; a bad cable makes
hundreds a second."""
_Number = TypeVar("_Number", int, float)
_MOST_LANES = 32
_TOTAL = re.compile(r"^TOTAL_ERR_\w+ (\d{1,19})$", re.MULTILINE)
_SPEED = re.compile(r"(\d{1,3}(?:\.\d{1,2})?) GT/s")
_LANES = re.compile(r"\d{1,3}")


@value
class AerCounts(Value):
    """Errors since boot; None where the function does not count them."""

    correctable: int | None = None
    nonfatal: int | None = None
    fatal: int | None = None


@value
class PcieLink(Value):
    """Lanes, and gigatransfers per second; None where unknown."""

    lanes: int | None = None
    speed: float | None = None

    def lesser(self, other: PcieLink) -> PcieLink:
        """What both can do; what one does not tell is not limited by it."""
        return PcieLink(_least(self.lanes, other.lanes), _least(self.speed, other.speed))


def aer_total(text: str) -> int | None:
    """The sum at the end of an ``aer_dev_*`` file, None when it has none."""
    found = _TOTAL.search(text)
    return int(found[1]) if found else None


def pcie_link(lanes: str, speed: str) -> PcieLink:
    """From the texts of two attributes (``16`` and ``32.0 GT/s PCIe``); 0 lanes, 63 and ``Unknown`` are not known."""
    number = int(lanes) if _LANES.fullmatch(lanes) else 0
    found = _SPEED.match(speed)
    return PcieLink(number if 0 < number <= _MOST_LANES else None, float(found[1]) if found else None)


def aer_troubles(before: AerCounts, now: AerCounts, seconds: float) -> tuple[Condition, ...]:
    """What the growth within so many seconds says; counters that fell belong to a device that was made anew."""
    fatal, nonfatal = _growth(before.fatal, now.fatal), _growth(before.nonfatal, now.nonfatal)
    if fatal or nonfatal:
        # No numbers in the texts: a state whose words change all the time is told again and again.
        detail = "fatal PCIe errors" if fatal else "PCIe errors that could not be corrected"
        return (Condition(Trouble.AER, detail, FATAL if fatal else NONFATAL),)
    corrected = _growth(before.correctable, now.correctable)
    if seconds > 0 and corrected / seconds > CORRECTABLE_PER_SECOND:
        detail = f"more than {CORRECTABLE_PER_SECOND:g} corrected PCIe errors a second"
        return (Condition(Trouble.AER, detail, CORRECTABLE),)
    return ()


def link_troubles(current: PcieLink, capable: PcieLink, *, speed_counts: bool) -> tuple[Condition, ...]:
    """What is missing of the link; ``speed_counts``: a speed below what it should be is a fault as well."""
    missing = []
    if current.lanes is not None and capable.lanes is not None and current.lanes < capable.lanes:
        missing.append(f"{current.lanes} of {capable.lanes} PCIe lanes")
    if speed_counts and current.speed is not None and capable.speed is not None and current.speed < capable.speed:
        missing.append(f"{current.speed:g} of {capable.speed:g} GT/s")
    return (Condition(Trouble.PCIE_LINK, f"its link runs with {' and '.join(missing)}"),) if missing else ()


def _least(one: _Number | None, other: _Number | None) -> _Number | None:
    return other if one is None else one if other is None else min(one, other)


def _growth(before: int | None, now: int | None) -> int:
    return max(now - before, 0) if before is not None and now is not None else 0
