from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from driver.claims.errors import ClaimError, Unavailable
from driver.claims.model import ClaimReference, ClaimState, PreparedDevice
from driver.claims.observer import NoObserver
from node.files import read_record
from node.health.state import HealthState
from node.inventory.model import Host
from node.offer import Cause
from node.values import replace
from tests.claims.making import DRIVER, GPU0, GPU1, GPU2, POOL, Node, claim, offered, opaque, reference, result
from tests.edits.making import gpu
from tests.offer.making import ill, mig
from tests.waiting import eventually


async def test_a_claim_is_answered_with_its_devices_and_described_by_cdi(node: Node) -> None:
    node.reader.put(claim(1, result(GPU0), result(GPU1, "other/fast")))
    service = await node.started()
    answer = await service.prepare(reference())
    assert answer == (
        PreparedDevice(("gpu",), POOL, GPU0, (f"{DRIVER}/claim=uid-1-{GPU0}",)),
        PreparedDevice(("other",), POOL, GPU1, (f"{DRIVER}/claim=uid-1-{GPU1}",)),
    )
    spec = node.spec(1)
    assert spec is not None
    assert spec["kind"] == f"{DRIVER}/claim"
    assert [device["name"] for device in spec["devices"]] == [f"uid-1-{GPU0}", f"uid-1-{GPU1}"]
    paths = [entry["path"] for entry in spec["devices"][0]["containerEdits"]["deviceNodes"]]
    assert "/dev/nvidia1" in paths
    assert "/dev/nvidia2" not in paths


async def test_record_says_completed_and_the_ledger_has_the_devices(node: Node) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started(clock=lambda: 1234.5)
    await service.prepare(reference())
    [record] = service.records()
    assert (record.state, record.boot, record.since, record.users) == (
        ClaimState.COMPLETED,
        "boot-1",
        1234.5,
        ("pod-1",),
    )
    hold = service.ledger.by_device()[GPU0]
    assert (hold.holder, hold.owner, hold.since) == ("default/claim-1", "uid-1", 1234.5)
    assert node.changes > 0
    stored = read_record(node.record_path(1), "claim/v1")
    assert isinstance(stored, dict)
    assert stored["state"] == "completed"
    assert node.record_path(1).stat().st_mode & 0o777 == 0o600


async def test_the_same_question_gets_the_same_answer_and_writes_nothing(node: Node) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    first = await service.prepare(reference())
    before = node.record_path(1).stat().st_mtime_ns
    assert await service.prepare(reference()) == first
    assert node.record_path(1).stat().st_mtime_ns == before


async def test_a_lost_or_spoilt_cdi_file_is_written_anew_at_the_next_question(node: Node) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    answer = await service.prepare(reference())
    before = node.spec(1)
    path = next((node.root / "cdi").iterdir())
    path.unlink()
    assert await service.prepare(reference()) == answer
    assert node.spec(1) == before
    path.write_text("{}")
    await service.prepare(reference())
    assert node.spec(1) == before


async def test_a_prepared_claim_is_answered_from_its_record_while_the_api_server_is_silent(node: Node) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    answer = await service.prepare(reference())
    node.reader.fault = "the API server does not answer"
    assert await service.prepare(reference()) == answer
    with pytest.raises(Unavailable, match="the API server does not answer"):
        await service.prepare(reference(2))


async def test_what_changed_on_the_host_is_in_the_cdi_file_of_the_next_answer(node: Node) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    answer = await service.prepare(reference())
    device = gpu(0)
    node.devices = (offered(replace(device, nodes=device.nodes[:1])),)
    service.apply(node.view)
    assert await service.prepare(reference()) == answer
    spec = node.spec(1)
    assert spec is not None
    assert [entry["path"] for entry in spec["devices"][0]["containerEdits"]["deviceNodes"]] == ["/dev/nvidia1"]
    [record] = service.records()
    assert json.loads(record.spec) == spec


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (None, r"claim default/claim-1 does not exist \(any more\)"),
        ({"metadata": {"uid": "other"}}, "claim default/claim-1 got replaced: its uid is other, asked was for uid-1"),
        ({"metadata": {"uid": "uid-1"}}, "claim default/claim-1 is not allocated"),
        (claim(1), r"status.allocation.devices.results has no device of driver ostler.dev"),
        (claim(1, result(GPU0), users=()), "reserved for nobody, so no pod may use it: status.reservedFor is empty"),
        (claim(1, result("gpu-9")), r"request gpu: device gpu-9 is not offered on this node \(any more\)"),
        (claim(1, result(GPU0, pool="n2")), f"request gpu: device {GPU0} is of pool n2, this node's pool is node-1"),
    ],
)
async def test_a_claim_that_cannot_be_prepared_says_why(node: Node, body: dict[str, object] | None, text: str) -> None:
    if body is not None:
        node.reader.claims["default", "claim-1"] = body  # type: ignore[assignment]
    service = await node.started()
    with pytest.raises(ClaimError, match=text):
        await service.prepare(reference())
    assert service.records() == ()
    assert not (node.root / "cdi").exists()
    [status] = service.statuses()
    assert (status.state, status.claim) == ("refused", reference())


