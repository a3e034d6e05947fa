"""Intel Gaudi cards out of facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node.health.state import HealthState, Recovery
from node.inventory.devices import devices_of
from node.inventory.facts import AcceleratorFacts, DeviceFile, DriverText, NodeFacts, PciFunction, SysfsFacts
from node.inventory.identity import Identities
from node.inventory.model import Device
from node.inventory.net_facts import RdmaDevice, RdmaFile

CARD = PciFunction(
    "0000:33:00.0",
    "pci0000:30/0000:30:01.0/0000:33:00.0",
    "0x120000",
    "0x1da3",
    "0x1020",
    numa_node=0,
    driver="habanalabs",
)
FILES = tuple(DeviceFile(f"/dev/accel/{name}", "c", 261, 0) for name in ("accel0", "accel_controlD0"))
TEXTS = {"module_id": "3", "cpucp_ver": "hl-gaudi2-1.16.2", "status": "operational"}


def accelerator(**changed: str) -> AcceleratorFacts:
    texts = tuple(DriverText(name, text) for name, text in {**TEXTS, **changed}.items())
    return AcceleratorFacts(CARD.address, ("accel0", "accel_controlD0"), texts)


def devices(
    *functions: PciFunction,
    own: tuple[AcceleratorFacts, ...] = (accelerator(),),
    files: tuple[DeviceFile, ...] = FILES,
    rdma: tuple[RdmaDevice, ...] = (),
) -> tuple[Device, ...]:
    sysfs = SysfsFacts(pci=functions, accelerators=own, device_files=files, rdma=rdma)
    return devices_of(NodeFacts(sysfs=sysfs), Identities())


def test_a_card_carries_its_product_module_and_nodes() -> None:
    (card,) = devices(CARD)
    assert (card.name, card.kind, card.vendor, card.index) == ("gpu-0000-33-00-0", "gpu", "habana", "0")
    assert (card.text("productName"), card.attribute("moduleID")) == ("Gaudi2", 3)
    assert (card.text("firmwareVersion"), card.text("driver")) == ("hl-gaudi2-1.16.2", "habanalabs")
    assert card.text("resource.kubernetes.io/pcieRoot") == "pci0000:30"
    assert [node.path for node in card.nodes] == ["/dev/accel/accel0", "/dev/accel/accel_controlD0"]
    assert card.health.state is HealthState.HEALTHY


@pytest.mark.parametrize(
    ("status", "state", "recovery"),
    [
        ("Operational", HealthState.HEALTHY, None),
        ("in reset after device release", HealthState.HEALTHY, None),
        ("in device creation", HealthState.DEGRADED, Recovery.AUTOMATIC),
        ("In reset", HealthState.UNHEALTHY, Recovery.AUTOMATIC),
        ("needs reset", HealthState.UNHEALTHY, Recovery.RESET),
        ("malfunction", HealthState.UNHEALTHY, Recovery.RESET),
        ("on holiday", HealthState.DEGRADED, Recovery.AUTOMATIC),
    ],
)
def test_health_is_what_the_driver_says(status: str, state: HealthState, recovery: Recovery | None) -> None:
    (card,) = devices(CARD, own=(accelerator(status=status),))
    assert card.health.state is state
    assert recovery is None or card.health.recovery is recovery


@pytest.mark.parametrize(
    ("function", "own", "files", "reason"),
    [
        (replace(CARD, driver=None), (), FILES, "no driver is bound to it, it needs habanalabs"),
        (replace(CARD, driver="vfio-pci"), (), FILES, "the driver vfio-pci is bound to it, it needs habanalabs"),
        (CARD, (), FILES, "habanalabs shows no entry of it in /sys/class/accel; see 'dmesg' for habanalabs"),
        (CARD, (accelerator(),), FILES[:1], "its device nodes are missing: /dev/accel/accel_controlD0"),
    ],
)
def test_a_card_that_cannot_be_used_says_why(
    function: PciFunction, own: tuple[AcceleratorFacts, ...], files: tuple[DeviceFile, ...], reason: str
) -> None:
    (card,) = devices(function, own=own, files=files)
    assert card.health.state is HealthState.UNHEALTHY
    assert card.health.reason == reason


def test_the_rdma_device_of_a_card_is_given_with_it_and_is_none_of_its_own() -> None:
    rdma = RdmaDevice("hlib_0", f"{CARD.path}/infiniband/hlib_0", files=(RdmaFile("uverbs4", 231, 196),))
    verbs = DeviceFile("/dev/infiniband/uverbs4", "c", 231, 196)
    (card,) = devices(CARD, files=(*FILES, verbs), rdma=(rdma,))
    assert card.nodes[-1].path == "/dev/infiniband/uverbs4"
    assert card.health.usable


def test_other_functions_of_the_vendor_are_no_cards() -> None:
    assert devices(replace(CARD, class_code="0x058000"), replace(CARD, vendor="0x1234")) == ()
    assert devices_of(NodeFacts(), Identities()) == ()
