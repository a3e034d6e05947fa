"""What others write into a claim is bounded on its way into files, variables and messages."""

from __future__ import annotations

import time
from typing import Any

import pytest

from driver.claims.disk import RecordStore
from driver.claims.model import ClaimError, ClaimReference, RecordState
from driver.claims.record import LARGEST, ClaimRecord, RecordedDevice, check_size
from driver.devices.view import DraDevice
from kube.bodies import JsonObject
from node.cdi import spec
from node.inventory.model import Attribute, Device, DeviceKind, DeviceNode, NodeRole
from node.rules import Doors, Rule
from node.values import replace
from tests.making.claim_service import GPU0, ClaimNode, claim, offered, opaque, reference, result
from tests.making.devices import gpu

NICS = 22
ANNOTATION = "resource.kubernetes.io/pod-claim-name"
PARAMETERS = {"apiVersion": "ostler.dev/v1alpha1", "kind": "GpuConfig"}


def nic(number: int) -> DraDevice:
    address = f"0000:86:{number:02x}.0"
    device = Device(
        name=f"nic-{address.replace(':', '-').replace('.', '-')}",
        kind=DeviceKind.NIC,
        vendor="mellanox",
        pci_address=address,
        nodes=(DeviceNode(f"/dev/vfio/{number}", NodeRole.DEVICE, major=510, minor=number),),
        attributes=(Attribute("driver", "vfio-pci"),),
    )
    return replace(offered(device), rule=Rule("example.com/nic", door=Doors.DRA))


def annotated(body: JsonObject, name: str) -> JsonObject:
    metadata: Any = body["metadata"]
    metadata["annotations"] = {ANNOTATION: name}
    return body


@pytest.fixture
def nics(node: ClaimNode) -> ClaimNode:
    node.devices = tuple(nic(number) for number in range(NICS))
    return node


def nic_claim(node: ClaimNode) -> JsonObject:
    return claim(1, *(result(each.device.name, "nic") for each in node.devices))


def variables(node: ClaimNode) -> set[str]:
    document = node.spec(1)
    assert document is not None
    return {name.partition("=")[0] for device in document["devices"] for name in device["containerEdits"]["env"]}


async def test_an_annotation_of_256_kib_on_a_claim_of_22_nics_makes_a_small_file(nics: ClaimNode) -> None:
    nics.reader.put(annotated(nic_claim(nics), "x" * (256 << 10)))
    service = await nics.started()
    began = time.thread_time()
    answer = await service.prepare(reference())
    assert time.thread_time() - began < 0.1
    assert len(answer) == NICS
    assert (nics.root / "cdi" / "ostler.dev-claim_uid-1.json").stat().st_size < 256 << 10
    assert nics.record_path(1).stat().st_size < 512 << 10
    assert "PCIDEVICE_CLAIM_1__NIC" in variables(nics)
    assert max(map(len, variables(nics))) < 100
    await service.close()
    again = await nics.started()
    assert [each.device for each in again.records()[0].devices] == [each.device.name for each in nics.devices]
    assert await again.prepare(reference()) == answer


@pytest.mark.parametrize("name", ["n" * 64, "a.b", "A", "a_b", "-a", "a\nLD_PRELOAD=/evil.so", "ä", "a b", "\ud800"])
async def test_a_name_that_no_pod_can_have_for_a_claim_is_not_used(nics: ClaimNode, name: str) -> None:
    nics.reader.put(annotated(nic_claim(nics), name))
    await (await nics.started()).prepare(reference())
    assert "PCIDEVICE_CLAIM_1__NIC" in variables(nics)


async def test_the_name_that_a_pod_has_for_its_claim_is_used(nics: ClaimNode) -> None:
    nics.reader.put(annotated(nic_claim(nics), "nics-" + "n" * 58))
    await (await nics.started()).prepare(reference())
    assert f"PCIDEVICE_NICS_{'N' * 58}__NIC" in variables(nics)


async def test_a_claim_whose_cdi_file_would_be_too_large_is_refused_before_anything_is_written(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spec, "LARGEST", 200)
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    with pytest.raises(ClaimError) as caught:
        await service.prepare(reference())
    assert str(caught.value).startswith("CDI spec of ostler.dev/claim: the file of its 1 devices has at least ")
    assert str(caught.value).endswith(" bytes; the limit is 200; name fewer devices in it")
    assert not (node.root / "cdi").exists()
    assert not (node.root / "state").exists()
    assert service.ledger.all == ()


async def test_a_claim_whose_record_would_be_too_large_is_refused_before_anything_is_written(node: ClaimNode) -> None:
    users = tuple(f"{number:0126d}" for number in range(70_000))
    node.reader.put(claim(1, result(GPU0), users=users))
    service = await node.started()
    with pytest.raises(ClaimError) as caught:
        await service.prepare(reference())
    assert str(caught.value).startswith("claim default/claim-1: its record would have ")
    assert "70000 users); the limit is 8388608; allocate fewer devices to one claim" in str(caught.value)
    assert not (node.root / "cdi").exists()
    assert not (node.root / "state").exists()
    assert service.ledger.all == ()


