"""Claims whose containers share their GPUs: what is done to the GPUs is undone when the claim is released or fails.

The programs of the driver are stand-ins that run as real processes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from driver.claims.model import SharingNotDone, Unavailable
from driver.claims.sharing import daemon_name
from driver.parameters.errors import ParameterError
from kube.bodies import JsonObject
from node.files import WriteFailed
from node.inventory.nvidia.compute_modes import DEFAULT, EXCLUSIVE_PROCESS
from node.inventory.nvidia.time_slices import TimeSlice, TimeSliceError, TimeSlicer
from node.mps import daemon
from node.values import replace
from tests.making.claim_service import GPU0, GPU1, offered, reference
from tests.making.claim_sharing import LIMITED, LONG, NVIDIA, OURS, Sharer
from tests.making.devices import mig
from tests.making.mps import SmiStandIn
from tests.waiting import eventually

NAME = daemon_name("uid-1")


async def test_a_time_slice_is_set_for_as_long_as_the_claim_has_its_gpus(sharer: Sharer) -> None:
    sharer.put(1, GPU0, GPU1)
    async with sharer.process() as service:
        await service.prepare(reference())
        assert sharer.smi.slices == {"GPU-0": 3, "GPU-1": 3}
        assert len(await service.prepare(reference())) == 2
        await service.unprepare(reference())
        sharer.check_clean()


@pytest.mark.parametrize("parameters", [NVIDIA, {**OURS, "sharing": {"strategy": "timeSlicing"}}])
async def test_the_default_needs_no_program(sharer: Sharer, parameters: JsonObject) -> None:
    sharer.smi.program.unlink()
    sharer.put(1, GPU0, parameters=parameters)
    async with sharer.process() as service:
        await service.prepare(reference())
        await service.unprepare(reference())


async def test_a_claim_gets_an_mps_daemon_of_its_own_with_its_limits(sharer: Sharer) -> None:
    sharer.put(1, GPU0, GPU1, parameters=LIMITED)
    async with sharer.process() as service:
        await service.prepare(reference())
        log = sharer.driver.log(NAME)
        assert {
            "devices GPU-0,GPU-1",
            "arguments -f -multiuser-server",
            "set_default_device_pinned_mem_limit GPU-0 10240M",
            "set_default_device_pinned_mem_limit GPU-1 4096M",
            "set_default_active_thread_percentage 40",
        } <= set(log)
        assert [mode for mode in sharer.modes.modes.values() if mode == EXCLUSIVE_PROCESS] == [EXCLUSIVE_PROCESS] * 2
        text = json.dumps(sharer.node.spec(1))
        assert f"CUDA_MPS_PIPE_DIRECTORY=/mps/{NAME}/pipe" in text
        assert str(sharer.driver.home.root / NAME / "pipe") in text
        await service.unprepare(reference())
        sharer.check_clean()


async def test_our_own_words_mean_the_same(sharer: Sharer) -> None:
    own: JsonObject = {"strategy": "mps", "threadPercentage": 40, "memoryLimit": "10Gi", "memoryLimits": {"1": "4Gi"}}
    sharer.put(1, GPU0, GPU1, parameters={**OURS, "sharing": {**own, "multiUser": True}})
    sharer.put(2, GPU0, GPU1, parameters=LIMITED)
    logs = []
    async with sharer.process() as service:
        for number in (1, 2):
            await service.prepare(reference(number))
            log = sharer.driver.log(daemon_name(f"uid-{number}"))
            logs.append([line for line in log if line.startswith(("set", "devices", "arguments"))])
            await service.unprepare(reference(number))
    assert logs[0] == logs[1]
    assert len(logs[0]) == 5


async def test_a_mig_device_has_its_daemon_and_keeps_its_mode(sharer: Sharer) -> None:
    sharer.node.devices = (offered(mig(0)),)
    parameters: JsonObject = {**NVIDIA, "kind": "MigDeviceConfig", "sharing": {"strategy": "MPS"}}
    sharer.put(1, mig(0).name, parameters=parameters)
    async with sharer.process() as service:
        await service.prepare(reference())
        assert "devices MIG-0" in sharer.driver.log(NAME)
        assert set(sharer.modes.modes.values()) == {DEFAULT}
        await service.unprepare(reference())
        sharer.check_clean()


async def test_two_claims_at_once_have_a_daemon_each(sharer: Sharer) -> None:
    sharer.put(1, GPU0, parameters=LIMITED)
    sharer.put(2, GPU1, parameters={**NVIDIA, "sharing": {"strategy": "MPS"}})
    # The limit by UUID names a GPU that the first claim does not have.
    async with sharer.process() as service:
        with pytest.raises(ParameterError, match=r'"GPU-1": the claim has no such device; write the UUID'):
            await service.prepare(reference(1))
        sharer.put(1, GPU0, parameters={**NVIDIA, "sharing": {"strategy": "MPS"}})
        await asyncio.gather(*(service.prepare(reference(number)) for number in (1, 2)))
        assert len(sharer.pids) == 2
        await service.unprepare(reference(1))
        assert len(sharer.pids) == 1
        assert sharer.modes.modes["GPU-1"] == EXCLUSIVE_PROCESS
        await service.unprepare(reference(2))
        sharer.check_clean()


async def test_a_daemon_runs_on_when_the_agent_is_replaced_and_ends_with_its_claim(sharer: Sharer) -> None:
    sharer.put(1, GPU0, parameters={**NVIDIA, "sharing": {"strategy": "MPS"}})
    async with sharer.process() as service:
        answer = await service.prepare(reference())
        pids = sharer.pids
    assert sharer.pids == pids
    async with sharer.process() as service:
        assert await service.prepare(reference()) == answer
        assert sharer.pids == pids
        await service.unprepare(reference())
        sharer.check_clean()


async def test_a_daemon_that_crashes_is_started_again_and_told(sharer: Sharer) -> None:
    sharer.put(1, GPU0, parameters={**NVIDIA, "sharing": {"strategy": "MPS"}})
    async with sharer.process() as service:
        await service.prepare(reference())
        (pid,) = sharer.pids
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(120):
            while sharer.pids <= {pid}:
                await asyncio.sleep(0.05)
        assert sharer.node.events.reasons[0] == "MpsServerCrashed"
        assert "default/claim-1 lost their GPU contexts" in sharer.node.events.events[0][2]
        await service.unprepare(reference())
        sharer.check_clean()


async def test_a_daemon_that_ended_while_the_agent_was_away_is_started_again_and_told(sharer: Sharer) -> None:
    sharer.put(1, GPU0, parameters={**NVIDIA, "sharing": {"strategy": "MPS"}})
    async with sharer.process() as service:
        await service.prepare(reference())
        (pid,) = sharer.pids
    os.kill(pid, signal.SIGKILL)
    async with sharer.process() as service:
        async with asyncio.timeout(120):
            while sharer.pids <= {pid}:
                await asyncio.sleep(0.05)
        assert sharer.node.events.reasons == ["MpsServerCrashed"]
        await service.unprepare(reference())
        sharer.check_clean()


def hang(sharer: Sharer) -> None:
    """Let the driver's program hang, and the agent wait a second for it."""
    sharer.smi.misbehave("hang")
    sharer.tools = replace(sharer.tools, slicer=TimeSlicer(sharer.smi.root, 1.0))


