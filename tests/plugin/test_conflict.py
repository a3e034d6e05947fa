"""A plugin that takes the resource while our stream stays open, as in kubelets up to 1.36: named and waited for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import grpc.aio
import pytest

from node.clocks import SystemClocks
from node.events import EventBus
from ostler.agent.edges import Edges
from ostler.metrics.counters import PluginMetrics
from plugin import registrar
from plugin.conflict import Conflict
from plugin.door import PluginDoor
from plugin.kubelet import AllocatableAnswer, KubeletView, QuestionPace, RegistrationPath
from plugin.listing import DeviceListing
from plugin.observer import PluginObserver
from plugin.slot_ownership import Loss
from sandbox.kubelet.events import ListReceived, PluginDeregistered
from sandbox.kubelet.kubelet import Kubelet
from tests.making.events import RecordedEvents
from tests.making.plugin_door import door, folders, offer_of, offered, running, socket_of, state
from tests.plugin.foreigners import GPU, Foreign, in_registry, person, registering
from tests.waiting import eventually

REGISTRY = (RegistrationPath.REGISTRY,)
REGISTER = (RegistrationPath.REGISTER,)
EITHER = pytest.mark.parametrize("paths", [REGISTRY, REGISTER], ids=["registry", "register"])
DEVICES = tuple(offered(f"g{index}", index // 2) for index in range(4))
OURS = {"g0", "g1", "g2", "g3"}
STRANGE = ("strange-1", "strange-2")


@pytest.fixture
async def kubelet(short_dir: Path) -> AsyncIterator[Kubelet]:
    async with Kubelet(short_dir, reconcile_interval=0.05) as started:
        yield started


def has(kubelet: Kubelet) -> set[str]:
    return {device.id for device in kubelet.devices(GPU) if device.healthy}


async def registered(served: PluginDoor, kubelet: Kubelet) -> None:
    await eventually(lambda: state(served) == "registered" and has(kubelet) == OURS)


async def looks(served: PluginDoor, count: int) -> None:
    """Wait until the kubelet was asked so often."""
    view = served._view
    first = view._answers
    while view._answers < first + count:
        view.want(0)
        await asyncio.sleep(0)


async def persistent(served: PluginDoor) -> None:
    """Somebody whose tool connects again to whatever socket there is."""
    while True:
        with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError):
            async with person(socket_of(served)) as stream:
                await stream.read()
                await stream.read()


@EITHER
@pytest.mark.parametrize("way", [registering, in_registry])
async def test_a_plugin_that_takes_the_resource_is_named_and_the_resource_ours_again_when_it_is_gone(
    short_dir: Path, kubelet: Kubelet, paths: tuple[RegistrationPath, ...], way: type
) -> None:
    told, counters = RecordedEvents(), PluginMetrics()
    served = door(short_dir, told, paths=paths, observer=counters)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await registered(served, kubelet)
        async with way(short_dir, Foreign(*STRANGE)) as path:
            await eventually(lambda: state(served) == "contested")
            assert told.of("ForeignPlugin") == [
                f"{GPU}: another plugin serves it at {path}; remove that plugin, ostler waits meanwhile"
            ]
            assert (counters.conflicts.counts, counters.losses.counts) == ({(GPU,): 1}, {(GPU,): 1})
            assert str(path) in served.waiting_for()[0]
            assert has(kubelet) == set(STRANGE)
        await registered(served, kubelet)
    assert len(told.events) == 1


@EITHER
async def test_the_other_plugins_devices_do_not_flap_while_it_lives(
    short_dir: Path, kubelet: Kubelet, paths: tuple[RegistrationPath, ...]
) -> None:
    seen: list[object] = []
    served = door(short_dir, paths=paths)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await registered(served, kubelet)
        async with registering(short_dir, Foreign(*STRANGE)):
            await eventually(lambda: state(served) == "contested")
            kubelet.on_event(seen.append)
            # Our stream would carry this, and the kubelet would ask the other plugin for our devices.
            served.apply(offer_of(GPU, *DEVICES[1:]))
            await looks(served, 8)
            assert state(served) == "contested"
            assert kubelet.open_streams(GPU) == 2
            assert [event for event in seen if isinstance(event, ListReceived | PluginDeregistered)] == []
        await eventually(lambda: has(kubelet) == OURS - {"g0"})


async def test_a_plugin_that_was_there_first_and_stays_is_left_alone_and_so_are_we(
    short_dir: Path, kubelet: Kubelet
) -> None:
    told, seen = RecordedEvents(), list[object]()
    served = door(short_dir, told, paths=REGISTER)
    served.apply(offer_of(GPU, *DEVICES))
    async with registering(short_dir, Foreign(*STRANGE)) as path:
        # The kubelet keeps the stream of a plugin it has replaced: a first list that came late would replace ours.
        await eventually(lambda: has(kubelet) == set(STRANGE))
        async with running(served):
            await registered(served, kubelet)
            kubelet.on_event(seen.append)
            await looks(served, 8)
            assert (state(served), has(kubelet), path.exists()) == ("registered", OURS, True)
            assert [event for event in seen if isinstance(event, PluginDeregistered)] == []
            assert told.events == []


async def test_a_plugin_that_shows_the_same_devices_is_found_by_its_new_socket_and_asked_no_list(
    short_dir: Path, kubelet: Kubelet
) -> None:
    told, foreign = RecordedEvents(), Foreign(*OURS, prefers=True)
    served = door(short_dir, told, paths=REGISTER)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await registered(served, kubelet)
        async with registering(short_dir, foreign) as path:
            await eventually(lambda: state(served) == "contested")
            assert str(path) in told.of("ForeignPlugin")[0]
            # A plugin may hand each update to one stream only: the kubelet's stays the only one.
            assert foreign.streams == 1
        await registered(served, kubelet)


async def test_plugins_of_other_devices_are_not_taken_for_a_contest(short_dir: Path, kubelet: Kubelet) -> None:
    told, foreign = RecordedEvents(), Foreign("other-1", prefers=True)
    served = door(short_dir, told, paths=REGISTER)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await registered(served, kubelet)
        async with registering(short_dir, foreign, "other.sock", "example.com/other"):
            await eventually(lambda: foreign.asked)
            await looks(served, 3)
            assert state(served) == "registered"
            assert foreign.streams == 1
    assert told.events == []


async def test_where_nobody_is_found_the_resource_is_registered_again_and_people_are_told(
    short_dir: Path, kubelet: Kubelet
) -> None:
    told, counters = RecordedEvents(), PluginMetrics()
    served = door(short_dir, told, paths=REGISTER, observer=counters)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await registered(served, kubelet)
        async with registering(short_dir, Foreign(*STRANGE)) as path:
            path.unlink()
            await eventually(lambda: told.of("RegistrationLost"))
            await registered(served, kubelet)
        (message,) = told.of("RegistrationLost")
        assert message == (
            f"{GPU}: the kubelet has other devices than ostler shows (missing: g0, g1, g2 and 1 more; "
            "not ours: strange-1, strange-2), and no other plugin is found that serves it; ostler registers again now"
        )
        assert (counters.losses.counts, counters.conflicts.counts) == ({(GPU,): 1}, {})
        await looks(served, 5)
        assert state(served) == "registered"


async def test_a_socket_that_a_killed_plugin_left_behind_is_no_plugin(short_dir: Path, kubelet: Kubelet) -> None:
    served = door(short_dir, paths=REGISTER)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await registered(served, kubelet)
        async with registering(short_dir, Foreign(*STRANGE)) as path:
            await eventually(lambda: state(served) == "contested")
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        await registered(served, kubelet)


@EITHER
async def test_a_restarted_kubelet_ends_the_contest(
    short_dir: Path, kubelet: Kubelet, paths: tuple[RegistrationPath, ...]
) -> None:
    served = door(short_dir, paths=paths)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await registered(served, kubelet)
        async with registering(short_dir, Foreign(*STRANGE)):
            await eventually(lambda: state(served) == "contested")
            await kubelet.restart()
            await registered(served, kubelet)


async def test_from_1_37_on_it_ends_the_same_way(short_dir: Path) -> None:
    served = door(short_dir, paths=REGISTER)
    served.apply(offer_of(GPU, *DEVICES))
    async with Kubelet(short_dir, generation="1.37") as kubelet, running(served):
        await registered(served, kubelet)
        async with registering(short_dir, Foreign(*STRANGE)):
            await eventually(lambda: state(served) == "contested")
        await registered(served, kubelet)


async def test_without_pod_resources_the_open_stream_is_believed(short_dir: Path, kubelet: Kubelet) -> None:
    (short_dir / "pod-resources" / "kubelet.sock").unlink()
    told = RecordedEvents()
    served = door(short_dir, told, paths=REGISTER)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await registered(served, kubelet)
        async with registering(short_dir, Foreign(*STRANGE)):
            await eventually(lambda: has(kubelet) == set(STRANGE))
            assert state(served) == "registered"
    assert told.events == []


@EITHER
async def test_a_persons_stream_is_not_taken_for_a_restarted_kubelets(
    short_dir: Path, paths: tuple[RegistrationPath, ...]
) -> None:
    served = door(short_dir, paths=paths)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        async with Kubelet(short_dir, reconcile_interval=0.05) as kubelet:
            await registered(served, kubelet)
        # They come back by themselves, and may be there before the kubelet is told of a new socket.
        people = asyncio.create_task(persistent(served))
        await eventually(lambda: served.status()[0].streams)
        async with Kubelet(short_dir, reconcile_interval=0.05) as kubelet:
            await registered(served, kubelet)
        people.cancel()


async def test_a_persons_stream_does_not_hide_that_the_kubelet_has_ended_its_own(
    short_dir: Path, kubelet: Kubelet
) -> None:
    told = RecordedEvents()
    served = door(short_dir, told, paths=REGISTER)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await registered(served, kubelet)
        async with person(socket_of(served)):
            kubelet.disconnect(GPU)
            await eventually(lambda: kubelet.registrations[GPU] == 2)
            await registered(served, kubelet)
    assert "missing: g0, g1, g2 and 1 more" in told.of("RegistrationLost")[0]


def contest_of(folder: Path, view: KubeletView, clock: Callable[[], float]) -> Conflict:
    """A conflict about the GPUs, without chance."""
    listing = DeviceListing(GPU, EventBus())
    return Conflict(
        folders(folder),
        listing,
        view,
        events=RecordedEvents(),
        observer=PluginObserver(),
        clocks=Edges(monotonic=clock, random=lambda: 0.0),
    )


@pytest.mark.parametrize(("had", "over"), [({}, True), ({GPU: frozenset(STRANGE)}, False), (None, True)])
async def test_a_plugin_that_lives_but_has_lost_the_resource_is_waited_for_a_minute_only(
    short_dir: Path, had: dict[str, frozenset[str]] | None, *, over: bool
) -> None:
    now = 1000.0
    view = KubeletView(
        short_dir / "kubelet.sock", EventBus(), clocks=SystemClocks(monotonic=lambda: now), pace=QuestionPace()
    )
    conflict = contest_of(short_dir, view, lambda: now)
    path = short_dir / "other.sock"
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(path))
        living.listen()
        conflict.begin((path,), hold=False)
        view.answer = None if had is None else AllocatableAnswer(1, now, had)
        now += 59
        assert not conflict.is_over()
        now += 2
        assert conflict.is_over() is over
    assert conflict.is_over()


def test_losses_to_nobody_are_answered_at_once_and_then_less_and_less_often(short_dir: Path) -> None:
    now = 0.0
    view = KubeletView(
        short_dir / "kubelet.sock", EventBus(), clocks=SystemClocks(monotonic=lambda: now), pace=QuestionPace()
    )
    conflict = contest_of(short_dir, view, lambda: now)
    delays = []
    loss = Loss("missing: g0", frozenset(), frozenset())
    for _ in range(4):
        delays.append(conflict.begin_unfound(loss))
        now += delays[-1]
        assert conflict.is_over()
    assert delays == [0, 5, 10, 20]
    now += 600
    assert conflict.begin_unfound(loss) == 0


@EITHER
@pytest.mark.parametrize("ids", [STRANGE, tuple(OURS)], ids=["other devices", "the same devices"])
async def test_a_plugin_that_has_the_resource_when_our_stream_ends_is_not_thrown_out(
    short_dir: Path,
    kubelet: Kubelet,
    paths: tuple[RegistrationPath, ...],
    ids: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The other plugin has to be registered by the time that the door asks the kubelet, on a slow machine as well.
    monkeypatch.setitem(registrar.GRACE, RegistrationPath.REGISTER, 3.0)
    told, seen = RecordedEvents(), list[object]()
    served = door(short_dir, told, paths=paths)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await registered(served, kubelet)
        kubelet.disconnect(GPU)
        async with registering(short_dir, Foreign(*ids)) as path:
            kubelet.on_event(seen.append)
            await eventually(lambda: state(served) == "contested")
            assert str(path) in told.of("ForeignPlugin")[0]
            await looks(served, 3)
            assert [event for event in seen if isinstance(event, PluginDeregistered)] == []
        await registered(served, kubelet)
