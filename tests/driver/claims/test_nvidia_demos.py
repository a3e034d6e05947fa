"""Claims as users of NVIDIA's driver write them: each is served on ours, or refused with what to write instead.

Classes and attributes are those of ``dra.alsoPublishAs: [gpu.nvidia.com]``. The scheduler is the stock one's double.
The driver's programs are stand-ins that run as real processes.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from driver.claims.model import ClaimError
from driver.devices.description import counter_set
from driver.devices.partitions import partitioned
from driver.devices.view import DoorView, DraDevice, door_offer, view_of
from driver.names import Peer
from node.edits.options import EditOptions
from node.inventory.model import DeviceKind, Snapshot
from node.ledger.offer_context import NOTHING_HELD
from node.rules import Doors, Rule, Selector
from node.sharing import Sharing, SharingStrategy
from tests.driver.devices.recorded import RULES, snapshot
from tests.driver.devices.scheduling import DeviceScheduler, Json, request, slices
from tests.making import claims
from tests.making.claim_service import reference
from tests.making.claim_sharing import LONG, NVIDIA, Sharer
from tests.making.dra_door import door_view
from tests.making.mps import GpuModes
from tests.making.partitions import RULE as PARTED
from tests.making.partitions import parted

PEERS = (Peer.NVIDIA,)
MIG_KIND = {**NVIDIA, "kind": "MigDeviceConfig"}
HALF = {
    "strategy": "MPS",
    "mpsConfig": {"defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "10Gi"},
}


def config(parameters: Any, *requests: str) -> Json:
    return {"requests": list(requests), "opaque": {"driver": str(Peer.NVIDIA), "parameters": parameters}}


def gpus(name: str = "gpu", **more: Any) -> Json:
    return request(name, "gpu.nvidia.com", **more)


def migs(name: str, profile: str) -> Json:
    return request(name, "mig.nvidia.com", selector=f'device.attributes["gpu.nvidia.com"].profile == "{profile}"')


def asks(*requests: Json, configs: Sequence[Json] = (), same: str = "") -> Json:
    constraints = [{"matchAttribute": f"gpu.nvidia.com/{same}"}] if same else []
    found: Json = claims.claim(requests, *constraints)
    return with_configs(found, *configs) if configs else found


def with_configs(wanted: Json, *configs: Json) -> Json:
    return {**wanted, "spec": {"devices": {**wanted["spec"]["devices"], "config": list(configs)}}}


class Demo:
    """A node of one of our recordings, or another view, and NVIDIA's claims on it."""

    def __init__(self, root: Path) -> None:
        self.sharer = Sharer(root)
        self.scheduler: DeviceScheduler

    def show(self, view: DoorView) -> None:
        node = self.sharer.node
        node.devices, node.host = view.devices, view.host
        uuids = (each.device.uuid for each in view.devices)
        self.sharer.modes = GpuModes(*(uuid for uuid in uuids if uuid is not None))
        published = slices(view.devices, PEERS)
        if view.counters:
            spec = {**published[0]["spec"], "sharedCounters": [counter_set(each) for each in view.counters]}
            del spec["devices"]
            published.append({**published[0], "metadata": {"name": "counters"}, "spec": spec})
            for each in published:
                each["spec"]["pool"]["resourceSliceCount"] = len(published)
        self.scheduler = DeviceScheduler(published)

    def record(self, node: str, *rules: Rule) -> None:
        self.show(door_view(snapshot(node), rules or RULES))

    def allocated(self, wanted: Json, number: int = 1) -> list[str] | None:
        """The devices of a claim that the scheduler has allocated, which the API server has from now on."""
        found = self.scheduler.allocate(wanted)
        if found is None:
            return None
        handle, devices = found
        named = reference(number)
        allocation = self.scheduler.held[handle]["status"]["allocation"]
        configs = [{**each, "source": "FromClaim"} for each in wanted["spec"]["devices"].get("config", [])]
        allocation["devices"]["config"] = configs
        body = {
            **wanted,
            "metadata": {"name": named.name, "namespace": named.namespace, "uid": named.uid},
            "status": {
                "allocation": allocation,
                "reservedFor": [{"resource": "pods", "name": name, "uid": name} for name in ("pod-1", "pod-2")],
            },
        }
        self.sharer.node.reader.put(body)
        return devices


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    made = Demo(tmp_path / "node")
    yield made
    for pid in made.sharer.pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


