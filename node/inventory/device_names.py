"""Names of one scan's devices, each given once.

Names hold what tells devices apart, so two are the same only where facts are odd: a driver that lists one device twice.
"""

from __future__ import annotations


class DeviceNames:
    """The names given so far."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def unique(self, name: str) -> str:
        """The name; numbered (``-n2``) where it is given already."""
        chosen, number = name, 2
        while chosen in self._given:
            chosen, number = f"{name}-n{number}", number + 1
        self._given.add(chosen)
        return chosen
