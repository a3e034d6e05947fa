"""What the files of /sys and /dev say, from trees as the kernel makes them."""

from __future__ import annotations

import errno
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from node.clocks import SystemClocks
from node.health.kernel.links import watched
from node.health.signal import Condition, Trouble
from node.health.state import Health, HealthState
from node.inventory.live.function_files import FunctionFiles
from node.inventory.model import Device, DeviceKind, DeviceNode, NodeRole
from node.inventory.sysfs.files import read_now
from node.rules import Rule
from node.values import replace
from tests.making.kernel_devices import CARELESS, CARING, address_of, gpu, nic, snapshot, vf

PORT = "pci0000:80/0000:80:01.0"
LINK = {"current_link_width": "16", "max_link_width": "16", "current_link_speed": "2.5 GT/s PCIe"}
GPU, NIC = "gpu-0000-83-00-0", "nic-0000-84-00-0"


class _Machine:
    """A /sys and /dev below ``root``, and who looks at them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = 0.0
        self.reads: Counter[str] = Counter()
        self.broken: dict[str, int] = {}
        self.files = FunctionFiles(f"{root}/sys", str(root), SystemClocks(monotonic=lambda: self.now), self.read)

    def read(self, path: str) -> str:
        name = path.rpartition("/")[2]
        self.reads[name] += 1
        if name in self.broken:
            raise OSError(self.broken[name], os.strerror(self.broken[name]))
        return read_now(path)

    def function(self, name: str, **attributes: str) -> Path:
        """A function below a port of 16 lanes and 32 GT/s, with a driver."""
        folder = self.root / "sys/devices" / PORT / address_of(name)
        self.write(folder.parent, max_link_width="16", max_link_speed="32.0 GT/s PCIe")
        self.write(folder, **{**LINK, "max_link_speed": "64.0 GT/s PCIe", **attributes})
        driver = self.root / "sys/bus/pci/drivers/some"
        driver.mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(driver)
        entry = self.root / "sys/bus/pci/devices" / folder.name
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.symlink_to(os.path.relpath(folder, entry.parent))
        return folder

    def write(self, folder: Path, **attributes: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in attributes.items():
            (folder / name).write_text(f"{text}\n")

    def node(self, path: str) -> Path:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        return file

    def look(self, *devices: Device, rules: tuple[Rule, ...] = CARING) -> dict[str, tuple[Condition, ...]]:
        self.now += 8.0
        plan = watched(snapshot(*devices), rules)
        found = {each.device: self.files.troubles(each, self.files.function(each)) for each in plan}
        return {name: troubles for name, troubles in found.items() if troubles}


@pytest.fixture
def machine(tmp_path: Path) -> _Machine:
    return _Machine(tmp_path)


def kinds(found: dict[str, tuple[Condition, ...]]) -> dict[str, list[Trouble]]:
    return {name: [trouble.kind for trouble in troubles] for name, troubles in found.items()}


def test_devices_that_are_well_have_no_trouble(machine: _Machine) -> None:
    machine.function(GPU)
    machine.function(NIC, current_link_speed="32.0 GT/s PCIe")
    machine.node("/dev/nvidia0")
    for _ in range(3):
        assert machine.look(gpu(), nic()) == {}


def test_errors_since_the_last_look_are_a_trouble_until_the_next_one(machine: _Machine) -> None:
    folder = machine.function(GPU, aer_dev_nonfatal="TOTAL_ERR_NONFATAL 7", aer_dev_fatal="TOTAL_ERR_FATAL 0")
    assert machine.look(gpu()) == {}
    machine.write(folder, aer_dev_nonfatal="TOTAL_ERR_NONFATAL 9")
    assert kinds(machine.look(gpu())) == {GPU: [Trouble.AER]}
    assert machine.look(gpu()) == {}


def test_a_function_that_was_made_anew_counts_from_the_start(machine: _Machine) -> None:
    folder = machine.function(GPU, aer_dev_fatal="TOTAL_ERR_FATAL 1")
    assert machine.look(gpu()) == {}
    keeper = folder.rename(folder.with_name("old"))
    (machine.root / "sys/bus/pci/devices" / address_of(GPU)).unlink()
    machine.function(GPU, aer_dev_fatal="TOTAL_ERR_FATAL 5")
    assert machine.look(gpu()) == {}
    shutil.rmtree(keeper)


def test_a_virtual_function_that_is_missing_has_no_driver_and_is_not_said_to_have_left_the_bus(
    machine: _Machine,
) -> None:
    folder = machine.function("nic-0000-84-00-1")
    assert machine.look(vf()) == {}
    shutil.rmtree(folder)
    (machine.root / "sys/bus/pci/devices" / folder.name).unlink()
    assert machine.look(vf()) == {vf().name: (Condition(Trouble.UNBOUND, "it is no longer on its bus"),)}


def test_a_gpu_on_half_its_lanes_is_told_and_one_that_is_slow_is_not(machine: _Machine) -> None:
    folder = machine.function(GPU)
    machine.write(folder, current_link_width="8")
    assert machine.look(gpu()) == {GPU: (Condition(Trouble.PCIE_LINK, "its link runs with 8 of 16 PCIe lanes"),)}
    machine.write(folder, current_link_width="16")
    assert machine.look(gpu()) == {}


def test_the_port_above_limits_what_a_link_should_be(machine: _Machine) -> None:
    folder = machine.function(NIC, current_link_width="8", current_link_speed="16.0 GT/s PCIe")
    machine.write(folder.parent, max_link_width="8", max_link_speed="16.0 GT/s PCIe")
    assert machine.look(nic()) == {}


def test_a_slow_nic_is_told(machine: _Machine) -> None:
    machine.function(NIC)
    assert machine.look(nic())[NIC][0].detail == "its link runs with 2.5 of 32 GT/s"


def test_a_virtual_function_has_no_link_and_no_counters(machine: _Machine) -> None:
    name = vf().name
    machine.function(name, current_link_width="0", aer_dev_fatal="TOTAL_ERR_FATAL 1")
    assert machine.look(vf()) == {}
    assert not machine.reads


def test_a_driver_that_let_go_is_told_until_one_is_bound(machine: _Machine) -> None:
    folder = machine.function(GPU)
    assert machine.look(gpu()) == {}
    (folder / "driver").unlink()
    assert machine.look(gpu()) == {GPU: (Condition(Trouble.UNBOUND, "no driver is bound to it"),)}
    (folder / "driver").symlink_to(machine.root / "sys/bus/pci/drivers/some")
    assert machine.look(gpu()) == {}


def test_a_function_that_left_its_bus_is_lost(machine: _Machine) -> None:
    machine.function(GPU)
    assert machine.look(gpu()) == {}
    (machine.root / "sys/bus/pci/devices" / address_of(GPU)).unlink()
    assert machine.look(gpu()) == {GPU: (Condition(Trouble.LOST, "it is no longer on its bus"),)}


def test_a_function_that_was_never_seen_is_not_missed(machine: _Machine) -> None:
    assert machine.look(gpu(), nic()) == {}


def test_a_node_that_was_there_and_is_gone_is_told_and_one_that_never_was_is_not(machine: _Machine) -> None:
    machine.function(GPU)
    file = machine.node("/dev/nvidia0")
    device = gpu(GPU, "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap1")
    assert machine.look(device) == {}
    file.unlink()
    detail = "its device node /dev/nvidia0 no longer exists"
    assert machine.look(device) == {GPU: (Condition(Trouble.NODE, detail),)}
    file.touch()
    assert machine.look(device) == {}


def test_nodes_that_devices_share_are_nobodys_trouble(machine: _Machine) -> None:
    machine.function(GPU)
    file = machine.node("/dev/nvidiactl")
    assert machine.look(gpu()) == {}
    file.unlink()
    assert machine.look(gpu()) == {}


def test_a_mig_device_has_the_trouble_of_its_own_nodes_alone(machine: _Machine) -> None:
    folder = machine.function(GPU)
    access = DeviceNode("/dev/nvidia-caps/nvidia-cap12", NodeRole.CAPABILITY, "c", 1, 12)
    mig = Device("mig-x", DeviceKind.MIG, "nvidia", pci_address=address_of(GPU), parent=GPU, nodes=(access,))
    file = machine.node(access.path)
    assert machine.look(gpu(), mig) == {}
    file.unlink()
    (folder / "driver").unlink()
    assert kinds(machine.look(gpu(), mig)) == {GPU: [Trouble.UNBOUND], "mig-x": [Trouble.NODE]}


def test_a_port_that_is_not_active_is_told_where_a_rule_asks(machine: _Machine) -> None:
    machine.function(NIC, current_link_speed="32.0 GT/s PCIe")
    folder = machine.root / "sys/class/infiniband/mlx5_0/ports/1"
    machine.write(folder, state="1: DOWN", phys_state="3: Disabled")
    device = nic(rdmaDevice="mlx5_0")
    detail = "port 1 of mlx5_0 is DOWN (physically Disabled)"
    assert machine.look(device) == {NIC: (Condition(Trouble.PORT, detail),)}
    assert machine.look(device, rules=CARELESS) == {}
    assert machine.look(nic(rdmaDevice="mlx5_0", inPod=True)) == {}
    machine.write(folder, state="4: ACTIVE")
    assert machine.look(device) == {}


def test_the_second_port_of_an_adapter_is_its_own(machine: _Machine) -> None:
    machine.function(NIC, current_link_speed="32.0 GT/s PCIe")
    machine.write(machine.root / "sys/class/infiniband/mlx5_0/ports/1", state="4: ACTIVE")
    machine.write(machine.root / "sys/class/infiniband/mlx5_0/ports/2", state="2: INIT")
    second = nic(f"{NIC}-p1", rdmaDevice="mlx5_0", port=1)
    assert kinds(machine.look(nic(rdmaDevice="mlx5_0", port=0), second)) == {second.name: [Trouble.PORT]}


def test_a_subfunction_that_is_not_bound_is_told_and_its_function_is_not(machine: _Machine) -> None:
    machine.function(NIC, current_link_speed="32.0 GT/s PCIe")
    part = nic(f"{NIC}-sf88", auxDevice="mlx5_core.sf.2", sriovFunction="sf", pfName="ens1")
    folder = machine.root / "sys/bus/auxiliary/devices/mlx5_core.sf.2"
    machine.write(folder, driver="")
    assert machine.look(nic(), part) == {}
    (folder / "driver").unlink()
    assert kinds(machine.look(nic(), part)) == {part.name: [Trouble.UNBOUND]}
    shutil.rmtree(folder)
    assert kinds(machine.look(nic(), part)) == {part.name: [Trouble.UNBOUND]}, "removed, and not off its bus"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENODEV, errno.EINVAL, errno.ENOENT, errno.EACCES])
def test_a_file_that_cannot_be_read_is_no_trouble(machine: _Machine, number: int) -> None:
    machine.function(GPU, current_link_width="8", aer_dev_fatal="TOTAL_ERR_FATAL 0")
    machine.broken = dict.fromkeys(("current_link_width", "aer_dev_fatal"), number)
    assert machine.look(gpu()) == {}
    assert machine.look(gpu()) == {}
    machine.broken = {}
    assert kinds(machine.look(gpu())) == {GPU: [Trouble.PCIE_LINK]}


def test_a_device_that_is_gone_is_not_looked_at(machine: _Machine) -> None:
    gone = replace(gpu(), health=Health(HealthState.UNHEALTHY, "gone from the PCI bus"))
    assert machine.look(gone) == {}
    assert not machine.reads


def test_what_a_function_does_not_have_is_asked_for_once(machine: _Machine) -> None:
    machine.function(GPU, aer_dev_fatal="TOTAL_ERR_FATAL 0")
    for _ in range(5):
        machine.look(gpu())
    assert machine.reads == {
        "max_link_width": 2,
        "max_link_speed": 2,
        "current_link_width": 5,
        "aer_dev_fatal": 5,
    }


def test_the_ports_of_a_function_are_looked_at_together(machine: _Machine) -> None:
    plan = watched(snapshot(nic(), nic(f"{NIC}-p1")), CARING)
    assert [each.address for each in plan] == [address_of(NIC)] * 2
