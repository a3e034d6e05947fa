"""What the NVLink fabric means for a GPU: the clique that it belongs to, and what is wrong.

Pure. The numbers are those of NVML's fabric information: a state of registration, the status with which it ended, and
from newer drivers a mask of health with a small field for each condition, which is 0 where the board lacks it. A GPU
outside its fabric still computes, so only routes that fail make it unhealthy: jobs over several GPUs would fail while
they run. A clique promises peers, and is only told while nothing but less bandwidth speaks against them.
"""

from __future__ import annotations

from collections.abc import Iterator

from node.health.policy import APART, NARROW, UNREACHABLE
from node.health.signal import Condition, Trouble
from node.inventory.facts import Fabric

NOT_SUPPORTED, COMPLETED = 0, 3
"""States of registration."""

_TRUE, _FALSE = 1, 2
_BANDWIDTH, _RECOVERING, _UNHEALTHY_ROUTE, _TIMEOUT = 0, 2, 4, 6
"""Where the mask's fields of two bits lie that say whether something is so."""
_CONFIGURATION, _PARTITION = 8, 12
_CONFIGURED = (0, 1)
"""Not told, and right."""
_UNHEALTHY, _LIMITED = 2, 3
"""Summaries."""
_WRONG = {
    2: "its system GUID is wrong",
    3: "the chassis' serial number is wrong",
    4: "it has no partition",
    5: "it has too few NVLinks",
    6: "its firmware does not fit",
    7: "its location is not valid",
    8: "its state is not valid",
}
_NO_PARTITION = 4


def clique(fabric: Fabric | None) -> str | None:
    """``<cluster>.<clique>`` while the GPU is a well part of its NVLink fabric; a cluster of zeros is none."""
    if fabric is None or fabric.state != COMPLETED or not fabric.cluster_uuid.strip("0-"):
        return None
    found = trouble(fabric)
    if found is not None and found.code != NARROW:
        return None
    return f"{fabric.cluster_uuid}.{fabric.clique_id}"


def trouble(fabric: Fabric | None) -> Condition | None:
    """The worst that the fabric says of the GPU; None while it is well, not there, or the GPU has not joined it yet."""
    return None if fabric is None or fabric.state != COMPLETED else next(_troubles(fabric), None)


def _troubles(fabric: Fabric) -> Iterator[Condition]:
    mask = fabric.health_mask or 0
    if _pair(mask, _UNHEALTHY_ROUTE) == _TRUE:
        yield _of("its routes to other GPUs are unhealthy", UNREACHABLE)
    if fabric.status != 0:
        yield _of(f"it could not join (NVML's error {fabric.status})", APART)
    configuration = mask >> _CONFIGURATION & 0xF
    if _pair(mask, _PARTITION) == _FALSE and configuration in _CONFIGURED:
        configuration = _NO_PARTITION
    if configuration not in _CONFIGURED:
        yield _of(_WRONG.get(configuration, f"it is configured wrongly (fault {configuration})"), APART)
    if _pair(mask, _RECOVERING) == _TRUE:
        yield _of("its routes to other GPUs are being recovered", APART)
    if _pair(mask, _TIMEOUT) == _TRUE:
        yield _of("it recovers from accesses that timed out", APART)
    if fabric.health_summary == _UNHEALTHY:
        yield _of("it is unhealthy, and no cause is told", APART)
    if _pair(mask, _BANDWIDTH) == _TRUE or fabric.health_summary == _LIMITED:
        yield _of("its bandwidth is degraded", NARROW)


def _pair(mask: int, shift: int) -> int:
    return mask >> shift & 0b11


def _of(what: str, code: int) -> Condition:
    return Condition(Trouble.FABRIC, f"NVLink fabric: {what}", code)