WHOLE = {
    "a GPU for each pod": asks(gpus()),
    "a GPU with default parameters": asks(gpus(), configs=[config(NVIDIA)]),
    "two GPUs of one claim": asks(gpus(count=2)),
    "a GPU by its model": asks(
        gpus(selector='device.attributes["gpu.nvidia.com"].productName.lowerAscii().matches("^.*h100.*$")')
    ),
    "a GPU by memory": asks(gpus(selector='device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) >= 0')),
}


@pytest.mark.parametrize("wanted", WHOLE.values(), ids=WHOLE)
async def test_claims_for_whole_gpus_are_served(demo: Demo, wanted: Json) -> None:
    demo.record("h100-sxm-8")
    devices = demo.allocated(wanted)
    assert devices is not None
    async with demo.sharer.process() as service:
        assert len(await service.prepare(reference())) == len(devices)
        await service.unprepare(reference())
    demo.sharer.check_clean()


async def test_one_gpu_by_time_slices_and_one_by_mps_for_the_containers_of_a_pod(demo: Demo) -> None:
    demo.record("h100-sxm-8")
    by_mps = {**NVIDIA, "sharing": HALF}
    wanted = asks(gpus("ts-gpu"), gpus("mps-gpu"), configs=[config(LONG, "ts-gpu"), config(by_mps, "mps-gpu")])
    devices = demo.allocated(wanted)
    assert devices is not None
    async with demo.sharer.process() as service:
        await service.prepare(reference())
        first, second = (device_of(demo, name).device.uuid for name in devices)
        assert demo.sharer.smi.slices == {first: 3}
        log = demo.sharer.driver.log("claim-uid-1")
        assert f"set_default_device_pinned_mem_limit {second} 10240M" in log
        assert "set_default_active_thread_percentage 50" in log
        await service.unprepare(reference())
    demo.sharer.check_clean()


async def test_limits_of_mps_for_each_device(demo: Demo) -> None:
    demo.record("h100-sxm-8")
    limits = {"mpsConfig": {"defaultPinnedDeviceMemoryLimit": "8Gi", "defaultPerDevicePinnedMemoryLimit": {"1": "2Gi"}}}
    assert demo.allocated(asks(gpus(count=2), configs=[config({**NVIDIA, "sharing": {**HALF, **limits}}, "gpu")]))
    async with demo.sharer.process() as service:
        await service.prepare(reference())
        log = demo.sharer.driver.log("claim-uid-1")
        lines = sorted(line for line in log if line.startswith("set_default_device"))
        assert [line.rpartition(" ")[2] for line in lines] == ["8192M", "2048M"], "by the order of UUIDs"
        await service.unprepare(reference())
    demo.sharer.check_clean()


async def test_mig_devices_of_one_gpu(demo: Demo) -> None:
    demo.record("a100-mig-4")
    requests = [migs(f"mig-{number}", "1g.5gb") for number in range(3)]
    devices = demo.allocated(asks(*requests, same="parentUUID"))
    assert devices is not None
    assert len({device_of(demo, name).device.parent for name in devices}) == 1
    async with demo.sharer.process() as service:
        assert len(await service.prepare(reference())) == 3


async def test_a_mig_device_whose_containers_share_by_mps(demo: Demo) -> None:
    demo.record("a100-mig-4")
    assert demo.allocated(asks(migs("mig", "1g.5gb"), configs=[config({**MIG_KIND, "sharing": HALF})]))
    async with demo.sharer.process() as service:
        await service.prepare(reference())
        (line,) = [line for line in demo.sharer.driver.log("claim-uid-1") if line.startswith("devices ")]
        assert line.startswith("devices MIG-")
        await service.unprepare(reference())
    demo.sharer.check_clean()


