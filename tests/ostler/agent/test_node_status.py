"""The allocatable that the agent writes on its Node: which numbers, when, and that the kubelet stays their author."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kube.bodies import JsonObject
from node.clocks import SYSTEM
from node.events import EventType
from ostler.agent.api_server import ApiEnvironment
from ostler.agent.event_log import EventLog
from ostler.agent.node_status import (
    BURST,
    INTERVAL,
    NOT_WRITTEN,
    RISE,
    AllocatablePlan,
    NodeStatus,
    differing,
    followed,
)
from ostler.config.load import load
from ostler.config.settings import Settings
from plugin.door import ResourceStatus
from plugin.registration import PluginRegistrationState, PluginRegistrationStatus
from sandbox.apiserver.server import ApiServer
from tests.ostler.agent.here import running_part
from tests.waiting import eventually

GPU, NIC = "nvidia.com/gpu", "ostler.dev/nic"
NODE = "worker-1"


def shows(healthy: int, name: str = GPU, *, streams: int = 1, state: str = "registered") -> ResourceStatus:
    return ResourceStatus(name, 8, healthy, streams, PluginRegistrationStatus(PluginRegistrationState(state)))


def node_of(capacity: dict[str, str], allocatable: dict[str, str]) -> JsonObject:
    return {"status": {"capacity": dict(capacity), "allocatable": dict(allocatable)}}


def test_only_lists_that_the_kubelet_follows_count() -> None:
    assert followed([shows(3), shows(2, NIC, state="offered")]) == {GPU: 3, NIC: 2}
    assert followed([shows(3, streams=0)]) == {}, "the kubelet has no list"
    assert followed([shows(3, state="contested")]) == {}, "another plugin has the resource"


@pytest.mark.parametrize(
    ("capacity", "allocatable", "written"),
    [
        ("8", "8", {GPU: "5"}),
        ("8", "5", {}),
        ("8", "0", {GPU: "5"}),
        ("5", "4", {GPU: "5"}),
        ("1k", "1k", {GPU: "5"}),
        ("4", "4", {}),
        (None, None, {}),
        ("8", None, {}),
        (None, "8", {}),
        ("8", "none", {}),
        ("eight", "8", {}),
    ],
)
def test_a_number_is_written_within_the_capacity_that_the_kubelet_has_reported(
    capacity: str | None, allocatable: str | None, written: dict[str, str]
) -> None:
    node = node_of({GPU: capacity} if capacity else {}, {GPU: allocatable} if allocatable else {})
    assert differing(node, {GPU: 5}) == written
    assert differing({}, {GPU: 5}) == {}


def test_what_others_serve_is_left_alone() -> None:
    assert differing(node_of({GPU: "8", NIC: "4", "cpu": "2"}, {GPU: "8", NIC: "4", "cpu": "2"}), {NIC: 3}) == {
        NIC: "3"
    }


@pytest.fixture
def plan() -> AllocatablePlan:
    """One that has compared its first lists: GPUs 4, NICs 2."""
    made = AllocatablePlan()
    made.show({GPU: 4, NIC: 2}, 100.0)
    assert made.take(100.0) == {}, "what the kubelet has just heard of is a higher number, too"
    assert made.take(100.0 + RISE) == {GPU: 4, NIC: 2}
    assert made.wait(110.0) is None
    return made


def test_a_lower_number_is_due_at_once_and_a_higher_one_after_a_moment(plan: AllocatablePlan) -> None:
    plan.show({GPU: 3, NIC: 2}, 110.0)
    assert (plan.wait(110.0), plan.take(110.0)) == (0.0, {GPU: 3})
    plan.show({GPU: 4, NIC: 2}, 111.0)
    assert (plan.wait(111.0), plan.take(111.0)) == (RISE, {})
    assert plan.take(111.0 + RISE) == {GPU: 4}
    assert plan.wait(120.0) is None


def test_a_higher_number_that_does_not_last_is_never_written(plan: AllocatablePlan) -> None:
    plan.show({GPU: 5, NIC: 2}, 110.0)
    plan.show({GPU: 4, NIC: 2}, 110.5)
    assert plan.take(110.5) == {GPU: 4}
    assert plan.wait(120.0) is None


def test_the_same_list_again_is_nothing_to_do(plan: AllocatablePlan) -> None:
    plan.show({GPU: 4, NIC: 2}, 110.0)
    assert plan.wait(110.0) is None


def test_a_resource_that_the_kubelet_no_longer_follows_is_dropped(plan: AllocatablePlan) -> None:
    plan.show({GPU: 3, NIC: 2}, 110.0)
    plan.show({NIC: 2}, 110.0)
    assert plan.wait(110.0) is None
    plan.show({GPU: 3, NIC: 2}, 111.0)
    assert plan.take(111.0 + RISE) == {GPU: 3}, "the kubelet has forgotten what it was"


def test_devices_that_come_and_go_cost_one_look_a_second_and_the_latest_number_wins(plan: AllocatablePlan) -> None:
    looks, last = [], 0
    for step in range(1000):
        now = 110.0 + step / 100
        last = step % 4
        plan.show({GPU: last, NIC: 2}, now)
        if taken := plan.take(now):
            looks.append(taken)
    assert len(looks) <= BURST + 10 / INTERVAL
    late = plan.wait(120.0)
    assert late is not None
    assert late <= max(RISE, INTERVAL)
    assert plan.take(120.0 + late) == {GPU: last}


def test_what_failed_is_due_again_with_its_newest_number(plan: AllocatablePlan) -> None:
    plan.show({GPU: 3, NIC: 2}, 110.0)
    taken = plan.take(110.0)
    plan.show({GPU: 2}, 110.1)
    plan.again([*taken, NIC], 110.2)
    assert plan.take(110.2) == {GPU: 2}
    assert plan.wait(120.0) is None


class _Cluster:
    """An API server with one Node that has four GPUs, and this machine's files."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server = server
        self.kubeconfig = server.kubeconfig(folder / "kubeconfig")
        self.etc = folder / "etc"
        self.etc.mkdir()
        (self.etc / "machine-id").write_text("0123\n")
        server.store.create("nodes", {"metadata": {"name": NODE, "labels": {"zone": "a"}}})
        numbers = {GPU: "4", "cpu": "8"}
        status = {"capacity": numbers, "allocatable": numbers, "nodeInfo": {"machineID": "0123"}}
        server.store.patch("nodes", NODE, {"status": status}, part="status")

    def settings(self) -> Settings:
        flags = {"--kubeconfig": str(self.kubeconfig), "--node-name": NODE, "--sys-root": str(self.etc)}
        return load(None, {**flags, "--kubernetes-patch-allocatable": "on"}, {}).settings

    @property
    def allocatable(self) -> dict[str, str]:
        found: dict[str, str] = self.server.store.get("nodes", NODE)["status"]["allocatable"]
        return found

    @property
    def writes(self) -> list[object]:
        """Bodies of the writes that had an effect."""
        return [each.body for each in self.server.requests.writes("nodes") if "dryRun" not in each.query]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[_Cluster]:
    with ApiServer() as server:
        yield _Cluster(server, tmp_path)