async def test_an_unhealthy_device_is_refused_with_its_reason(node: Node) -> None:
    node.devices = (offered(gpu(0, health=ill("XID 79")), healthy=False, reason="XID 79", cause=Cause.HEALTH),)
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    with pytest.raises(ClaimError, match=f"request gpu: device {GPU0} may not be given out: XID 79"):
        await service.prepare(reference())


@pytest.mark.parametrize(
    "fields",
    [
        {"adminAccess": True},
        {"tolerations": [{"operator": "Exists"}]},
        {"tolerations": [{"key": "ostler.dev/health", "operator": "Exists", "effect": "NoSchedule"}]},
        {"tolerations": [{"key": "ostler.dev/health", "value": "unhealthy"}]},
    ],
)
async def test_who_puts_up_with_an_unhealthy_device_gets_it(node: Node, fields: dict[str, object]) -> None:
    health = ill("XID 79", HealthState.UNHEALTHY)
    node.devices = (offered(gpu(0, health=health), healthy=False, reason="XID 79", cause=Cause.HEALTH),)
    node.reader.put(claim(1, result(GPU0, **fields)))  # type: ignore[arg-type]
    service = await node.started()
    assert len(await service.prepare(reference())) == 1


async def test_a_device_that_is_gone_is_given_to_nobody(node: Node) -> None:
    node.devices = (offered(gpu(0), healthy=False, reason="it fell off the bus", cause=Cause.GONE),)
    node.reader.put(claim(1, result(GPU0, tolerations=[{"operator": "Exists"}])))
    service = await node.started()
    with pytest.raises(ClaimError, match="it fell off the bus"):
        await service.prepare(reference())


async def test_a_claim_keeps_a_device_that_fell_ill_after_it_was_given(node: Node) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    answer = await service.prepare(reference())
    node.devices = (offered(gpu(0), healthy=False, reason="XID 79", cause=Cause.HEALTH),)
    service.apply(node.view)
    assert await service.prepare(reference()) == answer


async def test_a_claim_whose_device_nodes_vanished_is_told_so(node: Node) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    await service.prepare(reference())
    reason = "these device nodes are missing: /dev/nvidia1"
    node.devices = (offered(gpu(0), healthy=False, reason=reason, cause=Cause.UNFIT),)
    service.apply(node.view)
    with pytest.raises(ClaimError, match=f"request gpu: device {GPU0} may not be given out: {reason}"):
        await service.prepare(reference())
    assert len(service.records()) == 1, "the claim keeps the device until it is released"


async def test_a_claim_keeps_a_device_that_the_rules_do_not_offer_any_more(node: Node) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    answer = await service.prepare(reference())
    node.devices = ()
    service.apply(node.view)
    assert await service.prepare(reference()) == answer


async def test_wrong_parameters_are_refused_by_field_and_change_nothing(node: Node) -> None:
    bad = opaque({"apiVersion": "ostler.dev/v1alpha1", "kind": "GpuConfig", "gdrcpy": True})
    node.reader.put(claim(1, result(GPU0), config=(bad,)))
    service = await node.started()
    with pytest.raises(ClaimError, match=r"status.allocation.devices.config\[0\].opaque.parameters.gdrcpy"):
        await service.prepare(reference())
    assert not (node.root / "state").exists()


@pytest.mark.parametrize("uid", ["", "../etc/passwd", "a/b", ".hidden", "a" * 200])
async def test_a_uid_that_is_none_is_refused(node: Node, uid: str) -> None:
    service = await node.started()
    with pytest.raises(ClaimError, match="use letters and digits"):
        await service.prepare(ClaimReference("default", "claim-1", uid))
    with pytest.raises(ClaimError, match="use letters and digits"):
        await service.unprepare(ClaimReference("default", "claim-1", uid))


