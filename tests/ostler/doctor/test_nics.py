"""Checks of NICs."""

from __future__ import annotations

from pathlib import Path

from node.eligibility import offer
from node.inventory.model import Attribute, Device, DeviceKind, Snapshot
from node.ledger.offer_context import NOTHING_HELD
from node.rules import Door
from node.values import replace
from ostler.doctor.check import CheckVerdict
from ostler.doctor.devices import judge_firmware, judge_host_use, judge_namespace
from tests.node.sysfs.tree import MELLANOX, Tree
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
    Tree(tmp_path).pci("pci0000:80/0000:80:01.0/0000:86:00.0", MELLANOX, driver="mlx5_core")
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
