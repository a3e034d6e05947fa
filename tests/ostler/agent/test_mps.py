"""MPS in the process: which daemons rules and devices need, what keeps shares back, and what a container gets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from node.clocks import SYSTEM
from node.edits.model import MountEdit
from node.edits.mps import mps_edits
from node.edits.options import EditOptions, ListStrategy
from node.eligibility import offer
from node.events import EventBus
from node.health.state import Health, HealthState
from node.inventory.model import Attribute, Capacity, Device, DeviceKind, Snapshot, SourceState, SourceStatus
from node.inventory.nvidia.compute_modes import EXCLUSIVE_PROCESS
from node.ledger.holds import Hold
from node.ledger.offer_context import NOTHING_HELD, OfferContext, by_place
from node.mps.daemon import MpsDevice, MpsResource
from node.mps.modes import ExclusiveModes
from node.mps.reports import MpsMetrics
from node.offer import Offer
from node.rules import Door, Rule, Selector
from node.sharing import Sharing, SharingStrategy
from node.values import replace
from ostler.agent import mps
from ostler.agent.mps import MpsService, MpsUnavailable, mps_resources
from ostler.config.settings import NvidiaSettings, Settings
from plugin.servicer import renderer
from tests.making.devices import gpu, mig
from tests.making.mps import GpuModes, MpsStandIn
from tests.waiting import eventually

NAME = "nvidia.com/gpu.shared"
GIB = 2**30
MPS = Sharing(SharingStrategy.MPS, 4)
MEMORY = (Capacity("memory", 80 * GIB),)


def rule(sharing: Sharing | None = MPS, **more: object) -> Rule:
    selector = Selector((DeviceKind.GPU,), ("nvidia",))
    return replace(Rule(NAME, selector, sharing=sharing), **more)


def found(*devices: Device, **more: object) -> Snapshot:
    return replace(Snapshot(1, devices, (SourceStatus("nvml", SourceState.OK),)), **more)


def shown(snapshot: Snapshot, one: Rule) -> Offer:
    return offer(snapshot, (one,), NOTHING_HELD, Door.PLUGIN)


def reasons(offered: Offer) -> set[str]:
    return {item.reason for resource in offered.resources for item in resource.devices}


def test_a_daemon_serves_the_gpus_that_can_be_shared() -> None:
    sick = gpu(2, health=Health(HealthState.UNHEALTHY, "XID 79"))
    partitioned = gpu(3, attributes=(Attribute("migEnabled", True),))
    sharing = replace(MPS, own_replicas=(("GPU-1", 8), ("GPU-4", 1)))
    devices = (gpu(0, capacity=MEMORY), gpu(1, capacity=MEMORY), sick, partitioned, gpu(4), gpu(5), mig(0))
    assert mps_resources(found(*devices), (rule(sharing),)) == (
        MpsResource(
            NAME,
            (
                MpsDevice("gpu-0000-0b-00-0", "GPU-0", 20 * GIB),
                MpsDevice("gpu-0000-1b-00-0", "GPU-1", 10 * GIB),
                MpsDevice("gpu-0000-5b-00-0", "GPU-5", None),
            ),
            25,
        ),
    )


def test_limits_of_the_rule_go_before_equal_parts() -> None:
    sharing = replace(MPS, memory_limit=8 * GIB, thread_percentage=60)
    (resource,) = mps_resources(found(gpu(0, capacity=MEMORY)), (rule(sharing),))
    assert (resource.devices[0].memory_limit, resource.thread_percentage) == (8 * GIB, 60)


@pytest.mark.parametrize("sharing", [None, Sharing(replicas=4)])
def test_other_rules_need_no_daemon(sharing: Sharing | None) -> None:
    assert mps_resources(found(gpu(0)), (rule(sharing),)) == ()


def test_a_device_that_cannot_be_shared_in_this_way_is_not_allocated() -> None:
    sharing = replace(MPS, memory_limit=21 * GIB)
    text = "4 replicas with a memoryLimit of 21504 MiB exceed the GPU's 81920 MiB; lower memoryLimit or replicas"
    assert reasons(shown(found(gpu(0, capacity=MEMORY)), rule(sharing))) == {text}


def test_a_device_that_mps_cannot_share_now_is_shown_with_the_reason() -> None:
    snapshot = found(gpu(0), gpu(1))
    faulty = replace(snapshot, host=replace(snapshot.host, mps_faults=(("gpu-0000-0b-00-0", "no daemon"),)))
    (resource,) = shown(faulty, rule()).resources
    assert {(item.device.uuid, item.healthy, item.reason) for item in resource.devices} == {
        ("GPU-0", False, "no daemon"),
        ("GPU-1", True, ""),
    }
    assert reasons(shown(faulty, rule(None))) == {""}


def test_a_container_with_a_share_is_a_client_of_the_daemon() -> None:
    options = EditOptions((ListStrategy.ENVVAR,), device_specs=False, mps=("/run/mps", NAME))
    sharing = replace(MPS, own_replicas=(("GPU-1", 1),))
    (resource,) = shown(found(gpu(0), gpu(1)), rule(sharing, edits=options)).resources
    render = renderer(resource)
    answer = render([item for item in resource.devices if item.device.uuid == "GPU-0"][:1])
    assert dict(answer.envs) == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-0",
        "CUDA_MPS_PIPE_DIRECTORY": f"/mps/{NAME}/pipe",
    }
    assert [(mount.host_path, mount.container_path, mount.read_only) for mount in answer.mounts] == [
        (f"/run/mps/{NAME}/pipe", f"/mps/{NAME}/pipe", False),
        (f"/run/mps/{NAME}/shm", "/dev/shm", False),
    ]
    alone = render([item for item in resource.devices if item.device.uuid == "GPU-1"])
    assert "CUDA_MPS_PIPE_DIRECTORY" not in alone.envs
    assert not alone.mounts


def test_edits_of_mps_have_the_folders_of_one_daemon() -> None:
    edits = mps_edits("/run/nvidia/mps/", NAME)
    assert edits.mounts[0] == MountEdit(f"/run/nvidia/mps/{NAME}/pipe", f"/mps/{NAME}/pipe")
    assert edits.mounts[1].host_path == f"/run/nvidia/mps/{NAME}/shm"


class _Agent:
    """The service of an agent on a node with the stand-in."""

    def __init__(self, folder: Path, *, real: bool = True) -> None:
        self.driver = MpsStandIn(folder)
        self.modes = GpuModes("GPU-0", "GPU-1")
        home = self.driver.home
        nvidia = NvidiaSettings(driver_root_mount=home.driver_root, mps_root=str(home.root))
        self.changed = asyncio.Event()
        self.service = MpsService(
            replace(Settings(), nvidia=nvidia, state_dir=folder),
            ExclusiveModes(self.modes) if real else None,
            clocks=SYSTEM,
            events=self,
            bus=EventBus(),
            metrics=MpsMetrics(),
            on_changed=self.changed.set,
            mounts=home.mounts,
        )

    def emit(self, *_: object) -> None:
        """Events are the supervisor's own tests'."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[MpsService]:
        task = asyncio.create_task(self.service.run())
        try:
            yield self.service
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def held(*shares: str, known: bool = True) -> OfferContext:
    name = "gpu-0000-0b-00-0"
    holds = [
        Hold(name, Door.PLUGIN, f"team/{share}", 0.0, owner=f"plugin/{name}::{share}", share=share) for share in shares
    ]
    return replace(NOTHING_HELD, holds=by_place(holds), known=known)


