"""Random pods, claims, rules, deaths, lost answers and stale readings: no device ever has two holders, and all ends.

The sequences are the same in every run, so that a change is judged by what it changes. For others, and more of them:
``OSTLER_MODEL_EXAMPLES=5000 OSTLER_MODEL_STEPS=80``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import Doorways, SharedDoorways

EXAMPLES = int(os.environ.get("OSTLER_MODEL_EXAMPLES", "40"))
STEPS = int(os.environ.get("OSTLER_MODEL_STEPS", "30"))
LONG = "OSTLER_MODEL_EXAMPLES" in os.environ


@pytest.fixture
def silence() -> Iterator[None]:
    """Thousands of refused claims are no news here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(600 + EXAMPLES * STEPS // 20)  # Shrinking a failure takes minutes.
@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize("machine", [Doorways, SharedDoorways])
def test_no_device_has_two_holders_and_everything_that_is_free_is_offered(machine: type[Doorways]) -> None:
    profile = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        derandomize=not LONG,
        deadline=None,
        database=None,
        print_blob=LONG,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=profile)
