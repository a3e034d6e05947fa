"""What the figures of health are made from."""

from __future__ import annotations

from node.health.policy import Policy
from node.health.signal import Condition, Trouble
from node.metrics import metrics_of
from ostler.admin.health import HealthView
from ostler.metrics.gauges import health
from tests.node.health.rig import A, B, C, D, HealthRig, nic
from tests.ostler.metrics import scraping

LOST = Condition(Trouble.LOST)


def numbers(rig: HealthRig) -> dict[tuple[str, ...], float]:
    """Samples by name and the values of their labels."""
    return scraping.numbers(metrics_of(rig.keeper.metrics), health(HealthView(rig.keeper).report()))


def test_every_state_of_every_kind_is_there_from_the_start() -> None:
    found = numbers(HealthRig([A, B, nic(0x86)]))
    assert {key[1:]: value for key, value in found.items() if key[0] == "ostler_device_health"} == {
        (kind, state): number if state == "healthy" else 0
        for kind, number in (("gpu", 2), ("nic", 1))
        for state in ("healthy", "degraded", "unhealthy", "unknown")
    }
    assert found["ostler_health_brake", "gpu"] == found["ostler_health_dry_run",] == 0
    assert found["ostler_health_events_total", "xid"] == 0


def test_verdicts_are_counted_by_what_caused_them() -> None:
    rig = HealthRig([A, B, C])
    rig.xid(A.name, 13)
    rig.xid(A.name, 9999)
    rig.look(B.name, LOST)
    rig.look(B.name)
    rig.time.forward(30)
    found = numbers(rig)
    assert found["ostler_health_verdicts_total", "gpu", "xid", "degraded"] == 1
    assert found["ostler_health_verdicts_total", "gpu", "xid", "unhealthy"] == 1
    assert found["ostler_health_verdicts_total", "gpu", "lost", "unhealthy"] == 1
    assert found["ostler_health_verdicts_total", "gpu", "", "healthy"] == 1
    assert found["ostler_xids_total", "13", "warn"] == found["ostler_xids_total", "other", "drain"] == 1
    assert found["ostler_health_looks_total", "kernel"] == 2
    assert found["ostler_device_health", "gpu", "unhealthy"] == 1


def test_the_trouble_of_a_device_is_the_cause_that_health_names() -> None:
    rig = HealthRig([A, B, C])
    rig.xid(A.name, 79)
    assert numbers(rig)["ostler_device_trouble", "gpu", "xid", "unhealthy"] == 1
    rig.look(A.name, LOST)
    rig.look(B.name, Condition(Trouble.THERMAL))
    troubles = {key[1:]: value for key, value in numbers(rig).items() if key[0] == "ostler_device_trouble"}
    assert troubles == {("gpu", "lost", "unhealthy"): 1, ("gpu", "thermal", "degraded"): 1}
    assert rig.entry(A.name).health.cause == "lost"


def test_what_evicts_what_flaps_and_eviction_limits_are_shown() -> None:
    rig = HealthRig([A, B, C, D])
    rig.look(A.name, LOST)
    rig.time.forward(11)
    for _ in range(4):
        rig.look(B.name, Condition(Trouble.CARRIER))
        rig.look(B.name)
    found = numbers(rig)
    assert found["ostler_health_evicting_devices", "gpu"] == 1
    assert found["ostler_health_flapping_devices", "gpu"] == 1
    rig.look(C.name, LOST)
    assert numbers(rig)["ostler_health_brake", "gpu"] == 1


def test_a_dry_run_is_seen() -> None:
    rig = HealthRig([A], Policy(dry_run=True))
    rig.xid(A.name, 95)
    found = numbers(rig)
    assert found["ostler_health_dry_run",] == 1
    assert found["ostler_device_health", "gpu", "unhealthy"] == 1
    assert found["ostler_health_evicting_devices", "gpu"] == 0
