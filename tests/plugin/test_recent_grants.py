"""What one container got: both ways round, for each resource once, and not after a pause."""

from __future__ import annotations

from node.clocks import SystemClocks
from node.topology.model import Place
from plugin.gpu_nic_pairing import PAUSE, RecentGrants
from tests.making.clock import ManualClock
from tests.making.places import gpu, nic


def gpus(*numbers: int) -> dict[str, Place]:
    return {f"u{number}": gpu(number) for number in numbers}


def nics(*numbers: int) -> dict[str, Place]:
    return {f"p{number}": nic(number) for number in numbers}


def names(places: tuple[Place, ...]) -> list[str]:
    return [place.name for place in places]


def test_nothing_is_recent_at_the_start() -> None:
    recent = RecentGrants(SystemClocks(monotonic=lambda: 0.0))
    assert recent.gpus("nic") == recent.nics("gpu") == ()


def test_the_nics_of_a_container_follow_its_gpus_each_resource_once() -> None:
    recent = RecentGrants(SystemClocks(monotonic=ManualClock(100.0)))
    recent.granted("gpu", gpus(0, 1), {})
    assert names(recent.gpus("nic/a")) == ["gpu-0", "gpu-1"]
    recent.granted("nic/a", {}, nics(0))
    assert recent.gpus("nic/a") == (), "that is the next container's"
    assert names(recent.gpus("nic/b")) == ["gpu-0", "gpu-1"]


def test_the_gpus_of_a_container_follow_its_nics_of_all_resources() -> None:
    recent = RecentGrants(SystemClocks(monotonic=ManualClock(100.0)))
    recent.granted("nic/a", {}, nics(3))
    recent.granted("nic/b", {}, nics(4, 5))
    assert names(recent.nics("gpu")) == ["nic-3", "nic-4", "nic-5"]
    recent.granted("gpu", gpus(3), {})
    assert recent.nics("gpu") == ()


def test_a_resource_that_is_given_once_more_begins_another_container() -> None:
    recent = RecentGrants(SystemClocks(monotonic=ManualClock(100.0)))
    recent.granted("gpu", gpus(0), {})
    recent.granted("gpu", gpus(1), {})
    assert names(recent.gpus("nic")) == ["gpu-1"]
    recent.granted("nic", {}, nics(1))
    recent.granted("nic", {}, nics(2))
    assert names(recent.nics("gpu")) == ["nic-2"]
    assert recent.gpus("other nic") == (), "the GPUs are the former container's"


def test_containers_of_both_orders_are_told_apart() -> None:
    recent = RecentGrants(SystemClocks(monotonic=ManualClock(100.0)))
    for number, gpus_first in enumerate([True, False, False, True, True, False]):
        if gpus_first:
            assert recent.nics("gpu") == ()
            recent.granted("gpu", gpus(number), {})
            assert names(recent.gpus("nic")) == [f"gpu-{number}"]
            recent.granted("nic", {}, nics(number))
        else:
            assert recent.gpus("nic") == ()
            recent.granted("nic", {}, nics(number))
            assert names(recent.nics("gpu")) == [f"nic-{number}"]
            recent.granted("gpu", gpus(number), {})


def test_a_container_is_over_after_a_pause() -> None:
    clock = ManualClock(100.0)
    recent = RecentGrants(SystemClocks(monotonic=clock))
    recent.granted("gpu", gpus(0), {})
    clock.now += PAUSE - 0.001
    recent.granted("mig", gpus(4), {})
    clock.now += PAUSE - 0.001
    assert names(recent.gpus("nic")) == ["gpu-0", "gpu-4"]
    clock.now += 0.001
    assert recent.gpus("nic") == ()
    recent.granted("nic", {}, nics(1))
    assert names(recent.nics("gpu")) == ["nic-1"]
    assert recent.gpus("other nic") == ()


def test_parts_of_one_gpu_and_functions_of_one_nic_are_that_device_once() -> None:
    recent = RecentGrants(SystemClocks(monotonic=ManualClock(100.0)))
    recent.granted("mig", {"m0": gpu(0), "m1": gpu(0), "m2": gpu(1)}, {})
    recent.granted("vf", {}, {"v0": nic(0), "v1": nic(0)})
    assert names(recent.gpus("nic")) == ["gpu-0", "gpu-1"]
    assert names(recent.nics("gpu")) == ["nic-0"]


def test_a_resource_of_neither_kind_changes_nothing() -> None:
    recent = RecentGrants(SystemClocks(monotonic=ManualClock(100.0)))
    recent.granted("gpu", gpus(0), {})
    recent.granted("other", {}, {})
    recent.granted("other", {}, {})
    assert names(recent.gpus("nic")) == ["gpu-0"]
