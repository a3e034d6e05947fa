"""A NIC with two faces: one device, whose place beside the GPU is that of its Data Direct function."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from driver.devices.placement import placement
from node.inventory.devices import devices_of
from node.inventory.facts import NodeFacts
from node.inventory.identity import Identities
from node.inventory.model import Device, Snapshot
from node.inventory.places import places_of
from node.inventory.recordings.anonymous import anonymize
from node.inventory.recordings.document import dump, load
from node.inventory.sysfs.source import SysfsSource
from node.topology.cells import topology_of
from node.topology.model import Proximity, proximity
from node.values import replace
from tests.making import data_direct
from tests.making.nic_facts import attributes, learned

PAIRS = [(f"gpu-{8 + n:04x}-05-00-0", f"rdma-{2 * n:04x}-03-00-0") for n in range(4)]
"""The GPUs with their NICs."""


def seen(facts: NodeFacts) -> dict[str, Device]:
    return {device.name: device for device in devices_of(facts, Identities())}


def placed(facts: NodeFacts, remembered: Identities | None = None) -> dict[str, dict[str, object]]:
    devices = devices_of(facts, remembered or Identities())
    snapshot = Snapshot(1, devices, topology=topology_of(places_of(devices)))
    found = placement(snapshot, devices).attributes
    return {name: {each.name: each.value for each in given} for name, given in found.items()}


def test_the_function_beside_the_gpu_is_no_device_but_the_nics_second_face() -> None:
    found = seen(data_direct.node())
    assert sorted(name for name in found if not name.startswith("gpu-")) == sorted(
        [*(nic for _, nic in PAIRS), "nic-0016-03-00-0"]
    )
    nic = found[PAIRS[1][1]]
    assert nic.direct == data_direct.direct(1).path
    assert nic.location == data_direct.nic(1).path
    assert attributes(nic)["dataDirect"] == "0009:06:00.0"
    assert attributes(nic)["resource.kubernetes.io/pcieRoot"] == "pci0002:00", "the standard one is the NIC's own"
    assert "dataDirect" not in attributes(found["nic-0016-03-00-0"])


def test_a_gpu_and_its_nic_are_one_pair_by_switch_and_rail() -> None:
    found = placed(data_direct.node())
    for number, (gpu, nic) in enumerate(PAIRS):
        assert found[gpu]["switch"] == found[nic]["switch"] == f"{8 + number:04x}:01:00.0"
        assert found[gpu]["rail"] == found[nic]["rail"] == number
    assert len({found[gpu]["switch"] for gpu, _ in PAIRS}) == 4
    assert "rail" not in found["nic-0016-03-00-0"]


def test_the_topology_has_the_nic_beside_its_gpu() -> None:
    places = {place.name: place for place in places_of(seen(data_direct.node()).values())}
    for gpu, nic in PAIRS:
        near = {other: proximity(places[nic], places[other]) for other, _ in PAIRS}
        assert near.pop(gpu) is Proximity.PXB
        assert set(near.values()) <= {Proximity.NODE, Proximity.SYS}


def test_a_node_whose_uuids_are_unknown_has_nics_at_their_own_place() -> None:
    facts = data_direct.node()
    assert facts.sysfs is not None
    blind = replace(
        facts, sysfs=replace(facts.sysfs, pci=tuple(replace(each, vpd_uuid="") for each in facts.sysfs.pci))
    )
    assert {device.direct for device in seen(blind).values()} == {""}
    found = placed(blind)
    assert all("rail" not in given for given in found.values())


def test_virtual_functions_have_the_second_face_of_their_physical_one() -> None:
    facts = data_direct.node(1)
    assert facts.sysfs is not None
    whole = data_direct.nic(0)
    child = replace(
        whole,
        address="0000:03:00.1",
        path=f"{whole.path[:-1]}1",
        physfn=whole.address,
        vf_index=0,
        sriov_totalvfs=None,
        sriov_numvfs=None,
        vpd_uuid=None,
    )
    found = seen(replace(facts, sysfs=replace(facts.sysfs, pci=(*facts.sysfs.pci, child))))
    assert attributes(found["rdma-0000-03-00-1"])["dataDirect"] == "0008:06:00.0"


def test_pairs_and_rails_stay_while_pods_have_the_rdma_devices() -> None:
    facts = data_direct.node()
    assert facts.sysfs is not None
    away = replace(facts, sysfs=replace(facts.sysfs, rdma=facts.sysfs.rdma[2:]))
    memory = learned(facts)
    assert placed(away, memory) == placed(facts)
    nic = {device.name: device for device in devices_of(away, memory)}[PAIRS[0][1]]
    assert attributes(nic)["inPod"] is True
    lost = attributes(seen(facts)[nic.name]).keys() - attributes(nic).keys()
    assert lost == {"linkUp", "rdmaPortState"}, "what nobody can see of a port in a pod"


def test_the_source_reads_what_tells_the_faces(tmp_path: Path) -> None:
    facts = data_direct.node().sysfs
    assert facts is not None
    data_direct.render_node(facts, tmp_path)
    source = SysfsSource(tmp_path / "sys", tmp_path / "host", tmp_path / "proc")
    first, second = source.read().sysfs, source.read().sysfs
    assert first is not None
    assert first.errors == ()
    assert {each.address: each.vpd_uuid for each in first.pci} == {each.address: each.vpd_uuid for each in facts.pci}
    assert second == first


def test_vital_product_data_is_read_once_and_only_where_there_is_a_second_face(tmp_path: Path) -> None:
    facts = data_direct.node().sysfs
    assert facts is not None
    plain = replace(facts, pci=tuple(each for each in facts.pci if each.device != "0x2100"))
    data_direct.render_node(plain, tmp_path / "plain")
    found = SysfsSource(tmp_path / "plain/sys", tmp_path, tmp_path).read().sysfs
    assert found is not None
    assert {each.vpd_uuid for each in found.pci} == {None}
    data_direct.render_node(facts, tmp_path / "whole")
    source = SysfsSource(tmp_path / "whole/sys", tmp_path, tmp_path)
    first = source.read().sysfs
    for vpd in (tmp_path / "whole").rglob("vpd"):
        vpd.unlink()
    assert source.read().sysfs == first


@pytest.mark.parametrize("salt", ["one", "two"])
def test_a_recorded_node_keeps_its_pairs_and_not_its_uuids(salt: str) -> None:
    facts = data_direct.node()
    text = dump(anonymize(facts, salt), name="gb300", description="", recorded_at=datetime(2026, 11, 26, tzinfo=UTC))
    assert not any(data_direct.uuid(number) in text for number in range(4))
    assert placed(load(text, "gb300.yaml").facts) == placed(facts)
