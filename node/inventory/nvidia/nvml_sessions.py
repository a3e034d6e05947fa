"""The NVML session of the moment, for threads beside the one that scans.

The source opens and ends sessions as the driver demands; others use the one there is, inside ``Binding.shared``, and
never open their own: a process has one binding, and each session costs hundreds of milliseconds on some nodes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from node.inventory.nvidia.nvml_binding import Binding

LEAVE_WITHIN = 6.0
"""Seconds that whoever ends a session waits for the others to leave; longer than a wait for events lasts."""


class NvmlSessions:
    """What the source shares. All methods may be called from any thread.

    ``patience``: seconds that the end of a session waits for those who still use it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: Binding | None = None
        self._followers: tuple[Callable[[Binding], None], ...] = ()
        self.patience = LEAVE_WITHIN

    @property
    def current(self) -> Binding | None:
        """The open session's binding, None while there is none."""
        return self._current

    def follow(self, opened: Callable[[Binding], None]) -> Callable[[], None]:
        """Have every session handed over when it opens, also the one that is open; returns how to end that.

        Called in the thread that opens it; must return at once and not raise.
        """
        with self._lock:
            self._followers = (*self._followers, opened)
            current = self._current
        if current is not None:
            opened(current)

        def leave() -> None:
            with self._lock:
                self._followers = tuple(each for each in self._followers if each is not opened)

        return leave

    def opened(self, binding: Binding) -> None:
        """The source has a session from now on."""
        with self._lock:
            self._current = binding
            followers = self._followers
        for follower in followers:
            follower(binding)

    def closing(self) -> None:
        """It ends its session."""
        with self._lock:
            self._current = None

    def hurry(self) -> None:
        """The process ends: from now on nobody is waited for, and what is left open goes with it."""
        self.patience = 0.0