async def test_a_share_waits_for_its_daemon_and_the_next_does_not(tmp_path: Path) -> None:
    agent = _Agent(tmp_path)
    snapshot = agent.service.observe(found(gpu(0), gpu(1)), (rule(),))
    assert snapshot.host.mps_faults == ()
    (resource,) = shown(snapshot, rule()).resources
    async with agent.running() as service:
        starting = service.starting(NAME, resource.devices[:1])
        assert starting is not None
        await starting
        assert agent.modes.modes == {"GPU-0": EXCLUSIVE_PROCESS, "GPU-1": EXCLUSIVE_PROCESS}
        service.hold(held("0"))
        assert service.starting(NAME, resource.devices[1:2]) is None
        service.hold(held())
    assert agent.modes.modes == {"GPU-0": 0, "GPU-1": 0}


async def test_the_kubelet_does_not_wait_for_ever_for_a_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps, "STARTED_WITHIN", 0.2)
    agent = _Agent(tmp_path)  # It does not run, as if it hung in the driver.
    (resource,) = shown(agent.service.observe(found(gpu(0)), (rule(),)), rule()).resources
    starting = agent.service.starting(NAME, resource.devices[:1])
    assert starting is not None
    with pytest.raises(
        MpsUnavailable, match=f"{NAME}: MPS does not work: its control daemon does not start within 0.2 s"
    ):
        await starting


