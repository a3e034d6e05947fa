"""What is remembered of GPUs handed out: the newest first, for each NIC resource once, and not for long."""

from __future__ import annotations

from plugin.recent import MOST, WINDOW, RecentGrants


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_grant_waits_for_each_nic_resource_once() -> None:
    recent = RecentGrants(Clock())
    recent.given({"u0": "gpu-0", "u1": "gpu-1"})
    assert recent.waiting("rdma/a") == ("gpu-0", "gpu-1")
    recent.followed("rdma/a")
    assert recent.waiting("rdma/a") == ()
    assert recent.waiting("rdma/b") == ("gpu-0", "gpu-1")


def test_the_newest_grant_is_followed_first() -> None:
    recent = RecentGrants(Clock())
    recent.given({"u0": "gpu-0"})
    recent.given({"u1": "gpu-1"})
    assert recent.waiting("nic") == ("gpu-1",)
    recent.followed("nic")
    assert recent.waiting("nic") == ("gpu-0",)


def test_a_grant_is_forgotten_after_the_window() -> None:
    clock = Clock()
    recent = RecentGrants(clock)
    recent.given({"u0": "gpu-0"})
    clock.now += WINDOW - 0.001
    assert recent.waiting("nic") == ("gpu-0",)
    clock.now += 0.001
    assert recent.waiting("nic") == ()
    recent.followed("nic")


def test_a_device_given_once_more_takes_its_former_grant_along() -> None:
    recent = RecentGrants(Clock())
    recent.given({"u0": "gpu-0", "u1": "gpu-1"})
    recent.given({"u1": "gpu-1"})
    recent.followed("nic")
    assert recent.waiting("nic") == ()


def test_parts_of_one_gpu_are_that_gpu_once() -> None:
    recent = RecentGrants(Clock())
    recent.given({"m0": "gpu-0", "m1": "gpu-0", "m2": "gpu-1"})
    recent.given({})
    assert recent.waiting("nic") == ("gpu-0", "gpu-1")


def test_memory_is_bounded() -> None:
    recent = RecentGrants(Clock())
    for number in range(MOST + 10):
        recent.given({f"u{number}": f"gpu-{number}"})
    for _ in range(MOST):
        recent.followed("nic")
    assert recent.waiting("nic") == ()
