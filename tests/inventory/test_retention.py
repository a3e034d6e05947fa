from __future__ import annotations

from dataclasses import replace

from node.health.state import HealthState
from node.inventory.devices import devices_of
from node.inventory.facts import GpuFacts
from node.inventory.identity import Identities
from node.inventory.retention import retained
from tests.inventory.making import a100, gpu, mig, node

REMEMBERED = Identities((("0000:1b:00.0", "GPU-0"),))
WHOLE = devices_of(node(a100(0, mig(0, 0), mig(1, 1)), gpu(1)), Identities())
LOST = devices_of(node(GpuFacts(index=0, error="GPU_IS_LOST"), gpu(1)), REMEMBERED)


def test_lost_gpu_keeps_what_was_known_of_it_and_its_mig_devices() -> None:
    found = {device.name: device for device in retained(LOST, WHOLE)}
    assert sorted(found) == [device.name for device in WHOLE]
    lost = found["gpu-0000-1b-00-0"]
    assert lost.text("productName") == "NVIDIA A100-SXM4-40GB"
    assert lost.attribute("migEnabled") is True
    part = found["mig-0000-1b-00-0-0-1"]
    assert part.uuid == WHOLE[2].uuid
    assert part.health.state is HealthState.UNHEALTHY
    assert part.health.reason.startswith("its GPU gpu-0000-1b-00-0: the GPU is lost")
    assert found["gpu-0000-2b-00-0"].health.state is HealthState.HEALTHY


def test_what_is_kept_stays_kept() -> None:
    once = retained(LOST, WHOLE)
    assert retained(LOST, once) == once


def test_gpu_that_comes_back_tells_of_itself() -> None:
    merged = devices_of(node(gpu(0), gpu(1)), Identities())
    assert retained(merged, retained(LOST, WHOLE)) == merged


def test_mig_devices_that_were_destroyed_are_gone() -> None:
    fewer = devices_of(node(a100(0, mig(0, 0)), gpu(1)), Identities())
    assert retained(fewer, WHOLE) == fewer


def test_gpu_that_left_the_machine_is_gone() -> None:
    gone = devices_of(node(gpu(1), pci=()), Identities())
    assert retained(gone, WHOLE) == gone


def test_gpu_of_which_nothing_was_ever_known_stays_so() -> None:
    assert retained(LOST, LOST) == LOST
    assert retained(LOST, ()) == LOST


def test_uuid_of_now_wins() -> None:
    other = tuple(replace(device, uuid="GPU-new") for device in LOST[:1])
    assert retained(other, WHOLE)[0].uuid == "GPU-new"
