"""Modules that registration does not need, loaded in a thread when a part comes to need them.

An import on the event loop holds up every call that the kubelet makes meanwhile. In a thread it takes the interpreter's
lock from the loop for a moment at a time, and the lock changes hands ten times as often as usual while modules load.
Whoever imports a module in a function after the kubelet has the device list loads it here first.
"""

from __future__ import annotations

import asyncio
import importlib
import sys

_SWITCH = 0.0005
"""Seconds after which a thread that loads gives up the interpreter's lock to one that waits for it."""
_USUAL_SWITCH = sys.getswitchinterval()


async def load(*names: str) -> None:
    """Load these modules, in this order, without holding up the event loop; raises what their import raises."""
    await asyncio.to_thread(_load, names)


def _load(names: tuple[str, ...]) -> None:
    sys.setswitchinterval(_SWITCH)
    try:
        for name in names:
            importlib.import_module(name)
    finally:
        sys.setswitchinterval(_USUAL_SWITCH)
