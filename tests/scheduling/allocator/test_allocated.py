"""What allocated claims hold."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.allocator.allocated import AllocatedState, allocation_results
from scheduling.allocator.reading import InvalidObject
from scheduling.allocator.slices import DeviceID, SharedDeviceID


def held(device: str, **fields: Any) -> dict[str, Any]:
    return {"request": "r", "driver": "d", "pool": "p", "device": device, **fields}


def claim(*results: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "c", "namespace": "n"}, "status": {"allocation": {"devices": {"results": [*results]}}}}


GPU = DeviceID("d", "p", "gpu-0")


def test_device_of_a_result_is_held_whole() -> None:
    state = AllocatedState.of_claims([claim(held("gpu-0"), held("gpu-1"))])
    assert state.devices == {GPU, DeviceID("d", "p", "gpu-1")}
    assert not state.shared
    assert not state.capacity


def test_admin_access_holds_nothing() -> None:
    state = AllocatedState.of_claims([claim(held("gpu-0", adminAccess=True), held("gpu-1", adminAccess=False))])
    assert state.devices == {DeviceID("d", "p", "gpu-1")}


def test_shares_of_a_device_add_up() -> None:
    one = held("gpu-0", shareID="a", consumedCapacity={"mem": "1Gi", "cores": "0"})
    other = held("gpu-0", shareID="b", consumedCapacity={"mem": "512Mi"})
    state = AllocatedState.of_claims([claim(one), claim(other)])
    assert state.devices == frozenset()
    assert state.shared == {SharedDeviceID(GPU, "a"), SharedDeviceID(GPU, "b")}
    assert state.capacity == {GPU: {"mem": 1536 * 2**20 * 10**9, "cores": 0}}


def test_device_is_in_use_in_part_by_a_share_or_by_consumed_capacity() -> None:
    by_share = AllocatedState(shared=frozenset({SharedDeviceID(GPU, "a")}))
    by_capacity = AllocatedState(capacity={GPU: {"mem": 0}})
    whole = AllocatedState(devices=frozenset({GPU}))
    assert by_share.partly == by_capacity.partly == {GPU}
    assert not whole.partly
    assert by_share.anyhow == by_capacity.anyhow == whole.anyhow == {GPU}


@pytest.mark.parametrize("status", [None, {}, {"allocation": None}, {"allocation": {"devices": {"results": None}}}])
def test_claim_without_results_holds_nothing(status: object) -> None:
    assert list(allocation_results({"metadata": {"name": "c"}, "status": status})) == []


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (held("gpu-0", adminAccess="no"), "results[0].adminAccess: 'no' is not true or false"),
        (held("gpu-0", shareID=5), "results[0].shareID: 5 is not a string"),
        (held("gpu-0", driver=None, pool=["p"]), "results[0].pool: ['p'] is not a string"),
        (held("gpu-0", shareID="a", consumedCapacity={"mem": "x"}), 'results[0].consumedCapacity[mem]: "x" is no'),
        (held("gpu-0", shareID="a", consumedCapacity=["mem"]), "results[0].consumedCapacity: ['mem'] is not an object"),
    ],
)
def test_broken_result_is_named(result: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        AllocatedState.of_claims([claim(result)])
    assert str(caught.value).startswith(f"ResourceClaim n/c: status.allocation.devices.{message}")
