"""What can be wrong with a claim: one tree, whose texts go into the pod's events."""

from __future__ import annotations


class ClaimError(Exception):
    """A claim cannot be prepared or released; the text names the field or device, what is wrong, and the fix."""


class Unavailable(ClaimError):
    """Not the claim's fault and not for ever: the API server, the disk, a device that another claim still holds."""


class Refused(Unavailable):
    """The API server does not let us read what was asked for; ``reason`` in its own words.

    A node's own identity gets this for every claim that no pod of the node uses, also for one that is gone.
    """

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason
