"""Claims that ask for NCCL's variables: what they name, where they stand, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from driver.claims.model import ClaimError
from driver.devices.view import DraDevice
from driver.parameters.decoding import API_VERSION
from kube.bodies import Json, JsonObject
from node.edits.options import EditOptions
from node.inventory.model import Device
from node.rules import Doors, Rule
from tests.making.claim_service import ClaimNode, claim, opaque, reference, result
from tests.making.devices import nic, rdma

STAYING = Rule("example.com/nic", door=Doors.DRA, edits=EditOptions(rdma=True))
MOVING = Rule("example.com/nic", door=Doors.DRA, edits=EditOptions(rdma=True), moves_interface=True)


def parameters(*requests: str, **fields: Json) -> JsonObject:
    return opaque({"apiVersion": API_VERSION, "kind": "NicConfig", **fields}, *requests)


async def variables(
    node: ClaimNode,
    given: Sequence[tuple[str, Device]],
    *configs: JsonObject,
    rule: Rule = STAYING,
) -> list[dict[str, str]]:
    """NCCL's variables by each device of a claim, which are (request, device)."""
    node.devices = tuple(DraDevice(device, rule, healthy=True) for _, device in given)
    node.reader.put(claim(1, *(result(device.name, request) for request, device in given), config=configs))
    await (await node.started()).prepare(reference())
    spec: Any = node.spec(1)
    found = []
    for entry in spec["devices"]:
        pairs = [text.split("=", 1) for text in entry["containerEdits"].get("env", [])]
        found.append({name: content for name, content in pairs if name.startswith("NCCL")})
    return found


async def test_only_a_claim_that_asks_gets_variables(node: ClaimNode) -> None:
    assert await variables(node, [("nic", rdma(1))]) == [{}]


async def test_a_claim_may_take_back_what_its_class_asks(node: ClaimNode) -> None:
    of_class = {**parameters(nccl=True), "source": "FromClass"}
    assert await variables(node, [("nic", rdma(1))], of_class, parameters(nccl=False)) == [{}]


async def test_the_nics_of_all_requests_are_named_once_for_each_request(node: ClaimNode) -> None:
    given = [("a", rdma(1)), ("a", rdma(2)), ("b", rdma(3))]
    named = {"NCCL_IB_HCA": "=mlx5_1:1,mlx5_2:1,mlx5_3:1"}
    assert await variables(node, given, parameters(nccl=True)) == [named, {}, named]


async def test_nics_of_other_requests_are_left_out(node: ClaimNode) -> None:
    given = [("a", rdma(1)), ("b", rdma(2))]
    assert await variables(node, given, parameters("b", nccl=True)) == [{}, {"NCCL_IB_HCA": "=mlx5_2:1"}]


async def test_the_second_port_of_an_adapter_is_port_two(node: ClaimNode) -> None:
    assert await variables(node, [("nic", rdma(1, port=1))], parameters(nccl=True)) == [{"NCCL_IB_HCA": "=mlx5_1:2"}]


async def test_interfaces_have_their_names_in_the_pod(node: ClaimNode) -> None:
    given = [("a", rdma(1, ifName="eth1", driver="mlx5_core")), ("b", rdma(2, ifName="eth2", driver="mlx5_core"))]
    configs = parameters(nccl=True), parameters("a", interface={"name": "net1", "addresses": ["10.0.0.1/24"]})
    named = {"NCCL_IB_HCA": "=mlx5_1:1,mlx5_2:1", "NCCL_SOCKET_IFNAME": "=net1,eth2"}
    assert await variables(node, given, *configs, rule=MOVING) == [named, named]


async def test_an_interface_without_addresses_is_no_way_between_pods(node: ClaimNode) -> None:
    given = [("nic", rdma(1, ifName="eth1", driver="mlx5_core"))]
    asked = parameters("nic", nccl=True, interface={"addresses": []})
    assert await variables(node, given, asked, rule=MOVING) == [{"NCCL_IB_HCA": "=mlx5_1:1"}]


async def test_a_nic_without_rdma_is_named_by_its_interface(node: ClaimNode) -> None:
    given = [("nic", nic(1, ifName="eth1", driver="mlx5_core"))]
    moving = Rule("example.com/nic", door=Doors.DRA, moves_interface=True)
    assert await variables(node, given, parameters(nccl=True), rule=moving) == [{"NCCL_SOCKET_IFNAME": "=eth1"}]


@pytest.mark.parametrize(
    ("device", "fix"),
    [(rdma(1), "set rdma: true as well"), (nic(1, ifName="eth1"), "select devices with RDMA")],
    ids=["rdma", "plain"],
)
async def test_a_nic_that_nccl_cannot_use_is_refused(node: ClaimNode, device: Device, fix: str) -> None:
    with pytest.raises(ClaimError) as raised:
        await variables(
            node, [("nic", device)], parameters("nic", nccl=True), rule=Rule("example.com/nic", door=Doors.DRA)
        )
    assert str(raised.value) == (
        "status.allocation.devices.config[0].opaque.parameters.nccl: nic-0000-01-00-0: the container gets neither its "
        f"RDMA device nor its network interface; {fix}, set moveInterface: true for its resource in ostler's "
        "configuration, or leave it out"
    )


async def test_a_value_that_is_no_truth_is_refused(node: ClaimNode) -> None:
    with pytest.raises(ClaimError, match=r'nccl: "yes" is neither true nor false; write true or false'):
        await variables(node, [("nic", rdma(1))], parameters(nccl="yes"))
