"""Checks of NICs."""

from __future__ import annotations

from pathlib import Path

from node.eligibility import offer
from node.inventory.model import Attribute, Device, DeviceKind, Snapshot
from node.ledger.offer_context import NOTHING_HELD
from node.rules import Door, Selector
from node.values import replace
from node.virtual_functions import VfState, VfVerdict, VirtualFunctionRule
from ostler.doctor.check import CheckVerdict
from ostler.doctor.devices import judge_firmware, judge_host_use, judge_namespace, judge_virtual_functions
from tests.making.sriov_kernel import SriovKernel, physical
from tests.node.sysfs.tree import MELLANOX, SysfsTree
from tests.ostler.doctor.nodes import configured, examined, says, view, write

RULE = "resources:\n- name: example.com/nic\n  devices: {{kind: nic{more}}}\n"


def nic(number: int, firmware: str = "28.1", use: str = "") -> Device:
    return Device(
        f"nic-0000-86-00-{number}",
        DeviceKind.NIC,
        "mellanox",
        pci_address=f"0000:86:00.{number}",
        attributes=tuple(
            Attribute(name, value)
            for name, value in (("firmwareVersion", firmware), ("pciDeviceId", "1021"), ("pciVendorId", "15b3"))
            if value
        ),
        host_use=use,
    )


def test_rules_for_nics_need_the_hosts_network(tmp_path: Path) -> None:
    says(examined(view(tmp_path), "network-namespace"), CheckVerdict.SKIPPED, "no rule offers NICs")
    loaded = configured(RULE.format(more=""), tmp_path)
    pod = view(tmp_path, loaded, environment={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    says(
        examined(pod, "network-namespace"),
        CheckVerdict.WARNING,
        "not the host's network namespace",
        "hostNetwork: true",
    )
    says(
        examined(view(tmp_path, loaded), "network-namespace"),
        CheckVerdict.WARNING,
        "cannot be seen",
        "run it in the host's",
    )
    write(tmp_path, {"proc/sys/net/core/dev_weight": "64\n"})
    says(examined(pod, "network-namespace"), CheckVerdict.OK, "the host's network namespace")
    says(judge_namespace(wanted=False, host_network=False, in_pod=True), CheckVerdict.SKIPPED, "no rule offers NICs")


def test_a_nic_that_the_node_uses_is_kept_back(tmp_path: Path) -> None:
    devices = (nic(0, use="carries the node's default route"), nic(1))
    rules = configured(RULE.format(more=""), tmp_path).settings.rules
    finding = judge_host_use(devices, offer(Snapshot(1, devices), rules, NOTHING_HELD, Door.PLUGIN))
    says(finding, CheckVerdict.OK, "withheld: nic-0000-86-00-0 (carries the node's default route)")


def test_a_rule_that_names_the_nodes_own_nic_is_a_warning(tmp_path: Path) -> None:
    devices = (nic(0, use="carries the node's default route"),)
    rules = configured(RULE.format(more=', pciAddress: "0000:86:00.0"'), tmp_path).settings.rules
    finding = judge_host_use(devices, offer(Snapshot(1, devices), rules, NOTHING_HELD, Door.PLUGIN))
    says(
        finding,
        CheckVerdict.WARNING,
        "nic-0000-86-00-0 (carries the node's default route) as example.com/nic",
        "remove its name",
    )


def test_nics_are_found_without_an_agent(tmp_path: Path) -> None:
    SysfsTree(tmp_path).pci("pci0000:80/0000:80:01.0/0000:86:00.0", MELLANOX, driver="mlx5_core")
    node = view(tmp_path, configured(RULE.format(more=""), tmp_path))
    assert [device.pci_address for device in node.devices()] == ["0000:86:00.0"]
    says(examined(node, "nic-host-use"), CheckVerdict.OK, "none in use by the node")
    says(examined(node, "nic-firmware"), CheckVerdict.SKIPPED, "no NIC reports its firmware")


def test_one_model_has_one_firmware() -> None:
    says(judge_firmware([nic(0), nic(1)]), CheckVerdict.OK, "2 NICs report their firmware")
    mixed = judge_firmware([nic(0), nic(1, "28.2")])
    says(mixed, CheckVerdict.WARNING, "15b3:1021: 28.1 (nic-0000-86-00-0), 28.2 (nic-0000-86-00-1)", "one version")
    other = replace(nic(1, "16.9"), attributes=(*nic(1, "16.9").attributes[:1], Attribute("pciDeviceId", "1017")))
    says(judge_firmware([nic(0), other]), CheckVerdict.OK, "2 NICs")


WANTED = "virtualFunctions: [{devices: {rootDevices: ['0000:86:00.0']}, count: 4}]\n"


def test_virtual_functions_that_nobody_asks_for_are_no_check(tmp_path: Path) -> None:
    says(examined(view(tmp_path), "virtual-functions"), CheckVerdict.SKIPPED, "makes no virtual functions")


def test_functions_that_select_nothing_are_a_warning(tmp_path: Path) -> None:
    finding = examined(view(tmp_path, configured(WANTED, tmp_path)), "virtual-functions")
    says(finding, CheckVerdict.WARNING, "selects no NIC with SR-IOV", "turn SR-IOV on in the machine's BIOS")


def test_a_function_that_has_them_or_can_get_them_is_fine(tmp_path: Path) -> None:
    kernel = SriovKernel(tmp_path, physical())
    node = view(tmp_path, configured(WANTED, tmp_path))
    says(examined(node, "virtual-functions"), CheckVerdict.OK, "0 of 1 physical functions have")
    kernel(kernel.sys / "bus/pci/devices/0000:86:00.0/sriov_numvfs", "4")
    node = view(tmp_path, configured(WANTED, tmp_path))
    says(examined(node, "virtual-functions"), CheckVerdict.OK, "1 of 1 physical functions have")


def test_what_keeps_them_from_being_made_is_said(tmp_path: Path) -> None:
    SriovKernel(tmp_path, physical(total=2))
    finding = examined(view(tmp_path, configured(WANTED, tmp_path)), "virtual-functions")
    says(
        finding,
        CheckVerdict.WARNING,
        "4 virtual functions cannot be made of nic-0000-86-00-0: its firmware allows 2 (sriov_totalvfs)",
        "ask for at most 2, or raise that in its firmware",
    )


def test_a_sysfs_that_cannot_be_written_fails() -> None:
    rule = VirtualFunctionRule(Selector(), 4)
    found = [VfVerdict(nic(0), rule, state) for state in (VfState.TO_MAKE, VfState.MADE)]
    says(
        judge_virtual_functions(found, "sriov_numvfs is not writable"),
        CheckVerdict.FAILED,
        "4 virtual functions cannot be made of nic-0000-86-00-0: sriov_numvfs is not writable",
        "in the chart set nics.virtualFunctions to true",
    )
    assert judge_virtual_functions(found[1:], "sriov_numvfs is not writable").verdict is CheckVerdict.OK
