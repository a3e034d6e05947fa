"""Partitions of GPUs that are made for a claim when it is prepared, and removed when it is released."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.claims.model import ClaimError, PartitionPending, SharingNotDone
from driver.claims.sharing import ClaimSharing
from driver.names import Peer
from kube.bodies import JsonObject
from node.inventory.model import DeviceKind
from node.ledger.holds import HeldError, Hold
from node.rules import Door
from tests.making.claim_partitions import BESIDE, BIG, GPU, LARGE, PART, SMALL, Parts
from tests.making.claim_service import claim, opaque, reference, result
from tests.making.claim_sharing import NVIDIA, Sharer
from tests.making.partitions import instance
from tests.waiting import background


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


async def test_the_view_shows_whole_gpus_and_partitions_of_the_node_throughout(parts: Parts) -> None:
    service = await parts.started()
    names = {each.device.name for each in parts.view().devices}
    parts.put(1, PART)
    await service.prepare(reference())
    assert {each.device.name for each in parts.view().devices} == names
    kinds = [each.device.kind for each in parts.view().devices]
    assert kinds.count(DeviceKind.GPU) == 2