@pytest.mark.parametrize(
    ("break_it", "text"),
    [
        (lambda each: each.smi.program.unlink(), "has no nvidia-smi, which alone can set it; install the driver's"),
        (lambda each: each.smi.misbehave("refuse"), "exit code 3: Failed to set timeslice policy for GPU: Not Sup"),
        (hang, "did not end within 1 s; check whether the driver answers"),
        (lambda each: each.smi.program.write_bytes(b"\x7fELF"), "cannot be run: Exec format error"),
    ],
)
async def test_a_time_slice_that_cannot_be_set_fails_the_claim_and_leaves_nothing(
    sharer: Sharer, break_it: Any, text: str
) -> None:
    break_it(sharer)
    sharer.put(1, GPU0)
    async with sharer.process() as service:
        with pytest.raises(SharingNotDone, match="the time slice of GPU-0 cannot be set to Long") as refused:
            await service.prepare(reference())
        assert text in str(refused.value)
        assert refused.value.condition == "SharingNotDone"
        assert service.ledger.all == ()
        assert sharer.node.spec(1) is None
        [status] = service.statuses()
        assert text in status.problem
        is_uncertain = "did not end" in text
        assert (sharer.node.root / "state" / "claim-sharing.json").exists() is is_uncertain


async def test_of_several_gpus_only_those_that_were_changed_are_set_back(sharer: Sharer) -> None:
    class Choosy(TimeSlicer):
        def set(self, uuid: str, length: TimeSlice) -> None:
            if uuid == "GPU-1":
                raise TimeSliceError(uuid, length, "Not Supported")
            super().set(uuid, length)

    sharer.tools = replace(sharer.tools, slicer=Choosy(sharer.smi.root))
    sharer.put(1, GPU0, GPU1)
    async with sharer.process() as service:
        with pytest.raises(SharingNotDone, match="GPU-1 cannot be set to Long: Not Supported"):
            await service.prepare(reference())
        sharer.check_clean()


