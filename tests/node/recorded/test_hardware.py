"""Recorded hardware that breaks: the facts change as they would on a real machine, and all come back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.inventory.facts import NodeFacts, SysfsFacts
from node.inventory.net_facts import NetworkFacts
from node.inventory.recordings.source import read
from sandbox import nodes
from sandbox.hardware import Damage, NoSuchPart, NotPossible, RecordedHardware, damaged


class _Box(RecordedHardware):
    """Recorded hardware in a folder, with what an agent would read of it."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(nodes.path(name), folder / "node.yaml")
        self.original = read(nodes.path(name)).facts

    @property
    def facts(self) -> NodeFacts:
        return read(self.path).facts

    @property
    def sysfs(self) -> SysfsFacts:
        sysfs = self.facts.sysfs
        assert sysfs is not None
        return sysfs

    @property
    def network(self) -> NetworkFacts:
        network = self.facts.network
        assert network is not None
        return network

    def interfaces(self) -> set[str]:
        return {interface.name for interface in self.sysfs.interfaces}


@pytest.mark.parametrize(
    ("node", "wanted", "address"),
    [
        ("h100-sxm-8", "3", "0000:61:00.0"),
        ("h100-sxm-8", "GPU3", "0000:61:00.0"),
        ("h100-sxm-8", "gpu-0000-61-00-0", "0000:61:00.0"),
        ("h100-sxm-8", "GPU-765f26e1-9de4-527d-9c35-81d710b67ca9", "0000:61:00.0"),
        ("h100-sxm-8", "ibp24s0", "0000:18:00.0"),
        ("h100-sxm-8", "mlx5_0", "0000:18:00.0"),
        ("h100-sxm-8", "rdma-0000-18-00-0", "0000:18:00.0"),
        ("sriov-2", "nic-0000-17-00-6", "0000:17:00.6"),
        ("mi300x-8", "GPU1", "0000:18:00.0"),
    ],
)
def test_a_part_is_found_by_every_name_it_has(node: str, wanted: str, address: str, tmp_path: Path) -> None:
    assert _Box(node, tmp_path).find(wanted).address == address


def test_an_unknown_part_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(NoSuchPart) as caught:
        _Box("l4-2", tmp_path).find("eth7")

    assert str(caught.value) == "no GPU or NIC 'eth7' on this node; known: 0, 1, eno8303, eno8403"


def test_a_port_is_called_by_its_own_interface_and_not_by_a_representor(tmp_path: Path) -> None:
    box = _Box("sriov-2", tmp_path)

    assert str(box.find("0000:17:00.1")) == "NIC ens1f1np1"
    with pytest.raises(NoSuchPart):
        box.find("ens1f1npf1vf0")


def test_a_failed_gpu_is_an_error_of_nvml_and_stays_on_the_bus(tmp_path: Path) -> None:
    box = _Box("h100-sxm-8", tmp_path)
    box.fail(2, "UNKNOWN")

    nvml = box.facts.nvml
    assert nvml is not None
    assert [gpu.error for gpu in nvml.gpus] == [None, None, "UNKNOWN", None, None, None, None, None]
    assert box.sysfs == box.original.sysfs


@pytest.mark.parametrize(
    ("name", "broken", "well", "driver"),
    [
        ("mi300x-8", "0000:08:00.0", "0000:18:00.0", "amdgpu"),
        ("gaudi2-8", "0000:19:00.0", "0000:1a:00.0", "habanalabs"),
    ],
)
def test_a_gpu_without_nvml_loses_its_driver(tmp_path: Path, name: str, broken: str, well: str, driver: str) -> None:
    box = _Box(name, tmp_path)
    box.fail(0)

    drivers = {function.address: function.driver for function in box.sysfs.pci}
    assert (drivers[broken], drivers[well]) == (None, driver)


def test_a_nic_without_link_stays_with_its_ports_down(tmp_path: Path) -> None:
    box = _Box("h100-sxm-8", tmp_path)
    box.fail(box.find("ibp24s0"))

    interface = next(each for each in box.sysfs.interfaces if each.name == "ibp24s0")
    device = next(each for each in box.sysfs.rdma if each.name == "mlx5_0")
    assert (interface.carrier, interface.operstate, interface.speed_mbps) == (False, "down", None)
    assert device.ports[0].state == "1: DOWN"
    assert box.interfaces() == {each.name for each in box.original.sysfs.interfaces}  # type: ignore[union-attr]


def test_virtual_functions_go_down_with_their_port(tmp_path: Path) -> None:
    box = _Box("sriov-2", tmp_path)
    box.fail(box.find("ens1f0np0"))

    down = {each.name for each in box.sysfs.interfaces if each.carrier is False}
    assert down == {"ens1f0np0", "ens1f0v0", "ens1f0v1", "ens1f0v2", "ens1f0v3"}


