"""Who has what as people see it, on a node with one door and on one with two."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from node.inventory.model import Device, Snapshot, UnknownDevice
from node.ledger.events import HoldsChanged
from node.ledger.reader import Holding
from node.rules import Doors, Rule
from node.values import replace
from ostler.admin.holds import HoldsView, NotReleasable
from ostler.agent.doors import open_books
from ostler.agent.edges import Edges
from ostler.agent.publisher import Publisher
from ostler.config.settings import InventorySettings, Settings
from ostler.metrics.counters import HoldsMetrics
from plugin.door import PluginDoor
from plugin.kubelet import KubeletFolders
from plugin.observer import PluginObserver
from protos.agent.v1alpha1 import agent_pb2
from sandbox.node import SandboxNode
from sandbox.nodes import path
from tests.making.events import RecordedEvents
from tests.making.offered_devices import gpu, mig, snapshot
from tests.ostler.agent.books import BooksKubelet
from tests.ostler.agent.claimed_node import GPU, PLUGIN, ClaimedNode
from tests.waiting import eventually

WHOLE, PART, OTHER = gpu(1), mig(1, 0), gpu(2)
RULES = (Rule(GPU, door=Doors.PLUGIN),)


class _Node:
    """One door, its ledger and the desk before them."""

    def __init__(self, folder: Path, *devices: Device) -> None:
        loop = asyncio.get_running_loop()
        settings = replace(
            Settings(inventory=InventorySettings(recorded=folder)), rules=RULES, state_dir=folder / "state"
        )
        self.kubelet, self.events = BooksKubelet(), RecordedEvents()
        door = PluginDoor(
            KubeletFolders(folder / "a", folder / "b"),
            lambda _: NotImplemented,
            edges := Edges(lambda: 1000.0, loop.time, lambda: 0.0),
            events=self.events,
            observer=PluginObserver(),
        )
        self.publisher = Publisher(settings, door, self.events)
        self.books = open_books(settings, edges, NotImplemented, self.events, HoldsMetrics(edges), reader=self.kubelet)
        self.publisher.follow_ledger(self.books)
        self.books.bus.subscribe(HoldsChanged, self.publisher.on_holds_changed)
        self.desk = HoldsView(self.books, self.publisher, None, RULES)
        self.books.begin(relieves=False)
        self.publisher.submit(snapshot(*devices))

    async def __aenter__(self) -> _Node:
        self._tasks = [asyncio.create_task(work) for work in (self.publisher.run(), self.books.run())]
        await self.publisher.published.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def test_with_one_door_it_is_told_what_pods_have_and_what_that_keeps_from_others(tmp_path: Path) -> None:
    async with _Node(tmp_path, WHOLE, PART, OTHER) as node:
        node.kubelet.listed = (Holding(GPU, str(PART.uuid), "main", pod="team/pod"),)
        node.books.kubelet_changed()
        await eventually(lambda: node.desk.report().devices, "the hold is told")
        report = node.desk.report()
        told = {device.device: device for device in report.devices}
        assert set(told) == {WHOLE.name, PART.name}
        (hold,) = told[PART.name].holds
        assert (hold.holder, hold.door, hold.state) == ("team/pod", "plugin", "listed")
        why = f"its part, {PART.name}, is held through the plugin door by team/pod"
        (withheld,) = told[WHOLE.name].withheld
        assert (withheld.door, withheld.cause, withheld.why) == ("plugin", "overlap", why)
        assert withheld.waits_for == "team/pod ends"
        assert not told[PART.name].withheld
        # Nobody looks for processes here, and no API server is asked: neither is a fault.
        assert report.status == agent_pb2.HoldsStatus(by_plugin=1)
        assert node.desk.figures().report == report


async def test_with_one_door_a_hold_ends_when_the_pod_has_and_the_whole_is_given_again(tmp_path: Path) -> None:
    async with _Node(tmp_path, WHOLE, PART) as node:
        node.kubelet.listed = (Holding(GPU, str(PART.uuid), "main", pod="team/pod"),)
        node.books.kubelet_changed()
        await eventually(lambda: node.desk.report().status.by_plugin == 1, "the hold is told")
        node.kubelet.listed = ()
        node.books.kubelet_changed()
        await eventually(lambda: not node.desk.report().devices, "nobody has anything any more")
        shown = node.publisher.shown[1].resources[0].devices
        assert all(item.healthy for item in shown)


async def test_with_one_door_a_kubelet_that_does_not_tell_is_named(tmp_path: Path) -> None:
    async with _Node(tmp_path, WHOLE) as node:
        node.kubelet.faults = ("/k/pod-resources/kubelet.sock: UNAVAILABLE: no socket is there",)
        problem = await eventually(lambda: node.desk.report().status.kubelet, "it is told")
        assert problem.startswith("the kubelet has not reported its device allocations yet")


async def test_what_is_not_there_or_does_not_drain_is_not_released(tmp_path: Path) -> None:
    async with _Node(tmp_path, WHOLE, OTHER) as node:
        node.kubelet.listed = (Holding(GPU, str(WHOLE.uuid), "main", pod="team/pod"),)
        node.books.kubelet_changed()
        await eventually(lambda: node.desk.report().devices, "the hold is told")
        with pytest.raises(UnknownDevice, match="this node has no device 'gpu-9'"):
            await node.desk.release("gpu-9")
        with pytest.raises(
            NotReleasable, match="is held through the plugin door by team/pod; only a device that is pending release"
        ):
            await node.desk.release(WHOLE.name)
        with pytest.raises(NotReleasable, match="is not held, so there is nothing to release"):
            await node.desk.release(str(OTHER.uuid))


async def test_a_draining_device_is_released_by_its_uuid_too(tmp_path: Path) -> None:
    async with _Node(tmp_path, WHOLE) as node:
        node.books.pending_release.off = ""
        node.books.pending_release.update(
            Snapshot(1, (WHOLE,)).devices, (), asyncio.get_running_loop().time() + 1e6, 0.0
        )
        node.books.keeper.settle()
        released = await node.desk.release(str(WHOLE.uuid))
        assert released == (f"{WHOLE.name} is free; processes on it: none was found yet",)


async def test_an_agent_with_one_door_says_who_has_its_devices() -> None:
    async with SandboxNode(path("h100-sxm-8"), reconcile_interval=0.05) as box:
        await box.registered()
        given = await box.give(GPU, 2)
        await eventually(lambda: _holders(box), "the kubelet was read")
        answer = await box.agent.holds()
        held = {device.device: device for device in answer.devices}
        assert len(held) == len(given.ids) == 2
        assert answer.status.by_plugin == 2
        status = answer.status
        assert [status.kubelet, status.api_server, status.both, status.processes] == [""] * 4


async def _holders(box: SandboxNode) -> bool:
    devices = (await box.agent.holds()).devices
    return bool(devices) and all(hold.state == "listed" for device in devices for hold in device.holds)


async def test_a_rule_for_claims_has_the_kubelet_read_more_often_from_then_on() -> None:
    async with ClaimedNode(resources=[PLUGIN]) as box:
        given = await box.give(GPU, 1)
        await eventually(lambda: _holders(box), "the kubelet was read")
        box.reconfigure({**PLUGIN, "door": "both"})
        await box.agent.command("reload")
        await eventually(box.tainted, "what the pod has is withdrawn from claims", within=120)
        box.end(given.pod)
        await eventually(lambda: len(box.stored()) == 8 and not box.tainted(), "and offered again", within=120)
