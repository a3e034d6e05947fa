"""What cannot be prepared is refused in words, and nothing is touched."""

from __future__ import annotations

import pytest

from driver.claims.contracts import ClaimObserver
from driver.claims.model import ClaimError, ClaimReference, SharingNotDone, Unavailable
from driver.devices.partitions import partitioned
from driver.devices.view import door_offer, view_of
from driver.names import Peer
from node.health.state import HealthState
from node.inventory.model import Snapshot
from node.ledger.offer_context import OfferContext
from node.offer import Cause
from node.rules import Doors, Rule
from tests.making.claim_service import GPU0, GPU1, ClaimNode, claim, offered, opaque, reference, result
from tests.making.devices import gpu, nic
from tests.making.offered_devices import ill

REPLACED = (
    "claim default/claim-1 was replaced by another of the same name: its uid is other, the kubelet asked for uid-1"
)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (None, "claim default/claim-1 does not exist"),
        ({"metadata": {"uid": "other"}}, REPLACED),
        ({"metadata": {"uid": "uid-1"}}, "claim default/claim-1 is not allocated"),
        (claim(1), r"status.allocation.devices.results has no device of driver ostler.dev"),
        (claim(1, result(GPU0), users=()), "is not reserved for any pod: status.reservedFor is empty"),
        (claim(1, result("gpu-9")), "request gpu: device gpu-9 is not offered on this node"),
        (
            claim(1, result(GPU0, pool="n2")),
            f"request gpu: device {GPU0} belongs to pool n2, but this node's pool is node-1",
        ),
    ],
)
async def test_a_claim_that_cannot_be_prepared_says_why(
    node: ClaimNode, body: dict[str, object] | None, text: str
) -> None:
    if body is not None:
        node.reader.claims["default", "claim-1"] = body  # type: ignore[assignment]
    service = await node.started()
    with pytest.raises(ClaimError, match=text):
        await service.prepare(reference())
    assert service.records() == ()
    assert not (node.root / "cdi").exists()
    [status] = service.statuses()
    assert (status.state, status.claim) == ("refused", reference())


async def test_an_unhealthy_device_is_refused_with_its_reason(node: ClaimNode) -> None:
    node.devices = (offered(gpu(0, health=ill("XID 79")), healthy=False, reason="XID 79", cause=Cause.HEALTH),)
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    with pytest.raises(ClaimError, match=f"request gpu: device {GPU0} cannot be allocated to a claim: XID 79"):
        await service.prepare(reference())


