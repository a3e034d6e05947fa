"""A GPU vendor is one value: the rest of the product asks it, and names none that needs no code of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from node.inventory.devices import devices_of
from node.inventory.facts import NodeFacts, PciFunction, SysfsFacts
from node.inventory.identity import Identities
from node.inventory.model import Device, DeviceKind
from node.inventory.vendor import Family, Vendor, VendorResource
from node.inventory.vendors import VENDORS, family_of, vendor_id
from node.rules import is_extended_resource_name

ROOT = Path(__file__).parents[3]
PRODUCT = ("node", "plugin", "driver", "scheduling", "sandbox", "ostler", "kube")


def acme_devices(facts: NodeFacts, _: Identities) -> Iterable[Device]:
    functions = facts.sysfs.pci if facts.sysfs is not None else ()
    return [
        Device(f"gpu-{function.address.replace(':', '-').replace('.', '-')}", DeviceKind.GPU, "acme")
        for function in functions
        if function.vendor == "0xacce"
    ]


ACME = Vendor(
    name="acme",
    title="Acme",
    pci_vendor="0xacce",
    drivers=("acmegpu",),
    devices=acme_devices,
    resources=(VendorResource("acme.example/gpu"),),
    dra_driver="gpu.acme.example",
    cdi_class="acme-gpu",
)


def test_devices_of_a_vendor_come_by_its_value_alone() -> None:
    function = PciFunction("0000:01:00.0", "pci0000:00/0000:00:01.0/0000:01:00.0", "0x030200", "0xacce", "0x0001")
    facts = NodeFacts(sysfs=SysfsFacts(pci=(function,)))
    assert devices_of(facts, Identities()) == ()
    (device,) = devices_of(facts, Identities(), (*VENDORS, ACME))
    assert device.name == "gpu-0000-01-00-0"


def test_a_device_of_an_unknown_vendor_is_given_by_its_nodes_under_its_address() -> None:
    device = Device("gpu-0000-01-00-0", DeviceKind.GPU, "acme", pci_address="0000:01:00.0")
    assert (family_of(device), vendor_id(device)) == (Family.NODES, "0000:01:00.0")


def test_no_file_outside_its_folder_and_the_list_names_gaudi() -> None:
    word = re.compile(r"habana|gaudi|0x1da3", re.IGNORECASE)
    named = {
        str(path.relative_to(ROOT))
        for folder in PRODUCT
        for path in (ROOT / folder).rglob("*.py")
        if word.search(path.read_text())
    }
    assert {name for name in named if not name.startswith("node/inventory/habana/")} == {"node/inventory/vendors.py"}


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: str(vendor.name))
def test_a_vendor_says_all_that_is_asked(vendor: Vendor) -> None:
    assert re.fullmatch(r"0x[0-9a-f]{4}", vendor.pci_vendor)
    assert vendor.drivers
    assert all(is_extended_resource_name(each.name.replace("{profile}", "1g.5gb")) for each in vendor.resources)
    assert all(set(each.drivers) <= set(vendor.drivers) for each in vendor.resources)
    assert DeviceKind.GPU in vendor.kinds
    assert all(re.fullmatch(vendor.modules, driver) for driver in vendor.drivers)
    assert all(re.compile(names) for _, names in vendor.device_files)


@pytest.mark.parametrize("field", ["name", "title", "pci_vendor", "dra_driver", "cdi_class"])
def test_no_two_vendors_share_what_tells_them_apart(field: str) -> None:
    assert len({getattr(vendor, field) for vendor in VENDORS}) == len(VENDORS)


def test_a_vendor_has_one_list_of_resources_that_no_other_has() -> None:
    names = [each.name for vendor in VENDORS for each in vendor.resources]
    assert len(set(names)) == len(names)


def test_the_chart_knows_the_nodes_of_every_vendor_by_its_pci_id() -> None:
    template = (ROOT / "deploy/helm/ostler/templates/_placement.tpl").read_text()
    for vendor in VENDORS:
        digits = vendor.pci_vendor.removeprefix("0x")
        assert re.search(rf"^{vendor.name}: \[pci-{digits}, ", template, re.MULTILINE)


def test_the_chart_lets_agents_run_on_nodes_of_every_vendor_and_write_its_resources() -> None:
    values = yaml.safe_load((ROOT / "deploy/helm/ostler/values.yaml").read_text())
    tolerated = {toleration["key"] for toleration in values["tolerations"]}
    for vendor in VENDORS:
        names = [each.name for each in vendor.resources]
        assert tolerated.intersection(names), f"no toleration for the taint that nodes with {names} have"
        for name in names:
            assert any(fnmatch(name, pattern) for pattern in values["patchAllocatable"]["resources"]), name
