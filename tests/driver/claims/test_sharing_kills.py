"""What is done to GPUs so that containers share them is undone, wherever the agent is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from driver.claims.contracts import ClaimStep
from driver.claims.model import SharingNotDone
from driver.claims.service import ClaimService
from driver.claims.sharing import CLAIMS_RECORD, FILE, SharingTools
from driver.names import Peer
from kube.bodies import JsonObject
from node.inventory.nvidia.compute_modes import DEFAULT
from node.inventory.nvidia.time_slices import TimeSlice, TimeSlicer
from tests.making.claim_service import GPU0, GPU1, DieAt, Killed, claim, opaque, reference, result
from tests.making.claim_sharing import LONG, NVIDIA, Sharer
from tests.making.dying import DyingProcesses
from tests.waiting import eventually

EXIT = 77


async def _prepared_and_released(service: ClaimService) -> None:
    await service.prepare(reference())
    await service.unprepare(reference())


@pytest.mark.parametrize("parameters", [LONG, {**NVIDIA, "sharing": {"strategy": "MPS"}}])
@pytest.mark.parametrize("after", ["prepared", "released", "forgotten"])
@pytest.mark.parametrize("step", [ClaimStep.SHARED, ClaimStep.STARTED, ClaimStep.COMPLETED, ClaimStep.UNSHARED])
async def test_killed_between_any_two_steps_nothing_is_left(
    sharer: Sharer, step: ClaimStep, after: str, parameters: JsonObject
) -> None:
    sharer.put(1, GPU0, parameters=parameters)
    async with sharer.process(steps=DieAt(step)) as service:
        with pytest.raises(Killed):
            await _prepared_and_released(service)
    async with sharer.process() as service:
        if after == "prepared":
            await service.prepare(reference())
            assert bool(sharer.smi.slices) is not bool(sharer.pids)
        if after == "forgotten":
            sharer.node.reader.drop(1)
            sharer.node.kubelet_knows()
            await service.collect()
        else:
            await service.unprepare(reference())
        async with asyncio.timeout(120):
            while sharer.pids or set(sharer.modes.modes.values()) != {DEFAULT}:
                await asyncio.sleep(0.05)
        sharer.put(2, GPU0)
        await service.prepare(reference(2))
        assert sharer.smi.slices == {"GPU-0": 3}
        await service.unprepare(reference(2))
        sharer.check_clean()


@pytest.mark.parametrize("where", ["set", "started", "shared", "completed", "unshared"])
def test_an_agent_that_is_really_killed_leaves_nothing_for_ever(
    tmp_path: Path, dying: DyingProcesses, where: str
) -> None:
    root = tmp_path / "node"
    ended = dying.run(die, str(root), where)
    assert ended.code in (EXIT, -signal.SIGKILL), ended.written
    (root / "kubelet").rmdir()
    asyncio.run(_next(root))


def die(root: str, where: str) -> None:
    """What the killed process does: prepare and release, with a time slice and a daemon."""

    class Steps:
        def reached(self, reached: ClaimStep, uid: str) -> None:
            if reached.name.lower() == where:
                os._exit(EXIT)

    class Dying(TimeSlicer):
        def set(self, uuid: str, length: TimeSlice) -> None:
            super().set(uuid, length)
            if where == "set":
                os.kill(os.getpid(), signal.SIGKILL)

    async def main() -> None:
        sharer = Sharer(Path(root))
        sharer.tools = SharingTools(Dying(Path(root) / "driver"), sharer.tools.daemons, sharer)
        _put_both(sharer)
        async with sharer.process(steps=Steps()) as service:
            await service.prepare(reference())
            await service.unprepare(reference())

    asyncio.run(main())


def _put_both(sharer: Sharer) -> None:
    """A claim with a time slice on one GPU and a daemon on the other."""
    by_mps: JsonObject = {**NVIDIA, "sharing": {"strategy": "MPS"}}
    configs = (opaque(LONG, "slow", driver=str(Peer.NVIDIA)), opaque(by_mps, "gpu", driver=str(Peer.NVIDIA)))
    sharer.node.reader.put(claim(1, result(GPU0, "slow"), result(GPU1), config=configs))


async def _next(root: Path) -> None:
    sharer = Sharer(root)
    _put_both(sharer)
    async with sharer.process() as service:
        await service.unprepare(reference())
        async with asyncio.timeout(120):
            while sharer.pids:
                await asyncio.sleep(0.05)
        await service.prepare(reference())
        assert sharer.smi.slices == {"GPU-0": 3}
        assert len(sharer.pids) == 1
        await service.unprepare(reference())
        sharer.check_clean()


async def test_a_reboot_undoes_it(sharer: Sharer) -> None:
    sharer.put(1, GPU0)
    async with sharer.process() as service:
        await service.prepare(reference())
    sharer.node.boot = "boot-2"
    sharer.smi.program.unlink()
    async with sharer.process() as service:
        with pytest.raises(SharingNotDone):
            await service.prepare(reference())
        await service.unprepare(reference())


@pytest.mark.parametrize("damaged", [(FILE,), (FILE, CLAIMS_RECORD)])
async def test_a_daemon_of_a_prepared_claim_outlives_an_unusable_record(
    sharer: Sharer, damaged: tuple[str, ...]
) -> None:
    limits: JsonObject = {"defaultPinnedDeviceMemoryLimit": "10Gi"}
    sharer.put(1, GPU0, parameters={**NVIDIA, "sharing": {"strategy": "MPS", "mpsConfig": limits}})
    async with sharer.process() as service:
        await service.prepare(reference())
        before = sharer.pids
    assert len(before) == 1
    for name in damaged:
        (sharer.node.root / "state" / name).write_text("garbage")
    async with sharer.process() as service:
        assert "ClaimRecoveryIncomplete" in sharer.node.events.reasons
        await service.prepare(reference())
        assert sharer.pids == before
        await service.unprepare(reference())
        await eventually(lambda: not sharer.pids, "the daemon ends with its claim")
        await eventually(lambda: set(sharer.modes.modes.values()) == {DEFAULT}, "the compute mode is set back")
