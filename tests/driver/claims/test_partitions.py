"""Partitions of GPUs that are made for a claim when it is prepared, and removed when it is released."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from driver.claims.disk import RecordStore
from driver.claims.interfaces import ClaimObserver, ClaimStep
from driver.claims.model import ClaimError, PartitionNotMade, PartitionPending, RecordState, SharingNotDone
from driver.claims.partitions import ClaimPartitions
from driver.claims.record import ClaimRecord
from driver.claims.service import ClaimService
from driver.claims.sharing import ClaimSharing
from driver.devices.partitions import partitioned
from driver.devices.view import DoorView, door_offer, view_of
from driver.names import Peer
from kube.bodies import JsonObject
from node.inventory.model import Device, DeviceKind, Snapshot
from node.ledger.holds import HeldError, Hold
from node.ledger.ledger import Ledger
from node.ledger.offer_context import OfferContext, by_place
from node.partitions import PartitionError, partition_name
from node.rules import Door
from node.values import replace
from tests.making.claim_service import DieAt, Killed, Node, claim, opaque, reference, result
from tests.making.claim_sharing import NVIDIA, Sharer
from tests.making.dying import DyingProcesses
from tests.making.partitions import H100, RULE, FakeHardware, instance, parted
from tests.waiting import background, eventually

GPU = parted(0)
SMALL, OTHER = H100[0], H100[3]
LARGE = next(shape for shape in H100 if shape.profile == "4g.40gb")
PART, BESIDE, BIG = (partition_name(GPU.name, shape) for shape in (SMALL, OTHER, LARGE))
EXIT = 77


class Counted(ClaimObserver):
    """Counts partitions."""

    def __init__(self) -> None:
        self.made = self.removed = self.pending = self.failed = 0

    def partition_made(self, seconds: float) -> None:
        self.made += 1

    def partitions_removed(self, count: int) -> None:
        self.removed += count

    def partition_failed(self, *, pending: bool) -> None:
        self.pending += pending
        self.failed += not pending


class Parts:
    """A node whose GPUs are given in parts, and one driver process after the other on it."""

    def __init__(self, root: Path, *gpus: Device) -> None:
        self.node = Node(root)
        self.node.with_options(partition_wait=2.0)
        self.hardware = FakeHardware(root, gpus or (GPU, parted(1)))
        self.observer = Counted()
        self.looked_at: list[frozenset[str]] = []
        """The GPUs of each scan, empty for all."""
        self.patience = 40.0
        self.blind = False
        """Whether the inventory sees nothing new."""
        self.service: ClaimService
        self.partitions: ClaimPartitions

    def view(self) -> DoorView:
        snapshot = Snapshot(devices=self.hardware.devices())
        parts = partitioned(snapshot, (RULE,), self.partitions.names())
        context = OfferContext(by_place(self.service.ledger.all))
        return view_of(parts, door_offer(parts, (RULE,), context), context, (RULE,))

    def apply(self) -> None:
        self.service.apply(self.view())

    async def started(self, **more: Any) -> ClaimService:
        ledger = Ledger()

        async def rescan(gpus: frozenset[str]) -> None:
            self.looked_at.append(gpus)
            await asyncio.sleep(0)
            if not self.blind and self.service.ledger is ledger:
                self.apply()

        self.partitions = ClaimPartitions(
            self.hardware, rescan, self.observer, lambda: 0.0, ledger.bus, patience=self.patience
        )
        self.service = self.node.service(ledger=ledger, partitions=self.partitions, observer=self.observer, **more)
        await self.service.recover()
        self.apply()
        return self.service

    def put(self, number: int, *devices: str, **fields: Any) -> None:
        self.node.reader.put(claim(number, *(result(device, **fields) for device in devices)))

    def check_empty(self) -> None:
        assert self.hardware.instances == []
        assert self.hardware.made() == ()
        assert self.service.records() == ()
        assert self.service.ledger.all == ()
        assert [*(self.node.root / "state" / "claims").glob("*")] == []
        assert [*(self.node.root / "cdi").glob("*")] == []

    def check_whole(self, *partitions: str) -> None:
        """Exactly these partitions exist, each for a claim that is prepared with it."""
        made = self.hardware.made()
        assert sorted(each.device for each in made) == sorted(partitions)
        assert sorted(each.uuid for each in made) == sorted(self.hardware.instances)
        records = {record.claim.uid: record for record in self.service.records()}
        for each in made:
            assert records[each.owner].state is RecordState.COMPLETED
        assert {hold.owner for hold in self.service.ledger.all} == records.keys()


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    return Parts(tmp_path / "node")


def nodes_of(parts: Parts, number: int) -> set[str]:
    """The device nodes that a container of the claim gets."""
    spec = parts.node.spec(number)
    assert spec is not None
    return {node["path"] for device in spec["devices"] for node in device["containerEdits"]["deviceNodes"]}


async def test_a_partition_is_made_seen_and_given_like_any_mig_device(parts: Parts) -> None:
    service = await parts.started()
    parts.put(1, PART)
    (device,) = await service.prepare(reference())
    assert device.device == PART
    assert nodes_of(parts, 1) >= {"/dev/nvidia-caps/nvidia-cap31", "/dev/nvidia-caps/nvidia-cap32"}
    (hold,) = service.ledger.all
    assert (hold.device, hold.within, hold.slices) == (PART, (GPU.name,), (0, 1))
    parts.check_whole(PART)
    assert parts.looked_at == [frozenset({GPU.uuid})]
    assert await service.prepare(reference()) == (device,)
    assert parts.observer.made == 1
    await service.unprepare(reference())
    parts.check_empty()
    assert parts.observer.removed == 1


async def test_an_instance_that_exists_is_given_as_it_is_and_stays(parts: Parts) -> None:
    parts.hardware.put(GPU, SMALL, "MIG-static")
    service = await parts.started()
    parts.put(1, PART)
    await service.prepare(reference())
    await service.unprepare(reference())
    assert parts.hardware.instances == ["MIG-static"]
    assert parts.observer.made == 0


async def test_claims_of_the_whole_and_of_what_overlaps_wait_and_others_do_not(parts: Parts) -> None:
    service = await parts.started()
    parts.put(1, PART)
    parts.put(2, BIG)
    parts.put(3, GPU.name)
    parts.put(4, BESIDE)
    await service.prepare(reference(1))
    for number in (2, 3):
        with pytest.raises(ClaimError, match="held through the dra door by default/claim-1"):
            await service.prepare(reference(number))
    await service.prepare(reference(4))
    parts.check_whole(PART, BESIDE)


async def test_a_gpu_leaves_mig_mode_before_it_is_given_whole(parts: Parts) -> None:
    service = await parts.started()
    parts.put(1, PART)
    parts.put(2, GPU.name)
    await service.prepare(reference(1))
    await service.unprepare(reference(1))
    assert parts.view().device(GPU.name) is not None
    (device,) = await service.prepare(reference(2))
    assert device.device == GPU.name
    assert parts.hardware.devices()[0].attribute("migEnabled") is False
    parts.put(3, PART)
    with pytest.raises(ClaimError, match="which is part of"):
        await service.prepare(reference(3))


async def test_a_claim_with_two_partitions_gets_both_or_none(parts: Parts) -> None:
    service = await parts.started()
    parts.put(1, PART, BIG)
    # The inventory has not seen it yet.
    parts.hardware.put(GPU, LARGE, "MIG-other")
    with pytest.raises(PartitionPending, match="insufficient resources"):
        await service.prepare(reference())
    assert parts.hardware.instances == ["MIG-other"]
    assert service.records() == ()
    assert service.ledger.all == ()


@pytest.mark.parametrize("pending", [True, False])
async def test_what_cannot_be_made_is_told_and_leaves_nothing(parts: Parts, pending: bool) -> None:
    service = await parts.started()
    parts.put(1, PART)
    parts.hardware.refuses = PartitionError(GPU.name, "process 4711 uses the GPU", pending=pending)
    expected = PartitionPending if pending else PartitionNotMade
    with pytest.raises(expected, match=f"{GPU.name}: process 4711 uses the GPU") as told:
        await service.prepare(reference())
    assert ("asks again" in str(told.value)) is pending
    assert told.value.condition == expected.condition
    with pytest.raises(expected):
        await service.prepare(reference())
    assert parts.node.events.of(expected.condition) == [str(told.value)], "once for each reason"
    parts.hardware.refuses = None
    await service.unprepare(reference())
    parts.check_empty()
    assert (parts.observer.pending > 0) is pending
    await service.prepare(reference())
    parts.check_whole(PART)


async def test_a_partition_that_is_in_use_keeps_its_claim_and_is_removed_later(parts: Parts) -> None:
    service = await parts.started()
    parts.put(1, PART)
    await service.prepare(reference())
    parts.hardware.busy = set(parts.hardware.instances)
    with pytest.raises(PartitionPending, match="process 4711"):
        await service.unprepare(reference())
    assert len(service.ledger.all) == 1
    parts.hardware.busy = set()
    await service.unprepare(reference())
    parts.check_empty()


async def test_a_lost_gpu_keeps_no_pod_from_ending_and_its_partition_is_removed_when_it_is_back(parts: Parts) -> None:
    service = await parts.started()
    parts.put(1, PART)
    await service.prepare(reference())
    parts.hardware.refuses = PartitionError(GPU.name, "nvmlDeviceGetMigMode failed with GPU_IS_LOST")
    await service.unprepare(reference())
    assert service.ledger.all == ()
    assert service.records() == ()
    assert parts.node.events.of("ClaimReleaseIncomplete") == [
        (
            "claim default/claim-1 is released, but a partition that was made for it remains for now: claim "
            f"default/claim-1: {GPU.name}: nvmlDeviceGetMigMode failed with GPU_IS_LOST"
        )
    ]
    await service.collect()
    assert parts.hardware.made()
    parts.hardware.refuses = None
    await service.collect()
    parts.check_empty()


async def test_a_slow_gpu_holds_up_no_claim_of_another(parts: Parts) -> None:
    service = await parts.started()
    parts.put(1, PART)
    parts.put(2, partition_name(parted(1).name, SMALL))
    gate = parts.hardware.gates[GPU.name] = threading.Event()
    slow = asyncio.create_task(service.prepare(reference(1)))
    await asyncio.sleep(0)
    await service.prepare(reference(2))
    assert not slow.done()
    gate.set()
    await slow
    parts.check_whole(PART, partition_name(parted(1).name, SMALL))


def maker_threads() -> int:
    return sum(each.name.startswith("partitions") for each in threading.enumerate())


async def test_a_driver_that_hangs_keeps_one_thread_and_its_own_claims(parts: Parts) -> None:
    parts.patience = 0.1
    service = await parts.started()
    parts.put(1, PART)
    parts.put(2, BESIDE)
    gate = parts.hardware.gates[GPU.name] = threading.Event()
    with pytest.raises(PartitionPending, match=rf"{GPU.name}: the driver does not answer within 0.1 s; ostler tries"):
        await service.prepare(reference(1))
    before = maker_threads()
    for _ in range(10):
        for number in (1, 2):
            with pytest.raises(PartitionPending, match="the driver does not answer an earlier call"):
                await service.prepare(reference(number))
    with pytest.raises(PartitionPending, match="the driver does not answer an earlier call"):
        await service.unprepare(reference(1))
    # Those of tests before may end meanwhile.
    assert maker_threads() <= before
    parts.put(3, partition_name(parted(1).name, SMALL))
    await service.prepare(reference(3))
    await service.collect()
    gate.set()
    while [each.owner for each in parts.hardware.made() if each.uuid] != ["uid-3", "uid-1"]:
        await asyncio.sleep(0.01)
    await service.prepare(reference(2))
    for number in (1, 2, 3):
        await service.unprepare(reference(number))
    parts.check_empty()


async def test_a_sweep_that_hangs_keeps_no_claim_from_being_prepared(parts: Parts) -> None:
    parts.patience = 0.1
    service = await parts.started()
    parts.put(1, PART)
    await service.prepare(reference())
    (parts.node.root / "state" / "claims" / "uid-1.json").unlink()
    gate = parts.hardware.sweeping = threading.Event()
    service = await parts.started()
    assert parts.node.events.of("ClaimRecoveryIncomplete")
    parts.put(2, partition_name(parted(1).name, SMALL))
    await service.prepare(reference(2))
    gate.set()
    await service.unprepare(reference(2))
    while parts.hardware.made():
        await asyncio.sleep(0.01)


async def test_a_gpu_that_vanishes_while_its_partition_is_made_fails_the_claim_and_leaves_nothing(parts: Parts) -> None:
    service = await parts.started()
    parts.put(1, PART)
    gpus = parts.hardware.gpus

    def gone(step: str) -> None:
        if step == "make: instance":
            parts.hardware.gpus = gpus[1:]

    parts.hardware.reached = gone
    with pytest.raises(ClaimError, match="is not offered on this node"):
        await service.prepare(reference())
    parts.hardware.gpus = gpus
    parts.check_empty()


async def test_what_the_inventory_does_not_see_in_time_is_given_by_the_next_call(parts: Parts) -> None:
    service = await parts.started(options=parts.node.with_options(partition_wait=0.0))
    parts.put(1, PART)
    parts.blind = True
    with pytest.raises(PartitionPending, match=r"making 1g.10gb on gpu-0000-0b-00-0 is done"):
        await service.prepare(reference())
    parts.apply()
    await service.prepare(reference())
    parts.check_whole(PART)
    assert parts.observer.made == 1


async def test_what_a_look_at_the_gpu_does_not_show_is_looked_for_everywhere(parts: Parts) -> None:
    service = await parts.started()
    parts.put(1, PART)
    before, parts.blind = parts.view(), True
    preparing = asyncio.create_task(service.prepare(reference()))
    await eventually(lambda: parts.looked_at, "the GPU is looked at")
    parts.blind = False
    service.apply(before)
    await preparing
    assert parts.looked_at[:2] == [frozenset({GPU.uuid}), frozenset()]


async def test_looking_on_needs_a_partition_that_exists(parts: Parts) -> None:
    service = await parts.started()
    parts.put(1, PART, adminAccess=True)
    with pytest.raises(ClaimError, match="there is nothing to monitor"):
        await service.prepare(reference())
    assert parts.hardware.instances == []


async def test_an_instance_in_the_place_of_a_removed_one_is_not_given_for_it(parts: Parts) -> None:
    service = await parts.started()
    parts.put(1, PART)
    parts.put(2, PART)
    await service.prepare(reference(1))
    parts.blind = True
    await service.unprepare(reference(1))
    assert parts.view().device(PART) is not None
    parts.blind = False
    await service.prepare(reference(2))
    assert parts.hardware.instances == ["MIG-made-2"]
    parts.check_whole(PART)


async def test_what_was_removed_by_others_is_made_anew_when_the_kubelet_asks(parts: Parts) -> None:
    service = await parts.started()
    parts.put(1, PART)
    before = await service.prepare(reference())
    parts.hardware.remove(reference().uid)
    service = await parts.started()
    assert await service.prepare(reference()) == before
    parts.check_whole(PART)


async def test_the_plugin_door_and_partitions_exclude_each_other(parts: Parts) -> None:
    service = await parts.started()
    parts.put(1, PART)
    await service.prepare(reference())
    static = instance(GPU, SMALL)
    for device, within, slices in ((GPU.name, (), None), (static.name, (GPU.name,), (0, 1))):
        hold = Hold(device, Door.PLUGIN, "team/pod", 0.0, owner=f"plugin/{device}", within=within, slices=slices)
        with pytest.raises(HeldError):
            service.ledger.take(hold.owner, [hold])
    beside = Hold("mig-x", Door.PLUGIN, "team/pod", 0.0, owner="plugin/mig-x", within=(GPU.name,), slices=(1, 1))
    service.ledger.take(beside.owner, [beside])


async def _prepared_and_released(service: ClaimService) -> None:
    await service.prepare(reference())
    await service.unprepare(reference())


MAKING = ("make: intended", "make: mode", "make: instance", "make: recorded")
REMOVING = ("remove: instance", "remove: forgotten")
STEPS = [step for step in ClaimStep if step not in (ClaimStep.RELEASED, ClaimStep.SHARED, ClaimStep.UNSHARED)]


def killed_at(parts: Parts, step: ClaimStep | str) -> dict[str, Any]:
    if isinstance(step, ClaimStep):
        return {"steps": DieAt(step)}

    def reached(name: str) -> None:
        if name == step:
            raise Killed(name)

    parts.hardware.reached = reached
    return {}


@pytest.mark.parametrize("after", ["prepared", "released", "forgotten"])
@pytest.mark.parametrize("step", [*STEPS, *MAKING, *REMOVING])
async def test_killed_between_any_two_steps_no_partition_is_lost_or_left(
    parts: Parts, step: ClaimStep | str, after: str
) -> None:
    parts.put(1, PART)
    service = await parts.started(**killed_at(parts, step))
    with pytest.raises(Killed):
        await _prepared_and_released(service)
    parts.hardware.reached = lambda _: None
    service = await parts.started()
    if after == "prepared":
        await service.prepare(reference())
        parts.check_whole(PART)
    elif after == "forgotten":
        parts.node.reader.drop(1)
        parts.node.kubelet_knows()
        await service.collect()
        parts.check_empty()
    await service.unprepare(reference())
    parts.check_empty()
    parts.put(2, BIG)
    await service.prepare(reference(2))
    parts.check_whole(BIG)


async def test_a_claims_record_is_written_once_for_each_state(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[RecordState] = []
    write = RecordStore.write

    def noted(store: RecordStore, record: ClaimRecord) -> None:
        written.append(record.state)
        write(store, record)

    monkeypatch.setattr(RecordStore, "write", noted)
    parts.put(1, PART)
    service = await parts.started()
    await service.prepare(reference())
    assert written == [RecordState.STARTED, RecordState.COMPLETED]


@pytest.mark.parametrize("step", [ClaimStep.STARTED, ClaimStep.MADE, ClaimStep.REMOVED, *MAKING, *REMOVING])
def test_a_process_that_is_really_killed_leaves_what_the_next_one_understands(
    tmp_path: Path, dying: DyingProcesses, step: ClaimStep | str
) -> None:
    name = step.name if isinstance(step, ClaimStep) else step
    ended = dying.run(die, str(tmp_path / "node"), name)
    assert ended.code == EXIT, ended.written
    asyncio.run(_next(tmp_path / "node"))


def die(root: str, step: str) -> None:
    """What the killed process does: prepare and release."""

    class Exit:
        def reached(self, reached: ClaimStep, uid: str) -> None:
            if reached.name == step:
                os._exit(EXIT)

    async def main() -> None:
        parts = Parts(Path(root))
        parts.hardware.reached = lambda name: os._exit(EXIT) if name == step else None
        parts.put(1, PART)
        await _prepared_and_released(await parts.started(steps=Exit()))

    asyncio.run(main())


async def _next(root: Path) -> None:
    (root / "kubelet").rmdir()
    parts = Parts(root)
    parts.put(1, PART)
    parts.put(2, BIG)
    service = await parts.started()
    await service.prepare(reference())
    parts.check_whole(PART)
    await service.unprepare(reference())
    parts.check_empty()
    await service.prepare(reference(2))
    parts.check_whole(BIG)


@pytest.mark.parametrize("starts", [True, False])
async def test_a_partition_that_is_made_for_a_claim_can_be_shared_by_mps(
    parts: Parts, tmp_path: Path, starts: bool
) -> None:
    sharer = Sharer(tmp_path / "driver")
    (tmp_path / "driver" / "state").mkdir()
    if not starts:
        sharer.driver.misbehave("refuse-start")
    sharing = ClaimSharing(sharer.tools, parts.node.root / "state", parts.node.boot)
    service = await parts.started(sharing=sharing, options=parts.node.with_options(peers=(Peer.NVIDIA,)))
    by_mps: JsonObject = {**NVIDIA, "kind": "MigDeviceConfig", "sharing": {"strategy": "MPS"}}
    parts.node.reader.put(claim(1, result(PART), config=(opaque(by_mps, driver=str(Peer.NVIDIA)),)))
    async with background(sharing.run()):
        if starts:
            await service.prepare(reference())
            (uuid,) = parts.hardware.instances
            assert f"devices {uuid}" in sharer.driver.log("claim-uid-1")
            await service.unprepare(reference())
        else:
            with pytest.raises(SharingNotDone, match="MPS does not work"):
                await service.prepare(reference())
        assert sharer.pids == set()
        parts.check_empty()


async def test_a_start_removes_what_was_made_for_claims_that_are_not_on_record(parts: Parts) -> None:
    parts.hardware.make(GPU, SMALL, "somebody")
    parts.hardware.put(GPU, OTHER, "MIG-static")
    await parts.started()
    assert parts.hardware.instances == ["MIG-static"]
    assert parts.hardware.made() == ()


async def test_what_is_in_use_at_a_start_is_removed_when_it_is_not_any_more(parts: Parts) -> None:
    left = parts.hardware.make(GPU, SMALL, "somebody")
    parts.hardware.busy = {left.uuid}
    service = await parts.started()
    assert parts.node.events.reasons == ["ClaimRecoveryIncomplete"]
    await service.collect()
    assert parts.hardware.instances == [left.uuid]
    parts.hardware.busy = set()
    await service.collect()
    parts.check_empty()


async def test_a_record_says_what_was_made_and_is_read_as_it_was_written(parts: Parts) -> None:
    service = await parts.started()
    parts.put(1, PART)
    await service.prepare(reference())
    (before,) = service.records()
    service = await parts.started()
    (after,) = service.records()
    (device,) = after.devices
    assert after == replace(before, devices=after.devices)
    assert device.slices == (0, 1)
    assert device.partition == replace(SMALL, capacity=())
    assert device.within == (GPU.name,)


async def test_the_view_shows_whole_gpus_and_partitions_of_the_node_throughout(parts: Parts) -> None:
    service = await parts.started()
    names = {each.device.name for each in parts.view().devices}
    parts.put(1, PART)
    await service.prepare(reference())
    assert {each.device.name for each in parts.view().devices} == names
    kinds = [each.device.kind for each in parts.view().devices]
    assert kinds.count(DeviceKind.GPU) == 2


async def test_two_hundred_kills_at_any_step_lose_and_leave_no_partition(parts: Parts) -> None:
    dice = random.Random(21)
    shapes = [(partition_name(GPU.name, shape), shape) for shape in H100]
    for number in range(200):
        name, _ = dice.choice(shapes)
        step = dice.choice([*STEPS, *MAKING, *REMOVING])
        parts.put(1, name)
        with contextlib.suppress(Killed):
            await _prepared_and_released(await parts.started(**killed_at(parts, step)))
        parts.hardware.reached = lambda _: None
        service = await parts.started()
        if dice.random() < 0.5:
            await service.prepare(reference())
            parts.check_whole(name)
        await service.unprepare(reference())
        assert (parts.hardware.instances, parts.hardware.made()) == ([], ()), (number, name, step)
    parts.check_empty()
