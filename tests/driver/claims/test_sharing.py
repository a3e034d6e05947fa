"""Claims whose containers share their GPUs: what is done to the GPUs is undone, whatever happens in between.

The programs of the driver are stand-ins that run as real processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driver.claims.interfaces import ClaimStep
from driver.claims.model import ClaimError, SharingNotDone
from driver.claims.service import ClaimService
from driver.claims.sharing import SharingTools, daemon_name
from driver.names import Peer
from driver.parameters.errors import ParameterError
from kube.bodies import Json, JsonObject
from node.edits.options import EditOptions
from node.inventory.model import Attribute, Capacity, Version
from node.inventory.nvidia.compute_modes import DEFAULT, EXCLUSIVE_PROCESS
from node.inventory.nvidia.time_slices import TimeSlice, TimeSliceError, TimeSlicer
from node.rules import Doors, Rule
from node.sharing import Sharing, SharingStrategy
from node.values import replace
from tests.making.claim_service import GPU0, GPU1, DieAt, Killed, claim, offered, opaque, reference, result
from tests.making.claim_sharing import LONG, NVIDIA, Sharer
from tests.making.devices import gpu, mig
from tests.making.dying import DyingProcesses

GIB = 2**30
OURS: JsonObject = {"apiVersion": "ostler.dev/v1alpha1", "kind": "GpuConfig"}
LIMITED: JsonObject = {
    **NVIDIA,
    "sharing": {
        "strategy": "MPS",
        "mpsConfig": {
            "defaultActiveThreadPercentage": 40,
            "defaultPinnedDeviceMemoryLimit": "10Gi",
            "defaultPerDevicePinnedMemoryLimit": {"GPU-1": "4Gi"},
            "multiUser": True,
        },
    },
}
EXIT = 77
NAME = daemon_name("uid-1")


@pytest.fixture
def sharer(tmp_path: Path) -> Iterator[Sharer]:
    made = Sharer(tmp_path / "node")
    yield made
    for pid in made.pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


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
        async with asyncio.timeout(20):
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
        async with asyncio.timeout(20):
            while sharer.pids <= {pid}:
                await asyncio.sleep(0.05)
        assert sharer.node.events.reasons == ["MpsServerCrashed"]
        await service.unprepare(reference())
        sharer.check_clean()


@pytest.mark.parametrize(
    ("break_it", "text"),
    [
        (lambda each: each.smi.program.unlink(), "has no nvidia-smi, which alone can set it; install the driver's"),
        (lambda each: each.smi.misbehave("refuse"), "exit code 3: Failed to set timeslice policy for GPU: Not Sup"),
        (lambda each: each.smi.misbehave("hang"), "did not end within 1 s; check whether the driver answers"),
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


async def test_a_daemon_that_hangs_is_ended_in_bounded_time(sharer: Sharer) -> None:
    sharer.put(1, GPU0, parameters={**NVIDIA, "sharing": {"strategy": "MPS"}})
    async with sharer.process() as service:
        await service.prepare(reference())
        sharer.driver.misbehave("deaf")
        began = time.monotonic()
        await service.unprepare(reference())
        assert time.monotonic() - began < 20
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
        async with asyncio.timeout(20):
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
        async with asyncio.timeout(20):
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


RULE = Rule(
    "nvidia.com/gpu.shared",
    sharing=Sharing(SharingStrategy.MPS, 4),
    door=Doors.DRA,
    edits=EditOptions(mps=("/run/nvidia/mps", "nvidia.com/gpu.shared")),
)
SHARED = tuple(offered(gpu(number, capacity=(Capacity("memory", 80 * GIB),)), rule=RULE) for number in range(2))


def put_shares(sharer: Sharer, number: int, *shares: tuple[str, str, str, int], config: Any = ()) -> None:
    """A claim with shares: request, device, memory and percent of compute of each."""
    results = (
        result(device, request, shareID=f"share-{index}", consumedCapacity={"memory": memory, "compute": str(compute)})
        for index, (request, device, memory, compute) in enumerate(shares)
    )
    sharer.node.reader.put(claim(number, *results, config=config))


def variables(sharer: Sharer) -> dict[str, str]:
    spec = sharer.node.spec(1)
    assert spec is not None
    return dict(text.split("=", 1) for each in spec["devices"] for text in each["containerEdits"].get("env", []))


async def test_a_share_by_mps_is_limited_to_what_the_claim_consumes(sharer: Sharer) -> None:
    sharer.node.devices = SHARED
    put_shares(sharer, 1, ("gpu", GPU0, "30Gi", 60), ("gpu", GPU1, "30Gi", 60))
    async with sharer.process() as service:
        await service.prepare(reference())
        assert sharer.asked == ["nvidia.com/gpu.shared"]
        found = variables(sharer)
        assert found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=30720M,1=30720M"
        assert found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "60"
        assert found["CUDA_MPS_PIPE_DIRECTORY"] == "/mps/nvidia.com/gpu.shared/pipe"
        await service.unprepare(reference())


async def test_a_share_without_amounts_counts_as_the_default_share(sharer: Sharer) -> None:
    sharer.node.devices = SHARED
    for number in range(1, 6):
        capacity: Json = None if number == 2 else {"other.example.com/lanes": "1"}
        sharer.node.reader.put(claim(number, result(GPU0, shareID=f"share-{number}", consumedCapacity=capacity)))
    async with sharer.process() as service:
        for number in range(1, 5):
            await service.prepare(reference(number))
        assert variables(sharer)["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=20480M"
        assert {hold.amounts for hold in service.ledger.all} == {(("compute", 250_000), ("memory", 20 * GIB))}
        with pytest.raises(
            ClaimError,
            match=r"has too little left for share share-5, which takes 25% of compute and 20 GiB of memory: 0% ",
        ):
            await service.prepare(reference(5))


async def test_two_shares_of_one_gpu_are_one_limit(sharer: Sharer) -> None:
    sharer.node.devices = SHARED
    put_shares(sharer, 1, ("gpu", GPU0, "10Gi", 20), ("gpu", GPU0, "20Gi", 30))
    async with sharer.process() as service:
        await service.prepare(reference())
        assert variables(sharer)["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=30720M"
        assert variables(sharer)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"


@pytest.mark.parametrize(
    ("second", "text"),
    [
        (("gpu", GPU1, "20Gi", 20), "request gpu: its shares by MPS take different amounts of"),
        (("other", GPU1, "10Gi", 20), "requests gpu, other all have shares by MPS"),
    ],
)
async def test_shares_that_one_container_cannot_have_are_refused(
    sharer: Sharer, second: tuple[str, str, str, int], text: str
) -> None:
    sharer.node.devices = SHARED
    put_shares(sharer, 1, ("gpu", GPU0, "10Gi", 20), second)
    async with sharer.process() as service:
        with pytest.raises(ClaimError, match=f"{text}.*write one request with a count and one capacity"):
            await service.prepare(reference())


async def test_a_share_whose_daemon_does_not_run_is_not_given(sharer: Sharer) -> None:
    sharer.node.devices = SHARED
    sharer.fault = "the driver has no nvidia-cuda-mps-control"
    put_shares(sharer, 1, ("gpu", GPU0, "10Gi", 20))
    async with sharer.process() as service:
        with pytest.raises(SharingNotDone, match=r"MPS of nvidia.com/gpu.shared does not work: the driver has no"):
            await service.prepare(reference())
        assert service.ledger.all == ()


OLD = (Attribute("cudaComputeCapability", Version("6.1.0")),)


@pytest.mark.parametrize(
    ("parameters", "changes", "text"),
    [
        (LONG, {"device": gpu(0, attributes=OLD)}, r"interval: \"Long\": device .* has compute capability 6.1"),
        (LIMITED, {"device": gpu(0, attributes=OLD)}, "MPS limits its clients from 7.0 on; leave the limits out"),
        (LONG, {"rule": RULE}, "is a share, and others have the rest of the GPU"),
        (LONG, {"device": gpu(0, vendor="amd")}, "is not an NVIDIA GPU; name the requests of such GPUs"),
        ({**NVIDIA, "sharing": {"strategy": "MPS"}, "kind": "MigDeviceConfig"}, {}, "write kind GpuConfig"),
        ({**OURS, "sharing": {"strategy": "mps", "interval": "long"}}, {}, "strategy mps has no such field; it has"),
        ({**OURS, "sharing": {"strategy": "MPS"}}, {}, '"MPS" is not known; write timeSlicing or mps'),
    ],
)
async def test_what_a_device_cannot_do_is_refused_by_field_value_and_fix(
    sharer: Sharer, parameters: JsonObject, changes: dict[str, Any], text: str
) -> None:
    sharer.node.devices = (offered(**{"device": gpu(0), **changes}),)
    driver = str(Peer.NVIDIA) if parameters is not OURS and "nvidia" in str(parameters["apiVersion"]) else "ostler.dev"
    sharer.node.reader.put(claim(1, result(GPU0), config=(opaque(parameters, "gpu", driver=driver),)))
    async with sharer.process() as service:
        with pytest.raises(ParameterError, match=text) as refused:
            await service.prepare(reference())
    assert str(refused.value).startswith("status.allocation.devices.config[0].opaque.parameters.sharing.")
    assert refused.value.condition == "ParametersRefused"
    assert sharer.smi.slices == {}


@pytest.mark.parametrize("requests", [(), ("gpu",)])
async def test_sharing_that_is_for_no_device_of_the_claim_is_refused(sharer: Sharer, requests: tuple[str, ...]) -> None:
    own: JsonObject = {**OURS, "kind": "MigConfig", "sharing": {"strategy": "mps"}}
    peers: JsonObject = {**NVIDIA, "kind": "MigDeviceConfig", "sharing": {"strategy": "MPS"}}
    for parameters, driver in ((own, "ostler.dev"), (peers, str(Peer.NVIDIA))):
        sharer.node.reader.put(claim(1, result(GPU0), config=(opaque(parameters, *requests, driver=driver),)))
        async with sharer.process() as service:
            with pytest.raises(ParameterError, match=r"write (kind )?GpuConfig"):
                await service.prepare(reference())


async def test_looking_on_changes_nothing(sharer: Sharer) -> None:
    sharer.put(1, GPU0, adminAccess=True)
    async with sharer.process() as service:
        with pytest.raises(ParameterError, match="is only monitored"):
            await service.prepare(reference())


async def test_one_claim_has_one_daemon(sharer: Sharer) -> None:
    first: JsonObject = {**NVIDIA, "sharing": {"strategy": "MPS"}}
    configs = (opaque(first, "a", driver=str(Peer.NVIDIA)), opaque(LIMITED, "b", driver=str(Peer.NVIDIA)))
    sharer.node.reader.put(claim(1, result(GPU0, "a"), result(GPU1, "b"), config=configs))
    async with sharer.process() as service:
        with pytest.raises(ParameterError, match=r"another section for MPS .* a claim for each"):
            await service.prepare(reference())


async def test_the_claims_section_counts_before_that_of_its_class(sharer: Sharer) -> None:
    of_class = opaque(LONG, driver=str(Peer.NVIDIA), source="FromClass")
    sharer.node.reader.put(claim(1, result(GPU0), config=(opaque(NVIDIA, driver=str(Peer.NVIDIA)), of_class)))
    async with sharer.process() as service:
        await service.prepare(reference())
        assert sharer.smi.slices == {}


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