@asynccontextmanager
async def running(cluster: _Cluster, log: EventLog) -> AsyncIterator[NodeStatus]:
    environment = ApiEnvironment({}, etc=cluster.etc, random=lambda: 0.5, retry=(0.01, 0.02))
    part = NodeStatus(cluster.settings(), log, environment, rise=0.01)
    part.show([shows(4)])
    async with running_part(part.run()):
        yield part
    await eventually(lambda: not [each for each in threading.enumerate() if each.name == "node status"])


def log() -> EventLog:
    return EventLog(SYSTEM)


async def test_the_node_says_at_once_what_the_kubelet_says_next(cluster: _Cluster) -> None:
    events = log()
    async with running(cluster, events) as part:
        part.show([shows(3)])
        await eventually(lambda: cluster.allocatable == {GPU: "3", "cpu": "8"})
        part.show([shows(4)])
        await eventually(lambda: cluster.allocatable == {GPU: "4", "cpu": "8"})
        await eventually(lambda: part.written == 2)
    assert part.reasons() == ()
    assert events.recent == ()
    stored = cluster.server.store.get("nodes", NODE)
    assert stored["status"]["capacity"] == {GPU: "4", "cpu": "8"}
    assert stored["metadata"]["labels"] == {"zone": "a"}
    body = {"metadata": {"uid": stored["metadata"]["uid"]}, "status": {"allocatable": {GPU: "3"}}}
    assert cluster.writes[0] == body, "nothing but the number, of the very Node that was looked at"


