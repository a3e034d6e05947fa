"""What tests replace of the process: clocks, randomness, and the way to systemd."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import field

from node.clocks import chance
from node.values import Value, value
from ostler.agent.systemd import Notifier


@value
class Edges(Value):
    """``clock``: Unix seconds. ``random``: numbers in [0, 1)."""

    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    random: Callable[[], float] = chance
    notifier: Notifier = field(default_factory=Notifier)