async def test_all_gpus_of_a_claim_are_changed_at_the_same_time(sharer: Sharer) -> None:
    both = threading.Barrier(2)

    class Waiting(TimeSlicer):
        def set(self, uuid: str, length: TimeSlice) -> None:
            both.wait(20)
            super().set(uuid, length)

    sharer.tools = replace(sharer.tools, slicer=Waiting(sharer.smi.root))
    sharer.put(1, GPU0, GPU1)
    async with sharer.process() as service:
        await service.prepare(reference())
        await service.unprepare(reference())
        sharer.check_clean()


@pytest.mark.parametrize(
    ("break_it", "text"),
    [
        (lambda each: (each.driver.binaries / "nvidia-cuda-mps-control").unlink(), "has no nvidia-cuda-mps-control"),
        (lambda each: each.driver.misbehave("refuse-start"), "nvidia-cuda-mps-control ended with exit code 3"),
        (lambda each: setattr(each.modes, "fault", "the agent lacks the right"), "the agent lacks the right"),
    ],
)
async def test_mps_that_does_not_work_fails_the_claim_and_leaves_nothing(
    sharer: Sharer, break_it: Any, text: str
) -> None:
    break_it(sharer)
    sharer.put(1, GPU0, parameters={**NVIDIA, "sharing": {"strategy": "MPS"}})
    async with sharer.process() as service:
        with pytest.raises(SharingNotDone, match=f"claim default/claim-1: MPS does not work: .*{text}"):
            await service.prepare(reference())
        assert service.ledger.all == ()
        assert sharer.pids == set()
        assert [path.name for path in sharer.driver.home.root.glob("claim-*")] == []


async def test_a_daemon_that_hangs_is_ended_in_bounded_time(sharer: Sharer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "_ANSWER", 5.0)
    sharer.put(1, GPU0, parameters={**NVIDIA, "sharing": {"strategy": "MPS"}})
    async with sharer.process() as service:
        await service.prepare(reference())
        sharer.driver.misbehave("deaf")
        await asyncio.wait_for(service.unprepare(reference()), 100)
        sharer.check_clean()


async def test_a_time_slice_that_cannot_be_set_back_keeps_nobody_waiting_and_is_tried_again(sharer: Sharer) -> None:
    sharer.put(1, GPU0, GPU1)
    async with sharer.process() as service:
        await service.prepare(reference())
        sharer.smi.misbehave("refuse")
        await service.unprepare(reference())
        assert service.ledger.all == ()
        assert sharer.node.events.reasons[-1] == "ClaimReleaseIncomplete"
        sharer.smi.misbehave("refuse", now=False)
        sharer.put(2, GPU1)
        await service.prepare(reference(2))
        await service.collect()
        assert sharer.smi.slices == {"GPU-1": 3}, "it is the second claim's now"
        await service.unprepare(reference(2))
        sharer.check_clean()


