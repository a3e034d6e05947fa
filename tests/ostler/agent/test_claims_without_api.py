"""The agent's DRA door while the API server is away, refuses, is overloaded or hangs."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.ostler.agent.claimed_node import DRIVER, NODE_NAME, ClaimedNode
from tests.waiting import eventually


async def test_agent_that_starts_without_an_api_server_registers_and_publishes_when_it_is_there() -> None:
    async with ClaimedNode() as box:
        before = box.stored()
        await box.agent.stop(signal.SIGKILL)
        box.api.down()
        await box.agent.start()

        async def told() -> bool:
            door = await box.door()
            return door.registration == "registered" and bool(door.problem)

        await eventually(told, "it is registered, and says that nothing can be published")
        status = await box.agent.status()
        assert status.ready, "the kubelet is served"
        assert [reason for reason in status.reasons if "devices are not published through DRA: " in reason]
        box.api.up()
        await eventually(lambda: _is_well(box), "slices are looked at", within=120)
        assert box.stored() == before
        await box.running("p")


async def _is_well(box: ClaimedNode) -> bool:
    door = await box.door()
    status = await box.agent.status()
    return door.published == door.devices > 0 and not door.problem and not status.reasons


@pytest.mark.parametrize("code", [401, 403, 429, 500])
async def test_claim_whose_read_is_refused_says_why_and_is_prepared_later(code: int) -> None:
    async with ClaimedNode() as box:
        fault = box.api.faults.add("get", "status", code, count=-1, resource="resourceclaims", by="ostler")
        outcome = await box.run_pod("p")
        assert (outcome.phase, fault.hits > 0) == ("Pending", True)
        words = {
            401: "the API server gives no usable answer",
            403: "give the agent's account the verb get on resourceclaims of the API group resource.k8s.io",
            429: "the API server gives no usable answer",
            500: "the API server gives no usable answer",
        }
        assert words[code] in outcome.message
        (stuck,) = (await box.claims()).values()
        assert (stuck["state"], words[code] in stuck["stuck"]) == ("refused", True)
        box.api.faults.clear()
        await box.runs_in_the_end("p")
        (prepared,) = (await box.claims()).values()
        assert (prepared["state"], prepared.get("stuck", "")) == ("prepared", "")


async def test_while_the_api_server_hangs_claims_are_released_and_their_devices_are_free() -> None:
    async with ClaimedNode() as box:
        await box.running("held")
        fault = box.api.faults.add("get", "hang", count=-1, resource="resourceclaims", by="ostler")
        waiting = asyncio.create_task(box.run_pod("p"))
        await eventually(lambda: fault.hits, "the driver asks")
        await asyncio.wait_for(box.kubelet.end(box.pod("held")), 120)
        assert not box.cdi_files()
        assert not waiting.done()
        assert (await box.agent.status()).ready
        box.api.faults.clear()
        await waiting
        await box.runs_in_the_end("p")


@pytest.mark.parametrize("code", [401, 403, 429, 500])
async def test_slices_that_cannot_be_written_are_told_and_written_later(code: int) -> None:
    async with ClaimedNode() as box:
        assert box.hardware is not None
        box.api.faults.add("update", "status", code, count=-1, resource="resourceslices")
        box.hardware.fail(7)
        await box.agent.rescan()

        async def told() -> bool:
            return str(code) in (await box.door()).problem or "injected" in (await box.door()).problem

        await eventually(told, "the status has the problem")
        await box.running("p")
        box.api.faults.clear()
        await eventually(lambda: _is_published(box), "the slice is written", within=120)


async def _is_published(box: ClaimedNode) -> bool:
    slices = await box.agent.slices()
    return slices is not None and all(pool.in_order and not pool.problem for pool in slices.pools)


@pytest.mark.parametrize("expired", [False, True])
async def test_watch_that_is_closed_is_taken_up_again_without_a_write(expired: bool) -> None:
    async with ClaimedNode() as box:
        before = box.slice_writes()
        for _ in range(3):
            await _one_more_watch(box, expired=expired)
        assert box.slice_writes() == before
        (stored,) = box.api.store.list("resourceslices")
        box.api.store.delete("resourceslices", stored["metadata"]["name"])
        await eventually(lambda: bool(box.stored()), "the slice is back", within=120)


async def _one_more_watch(box: ClaimedNode, *, expired: bool) -> None:
    def watches() -> int:
        return len(box.api.requests.answered("watch", "resourceslices"))

    before = await eventually(watches, "a watch")
    if expired:
        box.api.forget_history()
    box.api.close_watches(expired=expired)
    await eventually(lambda: watches() > before, "another watch")


async def test_kubeconfig_that_appears_late_is_found() -> None:
    async with ClaimedNode() as box:
        await box.agent.stop()
        kubeconfig = box.root / "kubeconfig"
        aside = kubeconfig.rename(box.root / "aside")
        for each in box.api.store.list("resourceslices"):
            box.api.store.delete("resourceslices", each["metadata"]["name"])
        await box.agent.start()

        async def told() -> bool:
            return str(kubeconfig) in (await box.door()).problem

        await eventually(told, "the status names the file")
        assert (await box.door()).registration == "registered"
        aside.rename(kubeconfig)
        await eventually(lambda: bool(box.stored()), "slices are published", within=120)
        await box.running("p")


async def test_node_object_that_comes_late_is_waited_for() -> None:
    async with ClaimedNode() as box:
        await box.agent.stop()
        for each in box.api.store.list("resourceslices"):
            box.api.store.delete("resourceslices", each["metadata"]["name"])
        box.api.store.delete("nodes", NODE_NAME)
        await box.agent.start()
        await eventually(lambda: _says(box, f'nodes "{NODE_NAME}" not found'), "the status says what is missing")
        assert not box.stored()
        box.api.store.create("nodes", {"metadata": {"name": NODE_NAME}})
        await eventually(lambda: bool(box.stored()), "slices are published", within=120)


async def _says(box: ClaimedNode, words: str) -> bool:
    return words in (await box.door()).problem


async def test_writes_go_under_the_driver_s_name_alone() -> None:
    async with ClaimedNode() as box:
        (stored,) = box.api.store.list("resourceslices")
        assert (stored["spec"]["driver"], stored["spec"]["nodeName"]) == (DRIVER, NODE_NAME)
        assert box.slice_writes() == ["create"]