async def test_what_the_kubelet_has_reported_already_is_not_written_again(cluster: _Cluster) -> None:
    async with running(cluster, log()) as part:
        await eventually(lambda: len(cluster.server.requests.writes("nodes")) == 1)
        assert cluster.writes == [], "the first time it is tried without an effect whether the agent may write"
        cluster.server.store.patch("nodes", NODE, {"status": {"allocatable": {GPU: "2"}}}, part="status")
        looks = len(cluster.server.requests.of("get", "nodes"))
        part.show([shows(2)])
        await eventually(lambda: len(cluster.server.requests.of("get", "nodes")) > looks)
        assert part.written == 0
    assert cluster.writes == []


async def test_a_missing_right_is_told_once_and_devices_are_shown_all_the_same(cluster: _Cluster) -> None:
    events = log()
    message = f'nodes "{NODE}" is forbidden: cannot patch resource "nodes/status"'
    cluster.server.faults.add("patch", status=403, resource="nodes", count=-1, message=message)
    async with running(cluster, events) as part:
        await eventually(lambda: len(cluster.server.requests.writes("nodes")) > 2)
        await eventually(lambda: part.reasons() and events.recent, "the agent has read the refusal")
        (reason,) = part.reasons()
        assert reason.startswith("the Node's allocatable is left to the kubelet, which reports it later: PATCH ")
        assert message in reason
        (event,) = events.recent
        assert (event.type, event.reason) == (EventType.WARNING, NOT_WRITTEN)
        assert event.message.startswith(
            f"cannot write the allocatable of Node {NODE}: PATCH /api/v1/nodes/{NODE}/status"
        )
        assert event.message.endswith(
            "; the kubelet reports it later; let the agent patch nodes/status of its Node (the chart's patchAllocatable"
            " does), or set kubernetes.patchAllocatable to off"
        )
        part.show([shows(1)])
        cluster.server.faults.clear()
        await eventually(lambda: cluster.allocatable[GPU] == "1")
        await eventually(lambda: part.reasons() == ())
    assert len(events.recent) == 1


async def test_a_conflict_or_a_server_that_is_busy_is_tried_again_without_an_event(cluster: _Cluster) -> None:
    events = log()
    cluster.server.faults.add("patch", status=409, resource="nodes", count=2)
    cluster.server.faults.add("get", status=500, resource="nodes", count=1)
    async with running(cluster, events) as part:
        part.show([shows(0)])
        await eventually(lambda: cluster.allocatable[GPU] == "0")
    assert events.recent == ()


async def test_another_machines_node_is_not_written(cluster: _Cluster) -> None:
    events = log()
    cluster.server.store.patch("nodes", NODE, {"status": {"nodeInfo": {"machineID": "ffff"}}}, part="status")
    async with running(cluster, events) as part:
        part.show([shows(1)])
        await eventually(lambda: events.recent, "the event, which follows the reason")
        (event,) = events.recent
        assert any("is not this machine" in each for each in part.reasons())
        assert event.reason == NOT_WRITTEN
        assert event.message.endswith("; the kubelet reports it later")
    assert cluster.server.requests.writes("nodes") == []


async def test_a_fault_of_ours_ends_the_part_and_is_said(cluster: _Cluster, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> float:
        raise RuntimeError("no numbers left")

    cluster.server.store.delete("nodes", NODE)
    part = NodeStatus(cluster.settings(), log(), ApiEnvironment({}, etc=cluster.etc, random=broken), rise=0.0)
    part.show([shows(1)])
    await asyncio.wait_for(part.run(), 120)
    assert part.reasons()[0].endswith("stopped by an unexpected fault (RuntimeError: no numbers left)")
    assert "the Node's allocatable is no longer written" in caplog.text
