"""Who holds which device, through which door: the value that sources of holds hand in.

Pure. A hold taken through one door keeps the device from the other; ``node.offer`` is the one place that acts on it.
"""

from __future__ import annotations

from node.rules import Door
from node.values import Value, value


@value
class Hold(Value):
    """A device (by name) held through a door by a pod or claim (``namespace/name``) since a time (Unix seconds)."""

    device: str
    door: Door
    holder: str
    since: float
