"""Claims with a share of a GPU by MPS: the limits of their containers, and what cannot be given."""

from __future__ import annotations

from typing import Any

import pytest

from driver.claims.model import ClaimError, SharingNotDone
from kube.bodies import Json
from node.inventory.model import Capacity
from tests.making.claim_service import GPU0, GPU1, claim, offered, reference, result
from tests.making.claim_sharing import GIB, SHARED_RULE, Sharer
from tests.making.devices import gpu

SHARED = tuple(offered(gpu(number, capacity=(Capacity("memory", 80 * GIB),)), rule=SHARED_RULE) for number in range(2))


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
