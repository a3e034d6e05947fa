"""What can be wrong with a claim: one tree, whose texts go into the pod's events."""

from __future__ import annotations


class ClaimError(Exception):
    """A claim cannot be prepared or released; the text names the field or device, what is wrong, and the fix."""


class Unavailable(ClaimError):
    """Not the claim's fault and not for ever: the API server, the disk, a device that another claim still holds."""