async def test_a_device_of_another_claim_is_refused_with_its_holder(node: Node) -> None:
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU1), result(GPU0)))
    service = await node.started()
    await service.prepare(reference(1))
    with pytest.raises(Unavailable, match=rf"device {GPU0} is held through the dra door by default/claim-1 \(uid-1\)"):
        await service.prepare(reference(2))
    assert [record.claim.uid for record in service.records()] == ["uid-1"]
    assert GPU1 not in service.ledger.by_device()
    assert node.spec(2) is None


async def test_a_claim_waits_for_a_device_that_is_about_to_be_released(node: Node) -> None:
    node.with_options(device_wait=30.0)
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)))
    service = await node.started()
    await service.prepare(reference(1))
    waiting = asyncio.create_task(service.prepare(reference(2)))
    await eventually(lambda: any("waiting: device" in status.problem for status in service.statuses()))
    await service.unprepare(reference(1))
    assert [device.device for device in await waiting] == [GPU0]


async def test_no_claim_waits_for_the_device_of_another(node: Node) -> None:
    node.with_options(device_wait=30.0)
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)), claim(3, result(GPU1)))
    service = await node.started()
    await service.prepare(reference(1))
    waiting = asyncio.create_task(service.prepare(reference(2)))
    await eventually(lambda: len(service.statuses()) == 2)
    async with asyncio.timeout(5):
        await service.prepare(reference(3))
    assert not waiting.done()
    await service.unprepare(reference(2))
    with pytest.raises(ClaimError, match="was released while it was being prepared"):
        await waiting


async def test_a_gpu_and_its_mig_devices_are_not_given_to_two_claims(node: Node) -> None:
    instances = (mig(0, 0), mig(0, 1))
    node.devices = tuple(offered(device) for device in (gpu(0), *instances))
    node.reader.put(claim(1, result(instances[0].name)), claim(2, result(instances[1].name)), claim(3, result(GPU0)))
    service = await node.started()
    await service.prepare(reference(1))
    await service.prepare(reference(2))
    with pytest.raises(Unavailable, match=f"device {GPU0}, whose part {instances[0].name} is held"):
        await service.prepare(reference(3))


async def test_claims_with_shares_of_their_own_have_one_device_together(node: Node) -> None:
    node.reader.put(
        claim(1, result(GPU0, shareID="s1")), claim(2, result(GPU0, shareID="s2")), claim(3, result(GPU0, shareID="s1"))
    )
    service = await node.started()
    [one] = await service.prepare(reference(1))
    [two] = await service.prepare(reference(2))
    assert (one.share_id, one.cdi_devices) == ("s1", (f"{DRIVER}/claim=uid-1-{GPU0}:s1",))
    assert two.share_id == "s2"
    with pytest.raises(Unavailable, match=r"claim-1 \(uid-1\) as share s1"):
        await service.prepare(reference(3))


async def test_admin_access_is_beside_whoever_holds_the_device(node: Node) -> None:
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0, adminAccess=True)), claim(3, result(GPU0)))
    service = await node.started()
    await service.prepare(reference(2))
    assert GPU0 not in service.ledger.by_device()
    await service.prepare(reference(1))
    assert service.ledger.by_device()[GPU0].owner == "uid-1"


async def test_one_device_for_use_and_for_looking_in_one_claim_has_two_entries(node: Node) -> None:
    node.reader.put(claim(1, result(GPU0), result(GPU0, "watch", adminAccess=True)))
    service = await node.started()
    one, two = await service.prepare(reference())
    assert one.cdi_devices == (f"{DRIVER}/claim=uid-1-{GPU0}",)
    assert two.cdi_devices == (f"{DRIVER}/claim=uid-1-{GPU0}:2",)


async def test_a_claim_by_names_of_others_specs_has_no_cdi_file(node: Node) -> None:
    from node.edits.options import CdiMode, EditOptions
    from node.rules import Door, Rule

    rule = Rule("nvidia.com/gpu", door=Door.DRA, edits=EditOptions(cdi_mode=CdiMode.DELEGATE))
    node.devices = (offered(gpu(0), rule=rule),)
    node.host = Host(cdi_devices=frozenset({"nvidia.com/gpu=GPU-0"}))
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    [device] = await service.prepare(reference())
    assert device.cdi_devices == ("nvidia.com/gpu=GPU-0",)
    assert node.spec(1) is None
    node.host = Host()
    service.apply(node.view)
    with pytest.raises(ClaimError, match=r"no CDI spec on this node defines nvidia.com/gpu=GPU-0"):
        await service.prepare(reference())


