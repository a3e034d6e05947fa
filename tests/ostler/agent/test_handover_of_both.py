"""Two agents and two doors: what the old one still gives to pods the new one gives to no claim."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from protos.dra.v1 import api_pb2, api_pb2_grpc
from sandbox.process import AgentProcess
from tests.ostler.agent.claimed_node import GPU, PLUGIN, ClaimedNode
from tests.waiting import eventually

BOTH = {**PLUGIN, "door": "both"}
TICK = 2.5
"""Seconds between two looks of the kubelet into its registry; until then it knows the old agent alone."""
MOMENT = 0.7
"""Seconds in which the new agent has read the kubelet."""


@asynccontextmanager
async def standing_by(box: ClaimedNode, log: Path) -> AsyncIterator[AgentProcess]:
    standby = AgentProcess(box.agent.flags, arguments=["--config", str(box.root / "ostler.yaml")], log=log)
    await standby.spawn()
    try:
        await eventually(lambda: "standby: another instance" in log.read_text(), "a standby waits")
        yield standby
    finally:
        await standby.stop()


async def held(agent: AgentProcess) -> dict[str, set[str]]:
    """Every device with the doors through which somebody has it."""
    answer = await agent.holds()
    return {each.device: {hold.door for hold in each.holds} for each in answer.devices if each.holds}


async def prepared(box: ClaimedNode, socket: Path) -> str:
    """What the driver behind this socket says to the one claim that there is; empty: it has its device."""
    (claim,) = await eventually(lambda: _allocated(box), "the claim is allocated")
    named = api_pb2.Claim(namespace="default", name=claim["metadata"]["name"], uid=claim["metadata"]["uid"])
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=(("grpc.use_local_subchannel_pool", 1),)) as channel:
        request = api_pb2.NodePrepareResourcesRequest(claims=[named])
        answer = await api_pb2_grpc.DRAPluginStub(channel).NodePrepareResources(
            request, timeout=60, wait_for_ready=True
        )
    return str(answer.claims[named.uid].error)


async def _allocated(box: ClaimedNode) -> list[dict[str, Any]]:
    return [claim for claim in await box.control.claims() if (claim.get("status") or {}).get("allocation")]


async def test_a_device_that_the_old_agent_gives_to_a_pod_is_never_prepared_by_the_new_one(tmp_path: Path) -> None:
    async with ClaimedNode(resources=[BOTH], reconcile_interval=TICK) as box:
        # One device is left, so that both doors meet on it.
        assert (await box.give(GPU, 7)).admission.admitted
        await eventually(lambda: len(box.tainted()) == 7, "what pods have is withdrawn from claims")
        async with standing_by(box, tmp_path / "standby.log") as standby:
            before = set(box.driver_folder.glob("dra-*.sock"))
            ended = asyncio.create_task(box.agent.stop())
            await eventually(lambda: "handed over" in box.said(), "the new one is active")
            pod = asyncio.create_task(box.run_pod("p"))
            (socket,) = await eventually(
                lambda: set(box.driver_folder.glob("dra-*.sock")) - before, "the new one serves claims"
            )
            # The kubelet knows a driver by its socket, and may have found that one before the other door's.
            claim = asyncio.create_task(prepared(box, socket))
            await asyncio.wait({claim}, timeout=MOMENT)
            given = await box.give(GPU, 1)
            has_claim = not await claim
            outcome = await asyncio.wait_for(pod, 120)
            await standby.answered()
            assert await ended == 0
            box.follow(standby)
            assert given.admission.admitted is not (has_claim or outcome.running), outcome.message
            await box.waits.seen()
            doors = await held(standby)
            assert sorted(doors) == sorted(box.stored())
            assert all(len(each) == 1 for each in doors.values())
            assert "a device has two holders" not in (tmp_path / "standby.log").read_text()
            if given.admission.admitted:
                # Whoever lost gets it when it is free.
                box.end(given.pod)
                await box.runs_in_the_end("p", within=120)
