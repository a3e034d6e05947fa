"""A claim is prepared once, whole, and answered the same whenever it is asked for."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from driver.claims.model import ClaimError, PreparedDevice, RecordState, Unavailable
from node.clocks import SystemClocks
from node.files import read_record
from node.inventory.model import Host
from node.values import replace
from tests.making.claim_service import DRIVER, GPU0, GPU1, POOL, ClaimNode, claim, offered, reference, result
from tests.making.devices import gpu


async def test_a_claim_is_answered_with_its_devices_and_described_by_cdi(node: ClaimNode) -> None:
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


async def test_record_says_completed_and_the_ledger_has_the_devices(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started(clocks=SystemClocks(clock=lambda: 1234.5))
    await service.prepare(reference())
    [record] = service.records()
    assert (record.state, record.boot, record.since, record.users) == (
        RecordState.COMPLETED,
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


async def test_a_prepared_claim_is_found_by_its_name_and_its_pod_alone(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    key, pods = ("default", "claim-1"), frozenset({"pod-1", "pod-2"})
    assert service.prepared_for(key, pods) is None
    await service.prepare(reference())
    assert service.prepared_for(key, pods) == service.records()[0]
    assert service.prepared_for(key, frozenset({"pod-2"})) is None, "an earlier claim of that name"
    assert service.prepared_for(("default", "claim-2"), pods) is None
    assert service.prepared_for(("other", "claim-1"), pods) is None
    node.boot = "boot-2"
    assert (await node.started()).prepared_for(key, pods) is None, "containers of this boot have nothing of it"


async def test_the_same_question_gets_the_same_answer_and_writes_nothing(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    first = await service.prepare(reference())
    before = node.record_path(1).stat().st_mtime_ns
    assert await service.prepare(reference()) == first
    assert node.record_path(1).stat().st_mtime_ns == before


async def test_a_lost_or_spoilt_cdi_file_is_written_anew_at_the_next_question(node: ClaimNode) -> None:
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


async def test_a_prepared_claim_is_answered_from_its_record_while_the_api_server_is_silent(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    answer = await service.prepare(reference())
    node.reader.fault = "the API server does not answer"
    assert await service.prepare(reference()) == answer
    with pytest.raises(Unavailable, match="the API server does not answer"):
        await service.prepare(reference(2))


async def test_what_changed_on_the_host_is_in_the_cdi_file_of_the_next_answer(node: ClaimNode) -> None:
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
    next((node.root / "cdi").iterdir()).unlink()
    await node.started()
    assert node.spec(1) == spec, "the record on the disk says the same"


async def test_a_claim_by_names_of_others_specs_has_no_cdi_file(node: ClaimNode) -> None:
    from node.edits.options import CdiMode, EditOptions
    from node.rules import Doors, Rule

    rule = Rule("nvidia.com/gpu", door=Doors.DRA, edits=EditOptions(cdi_mode=CdiMode.DELEGATE))
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


async def test_a_disk_that_does_not_take_the_record_leaves_nothing_taken(node: ClaimNode, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    node.with_options(state_dir=tmp_path / "file")
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    with pytest.raises(Unavailable, match="check the state folder and its disk"):
        await service.prepare(reference())
    assert service.ledger.all == ()
    assert service.records() == ()


async def test_a_cdi_folder_that_does_not_take_the_file_leaves_nothing_taken(node: ClaimNode, tmp_path: Path) -> None:
    (tmp_path / "cdi-file").write_text("")
    node.with_options(cdi_dir=tmp_path / "cdi-file")
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    text = "CDI file .* cannot be written .*check the folder and its disk"
    with pytest.raises(Unavailable, match=text):
        await service.prepare(reference())
    assert list((node.root / "state" / "claims").iterdir()) == []
    assert service.ledger.all == ()


async def test_a_claim_waits_for_the_disk_twice_and_its_release_never(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    synced: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    await service.prepare(reference())
    cdi_file, record_file, records = synced
    assert cdi_file.startswith(".ostler.dev-claim_uid-1.json.")
    assert (record_file.startswith(".uid-1.json."), records) == (True, "claims")
    synced.clear()
    await service.unprepare(reference())
    assert synced == []


async def test_a_power_cut_may_lose_the_cdi_file_because_the_kubelet_asks_again(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    answer = await (await node.started()).prepare(reference())
    (file,) = (node.root / "cdi").iterdir()
    text = file.read_text()
    file.unlink()
    node.boot = "boot-2"
    service = await node.started()
    assert await service.prepare(reference()) == answer
    assert file.read_text() == text


async def test_what_a_killed_process_was_writing_is_swept_at_the_start(node: ClaimNode) -> None:
    await node.started()
    for folder, name in (
        ("state/claims", ".uid-1.json.0123456789ab.tmp"),
        ("cdi", ".ostler.dev-claim_uid-1.json.0.tmp"),
    ):
        (node.root / folder).mkdir(parents=True, exist_ok=True)
        (node.root / folder / name).write_text("half")
    (node.root / "cdi" / ".vendor.tmp").write_text("of others")
    await node.started()
    assert [path.name for path in node.root.rglob(".*.tmp")] == [".vendor.tmp"]
    assert node.events.events == []
