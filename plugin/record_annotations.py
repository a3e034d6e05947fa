"""The annotations in which a scheduler and a node's agent name a pod's devices, and their strict reading.

Whoever creates pods may write annotations. So an annotation is short and well-formed, or it is not read at all. Pure,
and cheap to import: the scheduler extender reads them as well.
"""

from __future__ import annotations

import re

DEVICE_NUMBERS = "hivedscheduler.microsoft.com/pod-leaf-cell-isolation"
"""Written by the scheduler, corrected by the agent: the driver's numbers of the devices, such as ``0,1,4``."""
DEVICES = "ostler.dev/pod-devices"
"""Written by the scheduler, corrected by the agent: the devices' ids as the kubelet knows them."""
ALLOCATED = "ostler.dev/pod-allocated-devices"
"""Written by the agent: the ids of the devices that the kubelet gave the pod."""
LONGEST = 4096
"""Characters of an annotation that is read."""
MOST_DEVICES = 64
"""Devices of one record, and containers of one pod with a request; a pod with more has no record."""

_NUMBER = re.compile(r"0|[1-9][0-9]{0,3}")
_ID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._:/]{0,252}")


def numbers_in(text: str) -> tuple[int, ...]:
    """The numbers of an annotation; empty unless all of it is well-formed and none occurs twice."""
    return tuple(map(int, _items(text, _NUMBER)))


def ids_in(text: str) -> tuple[str, ...]:
    """The ids of an annotation; empty unless all of it is well-formed and none occurs twice."""
    return _items(text, _ID)


def _items(text: str, form: re.Pattern[str]) -> tuple[str, ...]:
    if not text or len(text) > LONGEST:
        return ()
    items = tuple(text.split(","))
    well = len(items) <= MOST_DEVICES and len(set(items)) == len(items) and all(map(form.fullmatch, items))
    return items if well else ()
