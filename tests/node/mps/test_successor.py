"""What the next agent makes of the MPS daemons that an earlier one left."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from node.inventory.nvidia.compute_modes import DEFAULT, EXCLUSIVE_PROCESS
from node.mps.daemon import MpsDevice, MpsResource
from node.mps.service import MpsHolders
from tests.making.mps_node import GPUS, HELD, NAME, NOBODY, OTHER, RESOURCE, MpsNode, is_clean, until


async def test_the_next_agent_takes_over_a_daemon_with_shares(node: MpsNode) -> None:
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        await asyncio.sleep(0.05)
    pid = node.pid
    assert pid is not None
    assert node.modes.modes["GPU-0"] == EXCLUSIVE_PROCESS
    async with node.agent(RESOURCE) as supervisor:
        # Nobody is known to have a share yet, which is no reason to stop.
        await asyncio.sleep(0.5)
        assert node.pid == pid
        supervisor.hold(HELD)
        await supervisor.ready(NAME)
        assert node.pid == pid
        os.kill(pid, signal.SIGKILL)
        await until(lambda: node.pid not in (None, pid))
        supervisor.hold(NOBODY)
        await until(lambda: is_clean(node))


@pytest.mark.parametrize("damage", ["garbage", '{"schema":"mps/v9","data":{}}'])
async def test_the_next_agent_takes_over_a_daemon_whose_record_is_unusable(node: MpsNode, damage: str) -> None:
    async with node.agent(RESOURCE) as supervisor:
        supervisor.hold(HELD)
        await supervisor.ready(NAME)
        pid = node.pid
    node.path.write_text(damage)
    for _ in range(2):
        async with node.agent(RESOURCE) as supervisor:
            supervisor.hold(HELD)
            await supervisor.ready(NAME)
            assert node.pid == pid
    ((reason, message),) = node.events
    assert reason == "MpsFailed"
    assert message.startswith(f"MPS of an earlier agent: {node.path} ")
    assert message.endswith(
        "; ostler takes over the daemons that run; 'ostler doctor compute-mode' names GPUs that were left in another "
        "compute mode"
    )
    async with node.agent(RESOURCE) as supervisor:
        supervisor.hold(NOBODY)
        await until(lambda: is_clean(node))


async def test_an_agent_that_ends_without_shares_leaves_nothing(node: MpsNode) -> None:
    async with node.agent(RESOURCE) as supervisor:
        supervisor.hold(NOBODY)
        await supervisor.ready(NAME)
    assert is_clean(node)


async def test_a_daemon_of_a_resource_that_no_rule_has_any_more_runs_until_its_last_share_is_given_back(
    node: MpsNode,
) -> None:
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        await until(lambda: node.pid is not None)
    pid = node.pid
    still = MpsHolders({}, known=True, by_gpu={"GPU-1": ("team/a",)})
    for resources in ((), (MpsResource(OTHER, GPUS[:1]),)):
        async with node.agent(*resources) as supervisor:
            await until(lambda: "GPU-1" in node.supervisor.faults())
            assert supervisor.faults()["GPU-1"] == (
                f"the MPS control daemon of {NAME} runs until the pods have ended that got shares by an earlier rule"
            )
            assert node.pid == pid, "it is not known who has shares"
            supervisor.hold(still)
            supervisor.use(resources)
            assert set(node.modes.modes.values()) == {DEFAULT, EXCLUSIVE_PROCESS}
    changes = node.changes
    async with node.agent() as supervisor:
        supervisor.hold(still)
        await until(lambda: "GPU-1" in node.supervisor.faults())
        supervisor.hold(NOBODY)
        await until(lambda: is_clean(node))
        await until(lambda: supervisor.faults() == {} and node.changes > changes)
    assert node.events == []


async def test_a_rule_that_does_not_share_a_resource_any_more_leaves_its_daemon_to_the_pods(node: MpsNode) -> None:
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(MpsHolders({NAME: ("team/a",)}, True, {"GPU-0": ("team/a",)}))
        pid = node.pid
        supervisor.use(())
        assert set(supervisor.faults()) == {"gpu-0", "gpu-1"}
        supervisor.hold(MpsHolders({}, True, {"GPU-0": ("team/a",)}))
        looked = len(node.driver.log(NAME))
        await until(lambda: len(node.driver.log(NAME)) > looked + 2)
        assert node.pid == pid
        supervisor.use((RESOURCE,))
        supervisor.hold(HELD)
        await supervisor.ready(NAME)
        assert (node.pid, supervisor.faults()) == (pid, {})
        supervisor.use(())
        supervisor.hold(NOBODY)
        await until(lambda: is_clean(node))
    assert node.events == []


async def test_the_next_agent_knows_which_gpus_a_daemon_was_started_for(node: MpsNode) -> None:
    async with node.agent(MpsResource(NAME, (*GPUS[:1], MpsDevice("gpu-2", "GPU-2")), 25)) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        await asyncio.sleep(0.05)
    pid = node.pid
    async with node.agent(RESOURCE) as supervisor:
        supervisor.hold(HELD)
        await supervisor.ready(NAME)
        assert node.pid == pid
        assert set(supervisor.faults()) == {"gpu-1"}
        assert "runs without it; it is added when no share" in supervisor.faults()["gpu-1"]
        supervisor.hold(NOBODY)
        await until(lambda: is_clean(node))
        await supervisor.ready(NAME)
        assert "devices GPU-0,GPU-1" in node.driver.log(NAME)