def test_the_largest_record_is_read_again(node: ClaimNode) -> None:
    record = ClaimRecord(
        reference(), RecordState.COMPLETED, boot="b", devices=(RecordedDevice("r", "p", "d"),), spec="\n" * 1000
    )
    check_size(record)
    rest = LARGEST - _size(record)
    largest = replace(record, spec=record.spec + "x" * rest)
    check_size(largest)
    store = RecordStore(node.root / "records")
    store.write(largest)
    assert store.load().records == {"uid-1": largest}
    with pytest.raises(ClaimError, match=f"its record would have {LARGEST + 1} bytes"):
        check_size(replace(largest, spec=largest.spec + "x"))


def _size(record: ClaimRecord) -> int:
    with pytest.raises(ClaimError, match="its record would have") as caught:
        check_size(replace(record, spec=record.spec + "x" * LARGEST))
    return int(str(caught.value).split("have ")[1].split(" ")[0]) - LARGEST


def test_the_largest_cdi_file_fits_into_a_record_and_is_read_again(node: ClaimNode) -> None:
    text = '"\n' * (spec.LARGEST // 2)
    check_size(ClaimRecord(reference(), RecordState.COMPLETED, spec=text[: spec.LARGEST // 2]))
    service = node.service()
    specs = service._book.specs
    specs.ensure("uid-1", text)
    assert specs.text("uid-1") == text
    assert not specs.ensure("uid-1", text)
    specs.path("uid-1").write_text(text + "x")
    assert specs.text("uid-1") == ""
    assert specs.ensure("uid-1", text)


@pytest.mark.parametrize(
    ("claimed", "text"),
    [
        (ClaimReference("team", "n" * 5000, "u"), "claim's name 'nnn.*' must have at most 253 bytes"),
        (ClaimReference("team", "a\nb", "u"), r"claim's name 'a\\nb' must consist of lower case letters"),
        (ClaimReference("te am", "a", "u"), "claim's namespace 'te am' must consist of lower case letters"),
        (
            ClaimReference("team", "a", "u" * 5000),
            "claim team/a: uid 'uuu.*' is not valid: use at most 128 letters and digits",
        ),
    ],
)
async def test_a_reference_that_no_api_server_gives_is_refused_in_a_short_text(
    node: ClaimNode, claimed: ClaimReference, text: str
) -> None:
    service = await node.started()
    for call in (service.prepare, service.unprepare):
        with pytest.raises(ClaimError, match=text) as caught:
            await call(claimed)
        assert len(str(caught.value)) < 400


HUGE = "x" * 100_000


@pytest.mark.parametrize(
    "body",
    [
        claim(1, result(HUGE)),
        claim(1, result(GPU0, HUGE)),
        claim(1, result(GPU0, "two\nlines")),
        claim(1, result(GPU0, shareID=HUGE)),
        claim(1, result(GPU0, pool=HUGE)),
        claim(1, result(GPU0, consumedCapacity=HUGE)),
        claim(1, result(GPU0, tolerations=HUGE)),
        claim(1, result(GPU0), users=(HUGE,)),
        claim(1, result(GPU0), config=({**opaque({}), "requests": HUGE},)),
        claim(1, result(GPU0), config=({"opaque": {"driver": "ostler.dev", "parameters": HUGE}},)),
        claim(1, result(GPU0), config=(opaque({HUGE: 1}),)),
        claim(1, result(GPU0), config=(opaque({**PARAMETERS, HUGE: 1}),)),
        claim(1, result(GPU0), config=(opaque({**PARAMETERS, "gds": HUGE}),)),
        claim(1, result(GPU0), config=(opaque({**PARAMETERS, "imexChannels": [HUGE]}),)),
        claim(1, result(GPU0), config=(opaque({"apiVersion": HUGE}),)),
    ],
)
async def test_whatever_a_claim_holds_its_error_is_one_short_line(node: ClaimNode, body: JsonObject) -> None:
    node.reader.put(body)
    service = await node.started()
    with pytest.raises(ClaimError) as caught:
        await service.prepare(reference())
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)
    assert not (node.root / "cdi").exists()


@pytest.mark.parametrize("depth", [100, 900, 20_000])
async def test_parameters_that_are_nested_deeply_are_refused_like_others(node: ClaimNode, depth: int) -> None:
    deep: Any = 1
    for _ in range(depth):
        deep = {"a": deep}
    node.devices = (offered(gpu(0)),)
    for wrong in ({**PARAMETERS, "gds": deep}, {**PARAMETERS, "a": deep}, {"apiVersion": deep}):
        node.reader.put(claim(1, result(GPU0), config=(opaque(wrong),)))
        service = await node.started()
        with pytest.raises(ClaimError) as caught:
            await service.prepare(reference())
        assert len(str(caught.value)) < 500