def test_a_virtual_function_that_shows_no_link_cannot_lose_it(tmp_path: Path) -> None:
    box = _Box("sriov-2", tmp_path)

    with pytest.raises(NotPossible) as caught:
        box.fail(box.find("0000:17:00.6"))

    text = "NIC 0000:17:00.6 has no link of its own; it goes down with its port 0000:17:00.0"
    assert str(caught.value) == text


def test_an_unplugged_card_is_gone_from_every_list(tmp_path: Path) -> None:
    box = _Box("sriov-2", tmp_path)
    box.unplug(box.find("0000:17:00.1"))

    sysfs = box.sysfs
    assert not [each for each in sysfs.pci if "0000:17:00.1" in (each.address, each.physfn)]
    assert len([each for each in sysfs.pci if each.physfn == "0000:17:00.0"]) == 8
    assert not [name for name in box.interfaces() if name.startswith(("ens1f1", "en3f1", "enp23s0f1"))]
    assert sysfs.subfunctions == ()
    assert {link.name for link in box.network.links} >= {"ens1f0np0", "bond0"}
    assert "ens1f1np1" not in {link.name for link in box.network.links}


def test_an_unplugged_gpu_is_gone_from_the_bus_and_lost_to_nvml(tmp_path: Path) -> None:
    box = _Box("h100-sxm-8", tmp_path)
    box.unplug(0)

    nvml = box.facts.nvml
    assert nvml is not None
    assert nvml.gpus[0].error == "GPU_IS_LOST"
    assert "0000:1b:00.0" not in {function.address for function in box.sysfs.pci}


def test_an_unplugged_amd_gpu_takes_its_partitions_and_links_along(tmp_path: Path) -> None:
    box = _Box("mi300x-cpx-8", tmp_path)
    box.unplug(0)

    sysfs = box.sysfs
    assert sysfs.amd_partitions == ()
    assert len(sysfs.amd_gpus) == len(sysfs.kfd) == 7
    known = {node.node for node in sysfs.kfd}
    assert {link.to for node in sysfs.kfd for link in node.links if link.type == 11} == known


def test_an_unplugged_accelerator_is_gone_from_the_accelerators(tmp_path: Path) -> None:
    box = _Box("gaudi2-8", tmp_path)
    box.unplug(0)

    assert len(box.sysfs.accelerators) == 7
    assert "0000:19:00.0" not in {each.address for each in box.sysfs.accelerators}


def test_an_interface_in_a_pod_is_gone_and_its_function_stays(tmp_path: Path) -> None:
    box = _Box("sriov-2", tmp_path)
    box.take(box.find("ens1f0v1"))

    assert box.interfaces() == {each.name for each in box.original.sysfs.interfaces} - {"ens1f0v1"}  # type: ignore[union-attr]
    assert box.sysfs.pci == box.original.sysfs.pci  # type: ignore[union-attr]
    assert box.sysfs.rdma == box.original.sysfs.rdma  # type: ignore[union-attr]


def test_no_pod_takes_a_gpus_interface(tmp_path: Path) -> None:
    box = _Box("l4-2", tmp_path)

    with pytest.raises(NotPossible) as caught:
        box.take(box.find("1"))

    assert str(caught.value) == "GPU 1 has no interface that a pod could take"


@pytest.mark.parametrize("name", nodes.names())
def test_what_is_healed_is_as_it_was(name: str, tmp_path: Path) -> None:
    box = _Box(name, tmp_path)

    for part in (box.parts[0], box.parts[-1]):
        box.unplug(part)
        assert box.facts != box.original
        box.heal(part)
        assert box.facts == box.original
        assert box.path.read_bytes() == nodes.path(name).read_bytes()


@given(st.dictionaries(st.sampled_from(range(29)), st.sampled_from(Damage), max_size=6))
def test_damage_never_touches_what_is_not_damaged(chosen: dict[int, Damage]) -> None:
    facts = read(nodes.path("sriov-2")).facts
    assert facts.sysfs is not None
    functions = facts.sysfs.pci
    damages = {functions[number].address: damage for number, damage in chosen.items() if number < len(functions)}
    after = damaged(facts, damages, {}).sysfs
    assert after is not None

    whole = [each for each in functions if not {each.address, each.physfn} & damages.keys()]
    assert set(whole) <= set(after.pci)
    for function in whole:
        own = [each for each in facts.sysfs.interfaces if each.path.startswith(f"{function.path}/")]
        assert set(own) <= set(after.interfaces)