@pytest.mark.parametrize(
    "fields",
    [
        {"adminAccess": True},
        {"tolerations": [{"operator": "Exists"}]},
        {"tolerations": [{"key": "ostler.dev/health", "operator": "Exists", "effect": "NoSchedule"}]},
        {"tolerations": [{"key": "ostler.dev/health", "value": "unhealthy"}]},
        {"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]},
    ],
)
async def test_who_puts_up_with_an_unhealthy_device_gets_it(node: ClaimNode, fields: dict[str, object]) -> None:
    health = ill("XID 79", HealthState.UNHEALTHY)
    node.devices = (offered(gpu(0, health=health), healthy=False, reason="XID 79", cause=Cause.HEALTH),)
    node.reader.put(claim(1, result(GPU0, **fields)))  # type: ignore[arg-type]
    service = await node.started()
    assert len(await service.prepare(reference())) == 1


async def test_an_adapter_without_a_link_is_given_to_who_puts_up_with_it(node: ClaimNode) -> None:
    device = gpu(0)
    node.devices = (offered(device, healthy=False, reason="the link is down", cause=Cause.LINK_DOWN),)
    node.reader.put(claim(1, result(GPU0, tolerations=[{"key": "ostler.dev/link-down", "operator": "Exists"}])))
    node.reader.put(claim(2, result(GPU0)))
    service = await node.started()
    with pytest.raises(ClaimError, match="the link is down"):
        await service.prepare(reference(2))
    assert len(await service.prepare(reference())) == 1


async def test_a_device_that_is_gone_is_given_to_nobody(node: ClaimNode) -> None:
    node.devices = (offered(gpu(0), healthy=False, reason="it fell off the bus", cause=Cause.GONE),)
    node.reader.put(claim(1, result(GPU0, tolerations=[{"operator": "Exists"}])))
    service = await node.started()
    with pytest.raises(ClaimError, match="it fell off the bus"):
        await service.prepare(reference())


async def test_a_claim_keeps_a_device_that_fell_ill_after_it_was_given(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    answer = await service.prepare(reference())
    node.devices = (offered(gpu(0), healthy=False, reason="XID 79", cause=Cause.HEALTH),)
    service.apply(node.view)
    assert await service.prepare(reference()) == answer


async def test_a_claim_whose_device_nodes_vanished_is_told_so(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    await service.prepare(reference())
    reason = "these device nodes are missing: /dev/nvidia1"
    node.devices = (offered(gpu(0), healthy=False, reason=reason, cause=Cause.UNFIT),)
    service.apply(node.view)
    with pytest.raises(ClaimError, match=f"request gpu: device {GPU0} cannot be allocated to a claim: {reason}"):
        await service.prepare(reference())
    assert len(service.records()) == 1, "the claim keeps the device until it is released"


async def test_a_claim_keeps_a_device_that_the_rules_do_not_offer_any_more(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    answer = await service.prepare(reference())
    node.devices = ()
    service.apply(node.view)
    assert await service.prepare(reference()) == answer


async def test_a_claim_with_a_device_that_is_not_offered_gets_no_other_one_with_it(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    await service.prepare(reference())
    node.devices = (offered(gpu(1)),)
    service.apply(node.view)
    node.reader.put(claim(1, result(GPU0), result(GPU1)))
    with pytest.raises(ClaimError, match=rf"device {GPU0} is not offered on this node"):
        await service.prepare(reference())
    assert set(service.ledger.by_device()) == {GPU0}


async def test_after_a_reboot_nobody_keeps_a_device_that_is_not_offered(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    await (await node.started()).prepare(reference())
    node.boot, node.devices = "boot-2", ()
    service = await node.started()
    with pytest.raises(ClaimError, match=rf"device {GPU0} is not offered on this node"):
        await service.prepare(reference())


async def test_wrong_parameters_are_refused_by_field_and_change_nothing(node: ClaimNode) -> None:
    bad = opaque({"apiVersion": "ostler.dev/v1alpha1", "kind": "GpuConfig", "gdrcpy": True})
    node.reader.put(claim(1, result(GPU0), config=(bad,)))
    service = await node.started()
    with pytest.raises(ClaimError, match=r"status.allocation.devices.config\[0\].opaque.parameters.gdrcpy"):
        await service.prepare(reference())
    assert not (node.root / "state").exists()


MPS = opaque(
    {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": {"strategy": "MPS"}},
    driver=Peer.NVIDIA,
)


async def test_sharing_that_this_node_cannot_do_is_refused_and_changes_nothing(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0), config=(MPS,)))
    service = await node.started(options=node.with_options(peers=(Peer.NVIDIA,)))
    with pytest.raises(SharingNotDone, match="MPS cannot be started: this node has no NVIDIA driver"):
        await service.prepare(reference())
    assert [*(node.root / "state").rglob("*.json")] == []
    assert service.ledger.all == ()
    [status] = service.statuses()
    assert "leave sharing out of its parameters" in status.problem


async def test_parameters_for_a_driver_that_is_not_published_as_are_that_drivers(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0), config=(MPS,)))
    service = await node.started(options=node.with_options(peers=(Peer.DRANET,)))
    assert len(await service.prepare(reference())) == 1


async def test_a_claim_that_was_prepared_before_its_parameters_were_looked_at_keeps_what_it_has(
    node: ClaimNode,
) -> None:
    node.reader.put(claim(1, result(GPU0), config=(MPS,)))
    answer = await (await node.started()).prepare(reference())
    service = await node.started(options=node.with_options(peers=(Peer.NVIDIA,)))
    assert await service.prepare(reference()) == answer


@pytest.mark.parametrize("uid", ["", "../etc/passwd", "a/b", ".hidden", "a" * 200])
async def test_a_uid_that_is_none_is_refused(node: ClaimNode, uid: str) -> None:
    service = await node.started()
    with pytest.raises(ClaimError, match="use at most 128 letters and digits"):
        await service.prepare(ClaimReference("default", "claim-1", uid))
    with pytest.raises(ClaimError, match="use at most 128 letters and digits"):
        await service.unprepare(ClaimReference("default", "claim-1", uid))


async def test_the_last_word_on_a_claim_is_remembered_until_it_is_released(node: ClaimNode) -> None:
    service = await node.started()
    with pytest.raises(ClaimError):
        await service.prepare(reference())
    [status] = service.statuses()
    assert (status.state, status.problem) == ("refused", "claim default/claim-1 does not exist")
    await service.unprepare(reference())
    assert service.statuses() == ()
    for number in range(300):
        with pytest.raises(ClaimError):
            await service.prepare(reference(number))
    assert len(service.statuses()) == 256


async def test_outcomes_are_counted(node: ClaimNode) -> None:
    counted: list[tuple[str, str]] = []

    class Counter(ClaimObserver):
        def prepared(self, outcome: str, seconds: float) -> None:
            assert seconds >= 0
            counted.append(("prepare", outcome))

        def unprepared(self, outcome: str, seconds: float) -> None:
            counted.append(("unprepare", outcome))

        def collected(self, count: int) -> None:
            counted.append(("collect", str(count)))

        def damaged(self) -> None:
            counted.append(("damaged", ""))

    node.reader.put(claim(1, result(GPU0)))
    service = await node.started(observer=Counter())
    await service.prepare(reference())
    with pytest.raises(ClaimError):
        await service.prepare(reference(2))
    node.reader.fault = "down"
    with pytest.raises(Unavailable):
        await service.prepare(reference(3))
    await service.unprepare(reference())
    node.reader.fault = ""
    await service.prepare(reference())
    node.reader.drop(1)
    node.kubelet_knows()
    await service.collect()
    outcomes = ["ok", "refused", "unavailable"]
    assert counted == [
        *(("prepare", outcome) for outcome in outcomes),
        ("unprepare", "ok"),
        ("prepare", "ok"),
        ("collect", "1"),
    ]


async def test_a_nic_whose_interface_cannot_move_is_refused_with_the_reason(node: ClaimNode) -> None:
    rules = (Rule("example.com/nic", door=Doors.DRA, moves_interface=True),)
    parted = partitioned(Snapshot(devices=(nic(1),)), rules)
    stuck = OfferContext(unmovable="/var/run/nri/nri.sock does not exist; 'ostler doctor' says how to switch NRI on")
    node.reader.put(claim(1, result(nic(1).name)))
    service = await node.started()
    service.apply(view_of(parted, door_offer(parted, rules, stuck), stuck, rules))
    with pytest.raises(ClaimError) as refused:
        await service.prepare(reference())
    assert str(refused.value).endswith(
        f"device {nic(1).name} is not offered on this node: its network interface cannot move into pods: "
        "/var/run/nri/nri.sock does not exist; 'ostler doctor' says how to switch NRI on"
    )
