"""A kubelet that forgets, as those of today do, what it was allocating when somebody asked it what pods have."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.rules import Doors
from tests.model.objects import NAMESPACE, ModelAsk, ModelPhase, ModelPod
from tests.model.world import ModelWorld

GPU = 0
SLOW = 0.5
"""Seconds of every call, so that a pod can end while another one is being given a device."""


@pytest.fixture
def world() -> Iterator[ModelWorld]:
    root = Path(tempfile.mkdtemp(prefix="ostler-forgets-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    made = ModelWorld(root, (Doors.PLUGIN,) * 5)
    made.start_agent()
    made.loop.pass_time(30.0)
    made.lags.answering = SLOW
    yield made
    made.close()
    shutil.rmtree(root, ignore_errors=True)


def given(world: ModelWorld, *, ordinary: bool = False) -> ModelPod:
    asks = (ModelAsk(GPU, ordinary=True), ModelAsk(GPU)) if ordinary else (ModelAsk(GPU),)
    return world.cluster.new_pod(asks, (), controlled=False)


def forget(world: ModelWorld) -> ModelPod:
    """A pod whose device the kubelet gives again next."""
    first = given(world)
    world.loop.pass_time(20.0)
    second = given(world)
    world.loop.pass_time(3 * SLOW)
    world.kubelet.faults.asked = True
    world.kubelet.end(first)
    world.loop.pass_time(20.0)
    world.kubelet.faults.asked = False
    given(world)  # Gets what the first one had.
    world.loop.pass_time(20.0)
    assert second.alive
    return second


def test_a_device_that_the_kubelet_gives_again_is_refused_while_its_pod_has_it(world: ModelWorld) -> None:
    second = forget(world)
    third = given(world)
    world.loop.pass_time(20.0)
    assert not world.broken
    assert third.phase is ModelPhase.FAILED
    why = next(why for _, pod, why in world.kubelet.admissions if pod is third)
    assert f"held through the plugin door by {NAMESPACE}/{second.name}, for which the kubelet has it on record" in why


def test_the_refusal_lets_the_kubelet_remember_and_the_next_pod_gets_another_device(world: ModelWorld) -> None:
    second = forget(world)
    given(world)
    world.loop.pass_time(20.0)
    fourth = given(world)
    world.loop.pass_time(20.0)
    assert second.alive
    assert fourth.alive
    assert not world.broken


def test_the_app_container_gets_the_device_of_its_init_container(world: ModelWorld) -> None:
    pod = given(world, ordinary=True)
    world.loop.pass_time(20.0)
    assert pod.alive
    assert not world.kubelet.admissions


def test_a_device_whose_pod_has_ended_a_moment_ago_is_given_again(world: ModelWorld) -> None:
    first = given(world)
    world.loop.pass_time(20.0)
    world.kubelet.end(first)
    second = given(world)
    world.loop.pass_time(20.0)
    assert second.alive
    assert not world.kubelet.admissions
