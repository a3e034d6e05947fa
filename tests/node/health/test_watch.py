"""The process' part: who is told what, and when, by sources that tell only what is new."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from node.events import EventBus
from node.health.policy import Policy
from node.health.signal import Condition, Look, Trouble
from node.health.state import Action, HealthState
from node.inventory.live.hardware import LiveHardware
from node.inventory.model import Snapshot, SourceState, SourceStatus
from node.rules import Rule
from node.values import replace
from ostler.agent.edges import Edges
from ostler.agent.health_watch import HealthWatch
from ostler.config.settings import Settings
from tests.making.events import RecordedEvents
from tests.node.health.rig import START, nic

PORT = nic(0x86)
DOWN = Look("kernel", START, {PORT.name: (Condition(Trouble.CARRIER),)})


@dataclass
class Live:
    """Hardware that knows of a link that is down, and says so when it is asked to."""

    watch: HealthWatch
    shown: list[Snapshot] = field(default_factory=list)
    followed: list[dict[str, Path]] = field(default_factory=list)

    def observe(self, snapshot: Snapshot, rules: tuple[Rule, ...]) -> None:
        self.shown.append(snapshot)

    def follow(self, places: Mapping[str, Path]) -> None:
        self.followed.append(dict(places))

    def republish(self) -> None:
        self.watch._loaded().looked(DOWN)

    def status(self, *, interfaces: bool) -> SourceStatus:
        return SourceStatus("kernel", SourceState.OK)


@pytest.fixture
async def watch(tmp_path: Path) -> AsyncIterator[HealthWatch]:
    clocks = Edges(lambda: START)
    made = HealthWatch(Settings(state_dir=tmp_path), (), EventBus(), clocks, RecordedEvents())
    made.live = cast("LiveHardware", Live(made))
    yield made
    made.close()


def state(watch: HealthWatch) -> HealthState:
    (device,) = watch.judged.devices
    return device.health.state


async def test_a_standby_learns_what_was_told_before_it_served(watch: HealthWatch) -> None:
    watch.observe(Snapshot(1, (PORT,)))
    assert state(watch) is HealthState.HEALTHY
    watch.view()
    assert state(watch) is HealthState.UNHEALTHY


async def test_metrics_have_no_figures_before_somebody_judges_and_load_nothing_in_their_thread(
    watch: HealthWatch,
) -> None:
    watch.live = None
    watch.observe(Snapshot(1, (PORT,)))
    assert await asyncio.to_thread(watch.figures) is None
    watch.view()
    figures = await asyncio.to_thread(watch.figures)
    assert figures is not None
    assert figures.report == watch.view().report()


async def test_another_policy_is_told_what_is_so_already(watch: HealthWatch) -> None:
    settings = Settings(health=Policy(actions=((Trouble.CARRIER, Action.IGNORE),)))
    watch._settings = replace(settings, state_dir=watch._settings.state_dir)
    watch.observe(Snapshot(1, (PORT,)))
    watch.view()
    assert state(watch) is HealthState.HEALTHY
    watch.use(replace(settings, health=Policy()))
    assert state(watch) is HealthState.UNHEALTHY


async def test_interfaces_in_pods_are_followed_until_they_are_back(watch: HealthWatch) -> None:
    pod = Path("/run/netns/cni-1")
    watch.watch(PORT.name, pod)
    watch.watch("nic-2", pod)
    watch.forget(PORT.name)
    watch.forget("never-out")
    live = cast("Live", watch.live)
    assert live.followed == [{PORT.name: pod}, {PORT.name: pod, "nic-2": pod}, {"nic-2": pod}]
