"""Pods deleted by force, whose containers run on: what they have is given to nobody before these have ended."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from node.ledger.tenants import WAIT
from node.rules import Doors
from tests.model import hardware
from tests.model.objects import ModelAsk, ModelPhase, ModelPod
from tests.model.world import ModelWorld

Make = Callable[[ModelWorld], ModelPod]
GPU = 0
ALL = hardware.number_of(GPU)


@pytest.fixture
def world() -> Iterator[ModelWorld]:
    root = Path(tempfile.mkdtemp(prefix="ostler-forced-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    made = ModelWorld(root, (Doors.BOTH,) * 5)
    made.start_agent()
    made.loop.pass_time(30.0)
    yield made
    made.close()
    shutil.rmtree(root, ignore_errors=True)


def by_plugin(world: ModelWorld, count: int = ALL) -> ModelPod:
    return world.cluster.new_pod((ModelAsk(GPU, count),), (), controlled=False)


def by_claim(world: ModelWorld, count: int = ALL) -> ModelPod:
    return world.cluster.new_pod((), (world.cluster.new_claim(GPU, count),), controlled=False)


def runs(pod: ModelPod) -> bool:
    return pod.alive


def deleted(world: ModelWorld, pod: ModelPod, lingering: float) -> None:
    world.lags.lingering = lingering
    world.cluster.delete_by_force(pod)


@pytest.mark.parametrize("second", [by_plugin, by_claim])
@pytest.mark.parametrize("first", [by_plugin, by_claim])
def test_the_next_pod_has_the_devices_when_the_containers_have_ended(
    world: ModelWorld, first: Make, second: Make
) -> None:
    pod = first(world)
    world.loop.pass_time(20.0)
    assert pod.alive
    deleted(world, pod, 3.0)
    following = second(world)
    world.loop.pass_time(2.5)
    assert not runs(following)
    world.loop.pass_time(40.0)
    assert runs(following)
    assert not world.broken


@pytest.mark.parametrize("second", [by_plugin, by_claim])
@pytest.mark.parametrize("first", [by_plugin, by_claim])
@pytest.mark.parametrize("kubelet", [False, True])
def test_a_process_that_begins_meanwhile_knows_of_them_too(
    world: ModelWorld, first: Make, second: Make, *, kubelet: bool
) -> None:
    pod = first(world)
    world.loop.pass_time(20.0)
    deleted(world, pod, 4.0)
    world.kill_agent()
    if kubelet:
        world.restart_kubelet()
    world.start_agent()
    following = second(world)
    world.loop.pass_time(60.0)
    assert not world.broken
    assert following.alive or following.phase is not ModelPhase.PENDING


def test_two_pods_in_a_row_are_deleted_before_anybody_has_read_which_pod_had_what(world: ModelWorld) -> None:
    """The kubelet's file names the first one only until the second one has got its device."""
    first = by_plugin(world, 1)
    world.loop.pass_time(0.12)
    while not first.alive:
        world.loop.pass_time(0.005)
    deleted(world, first, 3.0)
    second, third = by_plugin(world, 1), by_plugin(world, 1)
    world.loop.pass_time(30.0)
    assert second.alive
    assert third.alive
    assert not world.broken


def test_an_allocate_that_waits_in_vain_is_refused_with_the_pod_named_and_the_next_one_at_once(
    world: ModelWorld,
) -> None:
    pod = by_plugin(world)
    world.loop.pass_time(20.0)
    deleted(world, pod, 60.0)
    waiting = by_plugin(world)
    began = world.loop.time()
    while waiting.phase is ModelPhase.PENDING:
        world.loop.pass_time(0.1)
    assert WAIT <= world.loop.time() - began < WAIT + 2
    _, refused, why = world.kubelet.admissions[-1]
    assert refused is waiting
    assert f"is pending release: containers of pod team/{pod.name} (UID {pod.uid}) still run" in why
    assert "ostler holds release" in why
    world.loop.pass_time(3.0)
    agent = world.agent
    assert agent is not None
    shown = {item.device.name: item for resource in agent.offer.resources for item in resource.devices}
    assert not any(shown[device.name].healthy for device in hardware.DEVICES[:ALL])
    world.loop.pass_time(70.0)
    assert not world.settle()
    assert not world.broken


def test_where_nobody_can_see_containers_devices_are_given_as_the_kubelet_says(world: ModelWorld) -> None:
    world.kubelet.off = "nothing is seen"
    pod = by_plugin(world)
    world.loop.pass_time(20.0)
    deleted(world, pod, 5.0)
    following = by_plugin(world)
    world.loop.pass_time(3.0)
    assert following.alive
    assert world.broken, "the model does not see what it is for"


def test_a_person_can_give_back_what_is_pending(world: ModelWorld) -> None:
    pod = by_plugin(world)
    world.loop.pass_time(20.0)
    deleted(world, pod, 60.0)
    world.loop.pass_time(10.0)
    agent = world.agent
    assert agent is not None
    names = [hold.device for hold in agent.books.ledger.all]
    assert len(names) == ALL
    for name in names:
        world.release(name)
    assert not agent.books.ledger.all


def test_a_pod_that_is_deleted_before_it_has_begun_begins_all_the_same_where_the_kubelet_hears_late(
    world: ModelWorld,
) -> None:
    world.lags.forgetting, world.lags.lingering = 3.0, 3.0
    world.lags.starting = 2.0
    pod = by_plugin(world)
    while not world.kubelet.devices.records:
        world.loop.pass_time(0.01)
    assert not runs(pod)
    world.cluster.delete_by_force(pod)
    world.loop.pass_time(1.0)
    following = by_claim(world)
    world.loop.pass_time(1.5)
    assert runs(pod)
    world.loop.pass_time(60.0)
    assert runs(following)
    assert not world.broken


@pytest.mark.parametrize("second", [by_plugin, by_claim])
def test_a_new_process_that_cannot_read_the_checkpoint_knows_them_by_the_names_of_their_pods(
    world: ModelWorld, second: Make
) -> None:
    pod = by_plugin(world)
    world.loop.pass_time(0.2)
    world.kubelet.faults.recorded = True
    world.kill_agent()
    world.start_agent()
    world.loop.pass_time(5.0)
    assert pod.alive
    deleted(world, pod, 3.0)
    following = second(world)
    world.loop.pass_time(2.5)
    assert not runs(following)
    world.kubelet.faults.recorded = False
    world.loop.pass_time(40.0)
    assert runs(following)
    assert not world.broken
