"""Who is inside the library besides the thread that scans, so that nobody shuts it down around them.

NVML itself may be called from many threads at once. What may not happen during a call is nvmlShutdown, a change of the
binding's globals, or the unloading of the library. So those threads pass a gate, and whoever ends a session closes it
first and waits, but not for ever: a driver that never returns from a call must not hang the scan.
"""

from __future__ import annotations

import threading


class Gate:
    """Open when made, and never again once closed. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._closed = False
        self._bells: list[threading.Event] = []

    @property
    def closed(self) -> bool:
        """Whether those inside are asked to leave."""
        return self._closed

    @property
    def empty(self) -> bool:
        """Whether nobody is inside."""
        return self._inside == 0

    def enter(self) -> bool:
        """Go in, to ``leave`` soon after the gate was closed; false when it is closed."""
        with self._changed:
            if self._closed:
                return False
            self._inside += 1
            return True

    def leave(self) -> None:
        """Go out."""
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def ring(self, bell: threading.Event) -> None:
        """Set this when the gate is closed: for those who wait outside."""
        with self._changed:
            self._bells.append(bell)
            if self._closed:
                bell.set()

    def pause(self, seconds: float) -> bool:
        """Wait so long inside, or until the gate is closed; whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closed, seconds)

    def close(self, within: float) -> bool:
        """Let nobody in any more and wait so many seconds until everybody is out; whether they are."""
        with self._changed:
            self._closed = True
            for bell in self._bells:
                bell.set()
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._inside == 0, within)
