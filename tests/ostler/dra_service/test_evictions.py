"""Pods that ask by a resource's name, whose claim the scheduler made: where no taint evicts them, the agent does."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.node_watch.evictions import EvictedPod, to_evict
from driver.node_watch.pods import NodePod
from kube.bodies import text_at
from node.ledger.holds import Hold
from node.rules import Door, Doors
from sandbox.apiserver.server import ApiServer
from tests.making.both_doors import begun
from tests.making.watched_node import TEAM, WatchedWorld
from tests.waiting import eventually

DEVICE = "gpu-0000"
EVICTS = [("ostler.dev/other-door", "NoExecute")]
TEXT = f"device {DEVICE} has a NoExecute taint, and Kubernetes has not evicted the pod"


def asks_by_name(world: WatchedWorld, name: str, claim: str) -> str:
    """A pod for which the scheduler has made this claim; its UID."""
    uid = world.pod(name)
    world.status(name, extendedResourceClaimStatus={"resourceClaimName": claim, "requestMappings": []})
    return uid


def names(world: WatchedWorld) -> set[str]:
    """The pods that are not being deleted; their end is the kubelet's business."""
    pods = world.store.list("pods")
    return {text_at(each, "metadata", "name") for each in pods if not text_at(each, "metadata", "deletionTimestamp")}


async def test_a_loser_that_asks_by_name_is_evicted_and_one_that_names_its_claim_is_left_to_kubernetes(
    short_dir: Path, server: ApiServer, world: WatchedWorld
) -> None:
    async with begun(short_dir, server, 2, Doors.BOTH) as both:
        both.second._parts.evictions._patience = 0.0
        both.pod_gets(DEVICE)
        by_name, by_claim = asks_by_name(world, "by-name", "made"), world.pod("by-claim", "named")
        world.claim("made", DEVICE, users=(by_name,))
        world.claim("named", DEVICE, users=(by_claim,))
        await eventually(lambda: both.effects(DEVICE) == EVICTS)
        await eventually(lambda: names(world) == {"by-claim"})
        await eventually(lambda: both.events.of("PodEvicted"), "the agent has the API server's answer")
        assert both.events.of("PodEvicted") == [f"pod {TEAM}/by-name is evicted: {TEXT}"]
        patch, _ = (ask for ask in server.requests.writes("pods") if ask.user_agent.startswith("ostler/"))
        (condition,) = patch.body["status"]["conditions"]
        assert patch.body["metadata"] == {"uid": by_name}
        assert (condition["type"], condition["status"], condition["reason"], condition["message"]) == (
            "DisruptionTarget",
            "True",
            "DeletionByDeviceTaint",
            f"ostler: {TEXT}",
        )
        assert both.second.problems() == ()


async def test_an_agent_without_the_right_says_once_what_to_do_and_tries_again(
    short_dir: Path, server: ApiServer, world: WatchedWorld
) -> None:
    server.faults.add("patch", status=403, resource="pods", count=-1, message="no")
    async with begun(short_dir, server, 2, Doors.BOTH) as both:
        both.second._parts.evictions._patience = 0.0
        both.pod_gets(DEVICE)
        world.claim("made", DEVICE, users=(asks_by_name(world, "by-name", "made"),))
        await eventually(lambda: bool(both.second.problems()))
        (problem,) = both.second.problems()
        assert problem.startswith(f"pod {TEAM}/by-name cannot be evicted from device {DEVICE}: ")
        assert problem.endswith(
            "; let the agent patch pods/status and delete pods of its node (the chart's dra.evictByName does), or "
            "delete the pod"
        )
        assert both.events.of("PodNotEvicted") == [problem]
        server.faults.clear()
        await eventually(lambda: not names(world))
        await eventually(lambda: both.second.problems() == ())
        assert (len(both.events.of("PodNotEvicted")), len(both.events.of("PodEvicted"))) == (1, 1)


async def test_a_pod_that_kubernetes_evicts_in_time_is_left_to_it(
    short_dir: Path, server: ApiServer, world: WatchedWorld
) -> None:
    async with begun(short_dir, server, 2, Doors.BOTH) as both:
        both.second._parts.evictions._patience = 3600.0
        both.pod_gets(DEVICE)
        world.claim("made", DEVICE, users=(asks_by_name(world, "by-name", "made"),))
        await eventually(lambda: both.effects(DEVICE) == EVICTS)
        await eventually(lambda: bool(both.second._parts.evictions._due))
        world.remove("by-name")
        await eventually(lambda: not both.second._parts.evictions._due)
        assert both.events.of("PodEvicted") == []
        assert [ask for ask in server.requests.writes("pods") if ask.user_agent.startswith("ostler/")] == []


async def test_a_pod_of_the_same_name_that_was_made_since_is_left_alone(
    short_dir: Path, server: ApiServer, world: WatchedWorld
) -> None:
    server.faults.add("patch", status=500, resource="pods", count=-1, message="later")
    async with begun(short_dir, server, 2, Doors.BOTH) as both:
        both.second._parts.evictions._patience = 0.0
        both.pod_gets(DEVICE)
        world.claim("made", DEVICE, users=(asks_by_name(world, "by-name", "made"),))
        await eventually(lambda: bool(both.second.problems()))
        assert "; the agent tries again" in both.second.problems()[0]
        world.remove("by-name")
        world.pod("by-name")
        server.faults.clear()
        await eventually(lambda: both.second.problems() == ())
        assert names(world) == {"by-name"}
        assert both.events.of("PodEvicted") == []


@pytest.mark.parametrize(
    ("pod", "hold", "found"),
    [
        (NodePod("u", TEAM, "p", claims=("c",), extended="c"), {}, True),
        (NodePod("u", TEAM, "p", claims=("c",)), {}, False),
        (NodePod("u", TEAM, "p", static="s", claims=("c",), extended="c"), {}, False),
        (NodePod("u", TEAM, "p", claims=("c",), extended="c", ending=True), {}, False),
        (NodePod("u", "other", "p", claims=("c",), extended="c"), {}, False),
        (NodePod("u", TEAM, "p", claims=("d",), extended="d"), {}, False),
        (NodePod("u", TEAM, "p", claims=("c",), extended="c"), {"admin": True}, False),
        (NodePod("u", TEAM, "p", claims=("c",), extended="c"), {"device": "gpu-0001"}, False),
    ],
)
def test_who_is_evicted(pod: NodePod, hold: dict[str, object], found: bool) -> None:
    claims = {"uid": (Hold(**{"device": DEVICE, "door": Door.DRA, "holder": f"{TEAM}/c", "since": 0.0, **hold}),)}  # type: ignore[arg-type]
    wanted = {"u": EvictedPod("u", TEAM, "p", DEVICE)} if found else {}
    assert to_evict([pod], claims, {DEVICE}) == wanted