async def test_calls_before_the_devices_are_known_wait_and_then_say_so(node: Node) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = node.service()
    with pytest.raises(Unavailable, match="the claims of this node are still being read"):
        await service.unprepare(reference())
    await service.recover()
    with pytest.raises(Unavailable, match="the devices of this node are still being looked for"):
        await service.prepare(reference())
    early = asyncio.create_task(service.prepare(reference()))
    await asyncio.sleep(0)
    service.apply(node.view)
    assert len(await early) == 1


async def test_a_caller_that_goes_away_leaves_a_whole_claim(node: Node) -> None:
    node.reader.gate = asyncio.Event()
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    caller = asyncio.create_task(service.prepare(reference()))
    await eventually(lambda: node.reader.asked == 1)
    caller.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled()
    node.reader.gate.set()
    await eventually(lambda: [record.state for record in service.records()] == [ClaimState.COMPLETED])
    assert node.spec(1) is not None


async def test_nothing_is_begun_once_the_service_is_closed(node: Node) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    await service.close()
    with pytest.raises(Unavailable, match="its successor answers from now on"):
        await service.prepare(reference())
    with pytest.raises(Unavailable, match="its successor answers from now on"):
        await service.unprepare(reference())


async def test_a_claim_that_was_allocated_anew_gets_its_new_devices(node: Node) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    await service.prepare(reference())
    node.reader.put(claim(1, result(GPU2)))
    assert [device.device for device in await service.prepare(reference())] == [GPU2]
    assert set(service.ledger.by_device()) == {GPU2}


async def test_two_hundred_claims_at_once(node: Node) -> None:
    numbers = range(200)
    devices = [replace(gpu(0), name=f"gpu-{number}", uuid=f"GPU-{number}") for number in numbers]
    node.devices = tuple(offered(device) for device in devices)
    node.reader.put(*(claim(number, result(f"gpu-{number}")) for number in numbers))
    service = await node.started()
    answers = await asyncio.gather(*(service.prepare(reference(number)) for number in numbers))
    assert [answer[0].device for answer in answers] == [f"gpu-{number}" for number in numbers]
    await asyncio.gather(*(service.unprepare(reference(number)) for number in numbers))
    assert service.records() == ()
    assert list((node.root / "cdi").iterdir()) == []


async def test_a_disk_that_does_not_take_the_record_leaves_nothing_taken(node: Node, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    node.with_options(state_dir=tmp_path / "file")
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    with pytest.raises(Unavailable, match="check the state folder and its disk"):
        await service.prepare(reference())
    assert service.ledger.all == ()
    assert service.records() == ()


async def test_a_cdi_folder_that_does_not_take_the_file_leaves_nothing_taken(node: Node, tmp_path: Path) -> None:
    (tmp_path / "cdi-file").write_text("")
    node.with_options(cdi_dir=tmp_path / "cdi-file")
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    text = "CDI file .* cannot be written .*check the folder and its disk"
    with pytest.raises(Unavailable, match=text):
        await service.prepare(reference())
    assert list((node.root / "state" / "claims").iterdir()) == []
    assert service.ledger.all == ()


async def test_the_end_waits_for_no_api_server(node: Node) -> None:
    node.reader.gate = asyncio.Event()
    service = await node.started()
    asking = asyncio.create_task(service.prepare(reference()))
    await eventually(lambda: node.reader.asked == 1)
    async with asyncio.timeout(5):
        await service.close()
    with pytest.raises(Unavailable, match="its successor answers from now on"):
        await asking


async def test_the_end_waits_for_no_device(node: Node) -> None:
    node.with_options(device_wait=30.0)
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)))
    service = await node.started()
    await service.prepare(reference(1))
    waiting = asyncio.create_task(service.prepare(reference(2)))
    await eventually(lambda: len(service.statuses()) == 2)
    async with asyncio.timeout(5):
        await service.close()
    with pytest.raises(Unavailable, match="its successor answers from now on"):
        await waiting
    assert [record.claim.uid for record in service.records()] == ["uid-1"]


async def test_outcomes_are_counted(node: Node) -> None:
    counted: list[tuple[str, str]] = []

    class Counter(NoObserver):
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


async def test_the_last_word_on_a_claim_is_remembered_until_it_is_released(node: Node) -> None:
    service = await node.started()
    with pytest.raises(ClaimError):
        await service.prepare(reference())
    [status] = service.statuses()
    assert (status.state, status.problem) == ("refused", "claim default/claim-1 does not exist (any more)")
    await service.unprepare(reference())
    assert service.statuses() == ()
    for number in range(300):
        with pytest.raises(ClaimError):
            await service.prepare(reference(number))
    assert len(service.statuses()) == 256
