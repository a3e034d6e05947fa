"""Shared GPUs end to end: a kubelet's pods fill all replicas while the agent is killed, and none is given twice."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from random import Random

from ostler.doctor.answers import ask_agent
from sandbox.node import PodResult, SandboxNode
from sandbox.nodes import path
from sandbox.tour import DeviceDistances
from tests.ostler.agent.claimed_node import ClaimedNode
from tests.waiting import eventually

SHARED = "nvidia.com/gpu.shared"
ONE = {"name": SHARED, "devices": {"vendor": "nvidia", "kind": "gpu"}}


def node(door: str = "plugin", cluster: bool = False, **sharing: object) -> SandboxNode:
    """Two L4, each with four shares."""
    rule = {**ONE, "door": door, "sharing": {"replicas": 4, **sharing}}
    configuration = {"apiVersion": "ostler.dev/v1alpha1", "kind": "Config", "resources": [rule]}
    return SandboxNode(path("l4-2"), configuration=json.dumps(configuration), reconcile_interval=0.05, cluster=cluster)


async def given(box: SandboxNode, count: int, size: int = 1) -> list[PodResult]:
    pods = [await box.give(SHARED, size) for _ in range(count)]
    assert all(pod.admission.admitted for pod in pods), [pod.admission.message for pod in pods]
    return pods


def gpus(pods: Iterable[PodResult]) -> Counter[str]:
    """How many containers have each GPU, by what NVIDIA's runtime is told."""
    return Counter(str(pod.response["envs"]["NVIDIA_VISIBLE_DEVICES"]) for pod in pods)  # type: ignore[index]


async def held(box: SandboxNode, pods: Iterable[PodResult]) -> bool:
    """Whether the agent has exactly the replicas of these pods in their names."""
    found = {
        (hold.holder, hold.share)
        for device in (await box.agent.holds()).devices
        for hold in device.holds
        if hold.state == "listed"
    }
    return found == {(f"default/{pod.pod}", id_.rpartition("::")[2]) for pod in pods for id_ in pod.ids}


async def test_pods_fill_all_replicas_of_a_killed_agent_and_none_is_given_twice() -> None:
    async with node(door="both", cluster=True) as box:
        await box.registered()
        pods = await given(box, 3)
        assert len(gpus(pods[:2])) == 2, "shares are distributed"
        await box.restart_agent()
        await box.registered()
        pods += await given(box, 3)
        await box.restart_agent()
        await box.registered()
        pods += await given(box, 2)
        ids = [id_ for pod in pods for id_ in pod.ids]
        assert len(set(ids)) == len(ids) == 8
        assert set(gpus(pods).values()) == {4}
        refused = await box.give(SHARED, 1)
        assert not refused.admission.admitted
        await eventually(lambda: held(box, pods), "every replica is held by its pod")
        assert [(each.shares, each.held, each.free) for each in (await box.agent.holds()).shared] == [(4, 4, 0)] * 2

        over, pods = pods[:3], pods[3:]
        for pod in over:
            await box.waits.noticed(pod.pod)
            box.end(pod.pod)
        await box.restart_agent()
        await box.registered()
        pods += await given(box, 3)
        ids = [id_ for pod in pods for id_ in pod.ids]
        assert len(set(ids)) == len(ids) == 8
        await eventually(lambda: held(box, pods), "every replica is held by its pod")
        assert "a device has two holders" not in box.log.read_text()


async def test_replicas_that_a_rule_with_more_of_them_allocated_are_kept_by_their_pods() -> None:
    async with node(replicas=6) as box:
        await box.registered()
        pods = await given(box, 12)
        keep = [pod for pod in pods if pod.ids[0].endswith(("::5", "::4", "::0"))]
        for pod in pods:
            if pod not in keep:
                box.end(pod.pod)
        fewer = json.dumps(
            {
                "apiVersion": "ostler.dev/v1alpha1",
                "kind": "Config",
                "resources": [{**ONE, "door": "plugin", "sharing": {"replicas": 4}}],
            }
        )
        (box.root / "ostler.yaml").write_text(fewer)
        await box.restart_agent()
        await box.kubelet.wait_for(SHARED, healthy=8)
        more = await given(box, 2)
        assert len({id_ for pod in (*keep, *more) for id_ in pod.ids}) == 8
        assert set(gpus([*keep, *more]).values()) == {4}


async def test_a_sick_gpu_takes_all_of_its_replicas_with_it_and_brings_them_back() -> None:
    async with node() as box:
        await box.registered()
        assert box.hardware is not None
        (pod,) = await given(box, 1)
        part = box.hardware.find(pod.ids[0].partition("::")[0])
        box.hardware.fail(part)
        await box.agent.rescan()
        await box.kubelet.wait_for(SHARED, healthy=4)
        assert set(gpus(await given(box, 4))) != {pod.ids[0].partition("::")[0]}
        box.hardware.heal(part)
        await box.agent.rescan()
        await box.kubelet.wait_for(SHARED, healthy=8)


