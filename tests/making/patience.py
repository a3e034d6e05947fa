"""The time that tests give to agents: on a machine that others use, too, they may be slow at whatever they do."""

from __future__ import annotations

PATIENCE = 120.0
"""Seconds."""
SANDBOX_LIMITS = (
    "sandbox.process.START_TIMEOUT",
    "sandbox.process.ANSWER_TIMEOUT",
    "sandbox.waits.REGISTRATION_TIMEOUT",
)
"""What is ``PATIENCE`` in tests, in their own processes and in those of sandboxes that they start."""
