"""Claims with metadata files: what the kubelet and the containers get, and what stays the same across restarts."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from driver.claims.claim_status import ClaimStatusWriter
from driver.claims.contracts import ClaimObserver
from driver.claims.model import ClaimError, PreparedDevice, Unavailable
from driver.claims.service import ClaimService
from driver.devices.description import slice_device
from driver.devices.view import DraDevice
from driver.metadata.reports import InterfaceReports
from driver.names import MetadataVersion
from kube.bodies import JsonObject
from node.interfaces.model import AttachedInterface
from tests.making.claim_service import DRIVER, GPU0, GPU1, GPU2, ClaimNode, claim, reference, result
from tests.making.claim_status import NIC, nic

BOTH = (MetadataVersion.V1ALPHA1, MetadataVersion.V1BETA1)
ATTACHED = AttachedInterface(NIC, "net1", "b8:ce:f6:00:00:01", ("10.0.0.2/24",), 9000)
NETWORK = {"interfaceName": "net1", "ips": ["10.0.0.2/24"], "hardwareAddress": "b8:ce:f6:00:00:01"}


@pytest.fixture
def node(tmp_path: Path) -> ClaimNode:
    """A node with GPUs and a NIC, whose claims get metadata files of both versions."""
    made = ClaimNode(tmp_path)
    made.devices = (*made.devices, nic(ifName="eth2", mac="b8:ce:f6:00:00:01"))
    made.with_options(metadata_versions=BOTH)
    return made


class _Counted(ClaimObserver):
    def __init__(self) -> None:
        self.failures = 0

    def metadata_failed(self) -> None:
        self.failures += 1


async def attach(
    node: ClaimNode, service: ClaimService, *interfaces: AttachedInterface, observer: ClaimObserver | None = None
) -> None:
    """Report that these interfaces are in the pod of the first claim."""
    status = ClaimStatusWriter(DRIVER, NoApi(), events=node.events)
    reports = InterfaceReports(node.metadata_files(), status, events=node.events, observer=observer or ClaimObserver())
    metadata = {record.claim: record.metadata for record in service.records()}.get(reference())
    undescribed = await asyncio.to_thread(reports.describe, reference(), interfaces, metadata)
    reports.attached(reference(), interfaces, undescribed)


class NoApi:
    """An API server that nobody asks, since the writer of the status does not run."""

    async def claim(self, namespace: str, name: str) -> JsonObject | None:
        raise AssertionError

    async def replace_claim_status(self, claim: JsonObject) -> JsonObject:
        raise AssertionError


def cdi_names(answer: tuple[PreparedDevice, ...]) -> list[tuple[str, ...]]:
    return [device.cdi_devices for device in answer]


def mount_of(node: ClaimNode, request: str = "gpu") -> dict[str, Any]:
    spec = json.loads((node.root / "cdi" / f"{DRIVER}_metadata_uid-1_{request}.json").read_text())
    mount: dict[str, Any] = spec["devices"][0]["containerEdits"]["mounts"][0]
    return mount


def published(node: ClaimNode, name: str) -> Any:
    device = node.view.device(name)
    assert isinstance(device, DraDevice)
    return slice_device(device)["attributes"]


async def test_the_first_device_of_each_request_mounts_its_file(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0), result(GPU1), result(GPU2, "other")))
    answer = await (await node.started()).prepare(reference())
    assert cdi_names(answer) == [
        (f"ostler.dev/claim=uid-1-{GPU0}", "ostler.dev/metadata=uid-1_gpu"),
        (f"ostler.dev/claim=uid-1-{GPU1}",),
        (f"ostler.dev/claim=uid-1-{GPU2}", "ostler.dev/metadata=uid-1_other"),
    ]


async def test_a_file_says_the_same_in_every_version_the_newest_first(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0), result(GPU1)))
    await (await node.started()).prepare(reference())
    devices = [
        {"driver": DRIVER, "pool": "node-1", "name": name, "attributes": published(node, name)} for name in (GPU0, GPU1)
    ]
    assert node.metadata() == [
        {
            "apiVersion": f"metadata.resource.k8s.io/{version}",
            "kind": "DeviceMetadata",
            "metadata": {"name": "claim-1", "namespace": "default", "uid": "uid-1", "generation": 1},
            "requests": [{"name": "gpu", "devices": devices}],
        }
        for version in ("v1beta1", "v1alpha1")
    ]


async def test_the_spec_mounts_the_file_where_containers_look_for_it(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    await (await node.started()).prepare(reference())
    assert json.loads((node.root / "cdi" / "ostler.dev_metadata_uid-1_gpu.json").read_text()) == {
        "cdiVersion": "0.5.0",
        "kind": "ostler.dev/metadata",
        "devices": [
            {
                "name": "uid-1_gpu",
                "containerEdits": {
                    "mounts": [
                        {
                            "hostPath": str(node.metadata_path(1)),
                            "containerPath": "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/claim-1/gpu/"
                            "ostler.dev-metadata.json",
                            "options": ["ro", "bind"],
                        }
                    ]
                },
            }
        ],
    }
    path = node.metadata_path(1)
    assert [each.stat().st_mode & 0o777 for each in (path, path.parent, path.parent.parent)] == [0o644, 0o755, 0o755]


async def test_a_claim_from_a_template_has_the_pods_name_for_it(node: ClaimNode) -> None:
    body: Any = claim(1, result(GPU0))
    body["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": "fast"}
    node.reader.put(body)
    await (await node.started()).prepare(reference())
    folder = "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/fast/gpu/"
    assert mount_of(node)["containerPath"] == f"{folder}ostler.dev-metadata.json"
    assert node.metadata()[0]["podClaimName"] == "fast"


async def test_an_annotation_that_is_no_name_makes_no_path(node: ClaimNode) -> None:
    body: Any = claim(1, result(GPU0))
    body["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": "../../../etc"}
    node.reader.put(body)
    await (await node.started()).prepare(reference())
    assert "/resourceclaims/claim-1/gpu/" in mount_of(node)["containerPath"]


async def test_the_alternative_that_was_chosen_is_in_the_file_and_not_in_its_path(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0, "gpu/large")))
    answer = await (await node.started()).prepare(reference())
    assert node.metadata()[0]["requests"][0]["name"] == "gpu/large"
    assert cdi_names(answer)[0][1] == "ostler.dev/metadata=uid-1_gpu"


async def test_a_request_that_cannot_be_a_folder_is_refused(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0, "..")))
    with pytest.raises(ClaimError, match=r"request '\.\.' .*so it can have no metadata file"):
        await (await node.started()).prepare(reference())
    assert not node.data_dir.exists()


async def test_without_versions_there_are_no_files(node: ClaimNode) -> None:
    node.with_options(metadata_versions=())
    node.reader.put(claim(1, result(GPU0)))
    answer = await (await node.started()).prepare(reference())
    assert cdi_names(answer) == [(f"ostler.dev/claim=uid-1-{GPU0}",)]
    assert [path.name for path in (node.root / "cdi").iterdir()] == ["ostler.dev-claim_uid-1.json"]


@pytest.mark.parametrize(("first", "then"), [(BOTH, ()), ((), BOTH), (BOTH, BOTH[:1])])
async def test_a_prepared_claim_keeps_its_answer_whatever_the_options_become(
    node: ClaimNode, first: tuple[MetadataVersion, ...], then: tuple[MetadataVersion, ...]
) -> None:
    node.with_options(metadata_versions=first)
    node.reader.put(claim(1, result(GPU0)))
    answer = await (await node.started()).prepare(reference())
    text = node.metadata_path(1).read_text() if first else ""
    node.with_options(metadata_versions=then)
    service = await node.started()
    assert await service.prepare(reference()) == answer
    assert (node.metadata_path(1).read_text() if first else "") == text
    node.reader.fault = "the API server is down"
    assert await service.prepare(reference()) == answer


async def test_a_release_removes_files_and_folders(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0), result(GPU1, "other")))
    service = await node.started()
    await service.prepare(reference())
    await service.unprepare(reference())
    assert list((node.root / "cdi").iterdir()) == []
    assert list((node.data_dir / "dra-device-metadata").iterdir()) == []


async def test_lost_files_are_written_again(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    await service.prepare(reference())
    spec, path = node.root / "cdi" / "ostler.dev_metadata_uid-1_gpu.json", node.metadata_path(1)
    text = path.read_text()
    for lost in (spec, path):
        lost.unlink()
        node.kubelet_knows(1)
        await service.collect()
        assert lost.exists()
    assert path.read_text() == text
    path.unlink()
    await node.started()
    assert path.read_text() == text


async def test_files_of_a_claim_that_nobody_knows_are_swept(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    await (await node.started()).prepare(reference())
    node.record_path(1).unlink()
    (node.root / "cdi" / "ostler.dev-claim_uid-1.json").unlink()
    node.kubelet_knows()
    (node.root / "cdi" / "ostler.dev_metadata_uid-2_gpu.json").write_text("{}")
    await node.started()
    assert list((node.root / "cdi").iterdir()) == []
    assert not node.metadata_path(1).exists()


async def test_a_reboot_ends_what_files_say_of_interfaces(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(NIC, "nic")))
    service = await node.started()
    await service.prepare(reference())
    await attach(node, service, ATTACHED)
    node.boot = "boot-2"
    service = await node.started()
    assert not node.metadata_path(1, "nic").exists()
    await service.prepare(reference())
    assert "networkData" not in node.metadata(1, "nic")[0]["requests"][0]["devices"][0]


async def test_interfaces_in_the_pod_come_into_the_file_that_containers_have(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0), result(NIC, "nic")))
    service = await node.started()
    await service.prepare(reference())
    gpu_text = node.metadata_path(1).read_text()
    with node.metadata_path(1, "nic").open() as mounted:
        await attach(node, service, ATTACHED)
        first, second = (json.loads(line) for line in mounted.read().splitlines())
    assert first["requests"][0]["devices"][0]["networkData"] == NETWORK
    assert first["metadata"]["generation"] == second["metadata"]["generation"] == 2
    assert node.metadata_path(1).read_text() == gpu_text
    before = node.metadata_path(1, "nic").read_text()
    await attach(node, service, ATTACHED)
    service = await node.started()
    await service.prepare(reference())
    await attach(node, service, ATTACHED)
    assert node.metadata_path(1, "nic").read_text() == before


async def test_a_file_never_becomes_shorter(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(NIC, "nic")))
    service = await node.started()
    await service.prepare(reference())
    await attach(node, service, ATTACHED)
    size = node.metadata_path(1, "nic").stat().st_size
    shorter = AttachedInterface(NIC, "n", "")
    await attach(node, service, shorter)
    assert node.metadata_path(1, "nic").stat().st_size == size
    first, _ = node.metadata(1, "nic")
    assert first["requests"][0]["devices"][0]["networkData"] == {"interfaceName": "n"}
    assert first["metadata"]["generation"] == 3


async def test_a_file_that_a_kill_left_half_written_is_mended_in_place(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(NIC, "nic")))
    await (await node.started()).prepare(reference())
    path = node.metadata_path(1, "nic")
    inode, text = path.stat().st_ino, path.read_text()
    path.write_text(text.replace('"generation":1}', '"generation":7}', 1)[:300].ljust(len(text), "?"))
    await node.started()
    first, second = node.metadata(1, "nic")
    assert first["metadata"]["generation"] == second["metadata"]["generation"] == 8
    assert path.stat().st_ino == inode


async def test_interfaces_of_claims_without_files_write_nothing(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    await service.prepare(reference())
    text = node.metadata_path(1).read_text()
    await attach(node, service, ATTACHED)
    assert node.metadata_path(1).read_text() == text


def _block(node: ClaimNode) -> None:
    """Put a file where the folder of all metadata files should be."""
    node.data_dir.parent.mkdir(exist_ok=True)
    node.data_dir.write_text("in the way")


async def test_a_claim_whose_files_cannot_be_written_goes_without_them(node: ClaimNode) -> None:
    _block(node)
    node.reader.put(claim(1, result(GPU0)))
    observer = _Counted()
    service = await node.started(observer=observer)
    answer = await service.prepare(reference())
    assert cdi_names(answer) == [(f"ostler.dev/claim=uid-1-{GPU0}",)]
    (event,) = node.events.of("ClaimMetadataFailed")
    assert event.startswith("metadata files of claim default/claim-1: its containers get none: metadata file ")
    assert event.endswith("check the folder and its disk")
    assert observer.failures == 1
    node.data_dir.unlink()
    assert await service.prepare(reference()) == answer
    assert await (await node.started()).prepare(reference()) == answer


async def test_a_claim_whose_files_are_required_waits_for_them(node: ClaimNode) -> None:
    _block(node)
    node.with_options(metadata_required=True)
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    with pytest.raises(Unavailable, match=r"metadata file .* cannot be written \(.*\); check the folder and its disk"):
        await service.prepare(reference())
    assert service.ledger.all == ()
    assert list((node.root / "cdi").iterdir()) == []
    node.data_dir.unlink()
    assert len(cdi_names(await service.prepare(reference()))[0]) == 2


async def test_interfaces_that_cannot_be_written_into_the_file_are_reported(
    node: ClaimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.reader.put(claim(1, result(NIC, "nic")))
    observer = _Counted()
    service = await node.started(observer=observer)
    await service.prepare(reference())

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    await attach(node, service, ATTACHED, observer=observer)
    (event,) = node.events.of("ClaimMetadataFailed")
    assert "they lack the interfaces in the pod" in event
    assert "(No space left on device)" in event
    assert observer.failures == 1


async def test_people_see_the_files(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    await service.prepare(reference())
    assert service.statuses()[0].metadata_files == (str(node.metadata_path(1)),)


async def test_a_record_keeps_its_description(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service: ClaimService = await node.started()
    await service.prepare(reference())
    assert (await node.started()).records() == service.records()
    assert service.records()[0].metadata is not None