async def test_people_and_the_doctor_see_the_replicas_that_the_kubelet_has() -> None:
    async with node() as box:
        await box.registered()
        (pod, other) = await given(box, 2)
        answers = await asyncio.to_thread(ask_agent, box.root / "ostler.sock")
        assert answers.healthy_ids() == {SHARED: frozenset(device.id for device in box.kubelet.devices(SHARED))}

        async def one_is_taken_of_each() -> bool:
            shared = [device for device in await box.devices() if "shares" in device]
            return [(device["shares"], device["shares_free"]) for device in shared] == [(4, 3), (4, 3)]

        await eventually(one_is_taken_of_each, "shares are counted")
        distances = DeviceDistances(await box.agent.devices(), await box.agent.topology())
        assert distances.between(pod.ids[0], other.ids[0]) == distances.between(other.ids[0], pod.ids[0])


async def test_a_container_with_several_shares_gets_them_of_several_gpus_and_one_variable() -> None:
    async with node() as box:
        await box.registered()
        (pod,) = await given(box, 1, size=2)
        assert len({id_.partition("::")[0] for id_ in pod.ids}) == 2
        (large,) = await given(box, 1, size=6)
        (named,) = gpus([large])
        assert len(named.split(",")) == 2, "each GPU is named once"


async def test_several_shares_are_refused_by_the_agents_own_words() -> None:
    async with node(failRequestsGreaterThanOne=True) as box:
        await box.registered()
        refused = await box.give(SHARED, 2)
        assert not refused.admission.admitted
        assert "maximum request size for shared resources is 1; found 2" in refused.admission.message
        assert (await box.give(SHARED, 1)).admission.admitted


class _Sharing:
    """Pods and claims of one node, and what they have of each GPU in percent of its compute."""

    def __init__(self, box: ClaimedNode) -> None:
        self._box = box
        self.pods: dict[str, PodResult] = {}
        self.claimed: set[str] = set()
        self._number = 0

    async def pod(self) -> None:
        given = await self._box.give(SHARED, 1)
        if given.admission.admitted:
            self.pods[given.pod] = given

    async def claim(self) -> None:
        # Unlike the plugin door, the kubelet calls a driver that does not serve it yet, and tries again later.
        await eventually(self._is_served, "the DRA door is served")
        self._number += 1
        name = f"claimed-{self._number}"
        if (await self._box.run_pod(name)).running:
            self.claimed.add(name)
        else:
            # The scheduler has found no room for it, or a pod was faster.
            await self._box.control.end(name)

    async def end(self, chance: Random) -> None:
        name = chance.choice([*self.pods, *sorted(self.claimed)])
        if self.pods.pop(name, None):
            self._box.end(name)
        else:
            await eventually(self._is_served, "the DRA door is served")
            self.claimed.remove(name)
            await self._box.control.end(name)

    def taken(self) -> Counter[str]:
        """By the containers that run, and the allocations of their claims."""
        found = Counter[str]()
        for pod in self.pods.values():
            found.update({self._gpus[id_.partition("::")[0]]: 25 for id_ in pod.ids})
        for each in self._box.api.store.list("resourceclaims"):
            if any(f"{name}-" in str(each["metadata"]["name"]) for name in self.claimed):
                for result in each["status"]["allocation"]["devices"]["results"]:
                    found.update({result["device"]: int(result["consumedCapacity"]["compute"])})
        return found

    async def _is_served(self) -> bool:
        # What the agent shows may change with every moment, so that nothing can be waited for but its registration.
        status = await self._box.agent.status()
        return status.ready and status.dra.registration == "registered"

    async def begin(self) -> None:
        self._gpus = {str(device.get("uuid")): str(device["name"]) for device in await self._box.devices()}


async def test_pods_and_claims_never_have_more_of_a_gpu_than_there_is_while_the_agent_is_killed() -> None:
    rule = {**ONE, "door": "both", "sharing": {"replicas": 4}}
    async with ClaimedNode(path("l4-2"), resources=[rule]) as box:
        chance, sharing = Random(21), _Sharing(box)
        await sharing.begin()
        most = 0
        for step in range(60):
            match chance.choice(("pod", "pod", "claim", "claim", "end")):
                case "pod":
                    await sharing.pod()
                case "claim":
                    await sharing.claim()
                case _ if sharing.pods or sharing.claimed:
                    await sharing.end(chance)
            taken = sharing.taken()
            assert max(taken.values(), default=0) <= 100, f"step {step}: {taken}"
            most = max(most, sum(taken.values()))
            if step % 12 == 11:
                await box.restart_agent()
        assert most == 200, "both GPUs were full"
        while sharing.pods or sharing.claimed:
            await sharing.end(chance)

        async def all_is_free() -> bool:
            return [each.free for each in (await box.agent.holds()).shared] == [4, 4]

        await eventually(all_is_free, "every share is free again")
        assert "a device has two holders" not in box.said()