def test_a_mig_device_that_is_made_for_the_claim_is_allocated_by_its_profile(demo: Demo) -> None:
    parts = partitioned(Snapshot(devices=(parted(0),)), (PARTED,))
    demo.show(view_of(parts, door_offer(parts, (PARTED,), NOTHING_HELD), NOTHING_HELD, (PARTED,)))
    devices = demo.allocated(asks(migs("mig", "1g.10gb"), migs("other", "3g.40gb"), same="parentUUID"))
    assert devices is not None
    assert all(name.startswith("mig-") for name in devices)


SHARED = Rule(
    "nvidia.com/gpu.shared",
    Selector(kinds=(DeviceKind.GPU,), mig_enabled=False),
    Doors.DRA,
    sharing=Sharing(SharingStrategy.MPS, 4),
    edits=EditOptions(mps=("/run/nvidia/mps", "nvidia.com/gpu.shared")),
)


def capacity(**amounts: str) -> Json:
    wanted = gpus()
    wanted["exactly"]["capacity"] = {"requests": amounts}
    return asks(wanted)


async def test_claims_of_several_pods_share_a_gpu_by_memory(demo: Demo) -> None:
    demo.record("l4-2", SHARED)
    given = [demo.allocated(capacity(memory="10Gi"), number) for number in range(1, 6)]
    assert [each is not None for each in given] == [True] * 4 + [False], "two L4 have 23 GiB each"
    async with demo.sharer.process() as service:
        for number in range(1, 5):
            await service.prepare(reference(number))
        spec = str(demo.sharer.node.spec(1))
        assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=10240M" in spec
        assert demo.sharer.asked == ["nvidia.com/gpu.shared"] * 4


def test_a_share_is_not_asked_for_by_nvidias_name_of_the_memory(demo: Demo) -> None:
    demo.record("l4-2", SHARED)
    assert demo.allocated(capacity(**{"gpu.nvidia.com/memory": "10Gi"})) is None
    assert demo.allocated(capacity(memory="10Gi")) is not None


REFUSED = {
    "a GPU for a virtual machine": (
        [config({**NVIDIA, "kind": "VfioDeviceConfig"})],
        "leave the parameters out, or keep NVIDIA's driver for claims that pass a GPU to a virtual machine",
    ),
    "parameters of an older version": (
        [config({**NVIDIA, "apiVersion": "gpu.resource.nvidia.com/v1alpha1"})],
        "is not known; write resource.nvidia.com/v1beta1",
    ),
    "parameters for MIG of a GPU": (
        [config({**MIG_KIND, "sharing": HALF}, "gpu")],
        "is of kind gpu; write kind GpuConfig",
    ),
    "an interval that there is not": (
        [config({**NVIDIA, "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Eternal"}}})],
        '"Eternal" is not known; write one of Default, Short, Medium, Long',
    ),
}


@pytest.mark.parametrize(("configs", "text"), REFUSED.values(), ids=REFUSED)
async def test_what_is_refused_says_what_to_write_instead(demo: Demo, configs: list[Json], text: str) -> None:
    demo.record("h100-sxm-8")
    assert demo.allocated(asks(gpus(), configs=configs))
    async with demo.sharer.process() as service:
        with pytest.raises(ClaimError) as refused:
            await service.prepare(reference())
    assert text in str(refused.value)
    assert refused.value.condition == "ParametersRefused"
    demo.sharer.check_clean()


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (LONG, "leave sharing out and write the share's size as capacity of the request (memory, compute)"),
        ({**NVIDIA, "sharing": HALF}, "is a share, and others have the rest of the GPU"),
    ],
)
async def test_a_share_takes_no_parameters_for_its_gpu(demo: Demo, parameters: Json, text: str) -> None:
    demo.record("l4-2", SHARED)
    wanted = with_configs(capacity(memory="4Gi"), config(parameters))
    assert demo.allocated(wanted)
    async with demo.sharer.process() as service:
        with pytest.raises(ClaimError) as refused:
            await service.prepare(reference())
    assert text in str(refused.value)


def test_a_claim_that_names_the_other_driver_itself_waits(demo: Demo) -> None:
    demo.record("h100-sxm-8")
    assert demo.allocated(asks(gpus(selector='device.driver == "gpu.nvidia.com"'))) is None


def device_of(demo: Demo, name: str) -> DraDevice:
    return next(each for each in demo.sharer.node.devices if each.device.name == name)
