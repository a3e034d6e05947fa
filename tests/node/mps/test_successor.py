"""What the next agent makes of the MPS daemons that an earlier one left."""

from __future__ import annotations

import asyncio
import os
import signal

from node.inventory.nvidia.compute_modes import DEFAULT, EXCLUSIVE_PROCESS
from node.mps.daemon import MpsDevice, MpsResource
from node.mps.reports import ENDED
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


async def test_an_agent_that_ends_without_shares_leaves_nothing(node: MpsNode) -> None:
    async with node.agent(RESOURCE) as supervisor:
        supervisor.hold(NOBODY)
        await supervisor.ready(NAME)
    assert is_clean(node)


async def test_a_daemon_of_a_resource_that_no_rule_has_any_more_is_ended(node: MpsNode) -> None:
    async with node.agent(RESOURCE) as supervisor:
        await supervisor.ready(NAME)
        supervisor.hold(HELD)
        await asyncio.sleep(0.05)
    pid = node.pid
    assert pid is not None
    async with node.agent(MpsResource(OTHER, GPUS[:1])):
        await until(lambda: not (node.driver.home.root / NAME).exists())
        await until(lambda: node.modes.modes["GPU-1"] == DEFAULT)
    text = "no rule shares it by MPS any more, so its control daemon was ended; restart pods that still have shares"
    assert node.events == [(ENDED, f"{NAME}: {text}")]


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