async def test_a_gpu_is_not_set_back_while_the_next_claim_sets_its_time_slice(sharer: Sharer) -> None:
    setting, together = threading.Event(), threading.Event()

    class Slow(TimeSlicer):
        is_late = False

        def set(self, uuid: str, length: TimeSlice) -> None:
            if length is not TimeSlice.DEFAULT:
                if setting.is_set():
                    together.set()
                super().set(uuid, length)
                return
            if self.is_late:
                setting.set()
                together.wait(0.3)
                setting.clear()
            raise TimeSliceError(uuid, length, "Not Supported")

    slicer = Slow(sharer.smi.root)
    sharer.tools = replace(sharer.tools, slicer=slicer)
    sharer.put(1, GPU0)
    async with sharer.process() as service:
        await service.prepare(reference())
        await service.unprepare(reference())
        slicer.is_late = True
        looking = asyncio.create_task(service.collect())
        await asyncio.to_thread(setting.wait, 20)
        sharer.put(2, GPU0)
        await service.prepare(reference(2))
        await looking
        assert not together.is_set()
        assert sharer.sharing.of("uid-1").time_slices == ()
        assert sharer.sharing.of("uid-2").time_slices == (("GPU-0", TimeSlice.LONG),)


BY_MPS: JsonObject = {**NVIDIA, "sharing": {"strategy": "MPS"}}


@pytest.mark.parametrize(
    ("parameters", "writer", "refusal"),
    [
        (LONG, "driver.claims.sharing.write_record", Unavailable),
        (BY_MPS, "driver.claims.sharing.write_record", Unavailable),
        (BY_MPS, "node.mps.modes.write_record", SharingNotDone),
    ],
)
async def test_on_a_full_disk_nothing_is_changed_and_everything_is_undone(
    sharer: Sharer,
    monkeypatch: pytest.MonkeyPatch,
    parameters: JsonObject,
    writer: str,
    refusal: type[Exception],
) -> None:
    def full(path: Path, *_: object, **__: object) -> None:
        raise WriteFailed(path, "No space left on device")

    def is_unchanged() -> bool:
        return not sharer.smi.slices and not sharer.pids and set(sharer.modes.modes.values()) == {DEFAULT}

    sharer.put(1, GPU0, parameters=parameters)
    sharer.put(2, GPU1, parameters=parameters)
    async with sharer.process() as service:
        with monkeypatch.context() as patched:
            patched.setattr(writer, full)
            with pytest.raises(refusal, match="No space left on device; check the state folder and its disk"):
                await service.prepare(reference())
            await eventually(is_unchanged, "nothing is changed for a claim that is not on record")
        await service.prepare(reference(1))
        await service.prepare(reference(2))
        assert not is_unchanged()
        with monkeypatch.context() as patched:
            patched.setattr(writer, full)
            await service.unprepare(reference(1))
            await service.unprepare(reference(2))
            await eventually(is_unchanged, "a release needs no room on the disk")
            assert service.records() == ()
    async with sharer.process():
        await eventually(lambda: not [*(sharer.node.root / "state").rglob("*.json")], "the records are removed")
        sharer.check_clean()


def test_a_program_that_cannot_be_killed_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[subprocess.Popen[bytes]] = []

    class Unkillable(subprocess.Popen[bytes]):
        def kill(self) -> None:
            left.append(self)

    smi = SmiStandIn(tmp_path)
    smi.misbehave("hang")
    with monkeypatch.context() as driver:
        driver.setattr(subprocess, "Popen", Unkillable)
        with pytest.raises(TimeSliceError, match=r"did not end within 0\.5 s; check whether the driver") as failed:
            TimeSlicer(tmp_path, 0.5).set("GPU-1", TimeSlice.SHORT)
    assert failed.value.is_uncertain
    (process,) = left
    assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def test_the_drivers_own_library_is_loaded_first(tmp_path: Path) -> None:
    folder = tmp_path / "usr" / "lib64"
    folder.mkdir(parents=True)
    (folder / "libnvidia-ml.so.1").touch()
    program = tmp_path / "usr" / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$LD_PRELOAD $*" > "$0.log"\n')
    program.chmod(0o755)
    TimeSlicer(tmp_path).set("GPU-1", TimeSlice.SHORT)
    said = Path(f"{program}.log").read_text()
    assert said == f"{folder / 'libnvidia-ml.so.1'} compute-policy -i GPU-1 --set-timeslice 1\n"
    program.unlink()
    with pytest.raises(TimeSliceError, match=r"set nvidia\.driverRoot"):
        TimeSlicer(tmp_path).set("GPU-1", TimeSlice.SHORT)