async def test_a_gpu_held_as_a_whole_joins_its_daemon_when_it_is_free(tmp_path: Path) -> None:
    agent = _Agent(tmp_path)
    name = "gpu-0000-0b-00-0"
    whole = Hold(name, Door.DRA, "team/own-daemon", 0.0, owner="uid-1")
    looking = Hold("gpu-0000-1b-00-0", Door.DRA, "team/monitor", 0.0, owner="uid-2", admin=True)
    taken = replace(NOTHING_HELD, holds=by_place([whole, looking]), known=True)
    snapshot = agent.service.observe(found(gpu(0), gpu(1)), (rule(),), taken)
    (resource,) = shown(snapshot, rule()).resources
    async with agent.running() as service:
        starting = service.starting(NAME, resource.devices[4:5])
        assert starting is not None
        await starting
        service.hold(taken)
        assert agent.modes.modes == {"GPU-0": 0, "GPU-1": EXCLUSIVE_PROCESS}, "the claim's daemon has the mode of GPU-0"
        await eventually(lambda: agent.modes.modes["GPU-1"] == 0, "the daemon is stopped")
        free = replace(NOTHING_HELD, known=True)
        assert service.observe(found(gpu(0), gpu(1)), (rule(),), free).host.mps_faults == ()
        await service.ready(NAME)
        assert set(agent.modes.modes.values()) == {EXCLUSIVE_PROCESS}
        service.hold(free)


async def test_a_device_without_shares_waits_for_nothing(tmp_path: Path) -> None:
    agent = _Agent(tmp_path)
    (resource,) = shown(found(gpu(0)), rule(None)).resources
    assert agent.service.starting(NAME, resource.devices) is None


async def test_a_daemon_that_fails_refuses_the_pod_and_withholds_the_devices(tmp_path: Path) -> None:
    agent = _Agent(tmp_path)
    agent.driver.misbehave("refuse-start")
    snapshot = agent.service.observe(found(gpu(0)), (rule(),))
    (resource,) = shown(snapshot, rule()).resources
    async with agent.running() as service:
        starting = service.starting(NAME, resource.devices[:1])
        assert starting is not None
        with pytest.raises(MpsUnavailable, match=f"{NAME}: MPS does not work: .* ended with exit code 3") as caught:
            await starting
        assert caught.value.code is grpc.StatusCode.UNAVAILABLE
        await asyncio.wait_for(agent.changed.wait(), 120)
        ((name, reason),) = service.observe(found(gpu(0)), (rule(),)).host.mps_faults
        assert name == "gpu-0000-0b-00-0"
        assert reason.startswith("MPS does not work: ")


async def test_a_recorded_node_cannot_share_by_mps(tmp_path: Path) -> None:
    agent = _Agent(tmp_path, real=False)
    snapshot = agent.service.observe(found(gpu(0)), (rule(),))
    assert reasons(shown(snapshot, rule())) == {
        "a recorded node has no driver that could run MPS; use strategy timeSlicing"
    }
    async with agent.running() as service:
        service.hold(held("0"))
        assert service.starting(NAME, ()) is None


async def test_what_an_earlier_agent_left_is_kept_until_devices_are_known(tmp_path: Path) -> None:
    agent = _Agent(tmp_path)
    agent.service.observe(Snapshot(), (rule(),))
    async with agent.running():
        await asyncio.sleep(0.05)
        (tmp_path / "mps.json").write_text("kept")
        await asyncio.sleep(0.05)
        assert (tmp_path / "mps.json").read_text() == "kept"
