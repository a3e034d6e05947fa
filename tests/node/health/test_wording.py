"""One event for what has one cause."""

from __future__ import annotations

from node.events import EventType
from node.health.finding import Verdict
from node.health.state import Health, HealthState, Recovery
from node.health.wording import HealthChange, named, stories

HEALTHY, DEGRADED, UNHEALTHY, UNKNOWN = HealthState


def change(name: str, state: HealthState, reason: str = "", recovery: Recovery = Recovery.AUTOMATIC) -> HealthChange:
    return HealthChange(name, "gpu", HEALTHY, Verdict(Health(state, reason, recovery=recovery)))


def test_devices_with_one_reason_are_told_of_together() -> None:
    silent = [change(f"gpu-{number}", UNKNOWN, "the driver does not answer") for number in range(8)]
    assert stories([*silent, change("gpu-9", DEGRADED, "hot")], dry_run=False) == [
        (
            EventType.WARNING,
            "DeviceUnknown",
            (
                "gpu-0, gpu-1, gpu-2 and 5 more are unknown: the driver does not answer; recovers by itself after"
                " a quiet time"
            ),
        ),
        (
            EventType.WARNING,
            "DeviceDegraded",
            "gpu-9 is degraded: hot; recovers by itself after a quiet time",
        ),
    ]


def test_what_ends_it_is_said() -> None:
    ends = {
        recovery: stories([change("gpu-0", UNHEALTHY, "x", recovery)], dry_run=False)[0][2]
        for recovery in Recovery
        if recovery is not Recovery.NONE
    }
    assert ends == {
        Recovery.AUTOMATIC: "gpu-0 is unhealthy: x; recovers by itself after a quiet time",
        Recovery.RESET: "gpu-0 is unhealthy: x; recovers after a reset of the device",
        Recovery.REPLACE: "gpu-0 is unhealthy: x; recovers when a person clears it ('ostler health clear')",
        Recovery.PERSON: (
            "gpu-0 is unhealthy: x; ends when the override is cleared ('ostler health clear') or expires"
        ),
    }


def test_getting_well_is_good_news() -> None:
    assert stories([change("gpu-0", HEALTHY), change("gpu-1", HEALTHY)], dry_run=False) == [
        (EventType.NORMAL, "DeviceHealthy", "gpu-0 and gpu-1 are healthy again")
    ]


def test_a_few_names_are_said_and_the_rest_is_counted() -> None:
    assert named([]) == ""
    assert named(["a"]) == "a"
    assert named("abc") == "a, b and c"
    assert named("abcd") == "a, b, c and d"
    assert named("abcde") == "a, b, c and 2 more"
