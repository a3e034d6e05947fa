"""Whatever an agent leaves that is killed while it starts or stops a daemon, the next one undoes."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from node.mps.processes import find_daemons
from node.mps.service import MpsHolders
from tests.making.dying import DyingProcesses
from tests.making.mps import MpsStandIn
from tests.node.mps.killed import NAME, RESOURCE, die, supervisor

MOST = 60
"""More steps than there are."""


async def recovered(folder: Path, driver: MpsStandIn) -> None:
    """The next agent, which nobody asks for a share."""
    made = supervisor(folder, driver.home)
    made.use((RESOURCE,))
    made.hold(MpsHolders({}, known=True))
    running = asyncio.create_task(made.run())
    try:
        async with asyncio.timeout(60):
            while not is_clean(folder, driver):
                await asyncio.sleep(0.02)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def is_clean(folder: Path, driver: MpsStandIn) -> bool:
    return (
        set(json.loads((folder / "modes.json").read_text()).values()) == {0}
        and not (folder / "mps.json").exists()
        and not (driver.home.root / NAME).exists()
        and not driver.mounts.below(driver.home.root)
        and not find_daemons(driver.home.root, driver.home.proc)
    )


@pytest.mark.timeout(600)
async def test_a_kill_at_any_step_leaves_nothing_for_ever(tmp_path: Path, dying: DyingProcesses) -> None:
    killed = 0
    for number in range(1, MOST):
        folder = tmp_path / str(number)
        driver = MpsStandIn(folder)
        (folder / "modes.json").write_text(json.dumps({"GPU-0": 0, "GPU-1": 0}))
        ended = await asyncio.to_thread(dying.run, die, str(folder), str(number))
        if ended.code == 0:
            assert is_clean(folder, driver)
            break
        assert ended.code == -signal.SIGKILL, ended.written
        killed += 1
        await recovered(folder, driver)
    assert killed >= 20
