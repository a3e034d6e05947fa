"""Randomness for jitter: what keeps the nodes of a rollout from asking all at once.

Not the module ``random``, which costs a millisecond at the start and 0.2 MB for good, and whose quality nobody needs.
"""

from __future__ import annotations

import os


def chance() -> float:
    """A number in [0, 1)."""
    return int.from_bytes(os.urandom(4), "big") / 2**32
