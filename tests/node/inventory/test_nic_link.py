"""Whether a NIC's link is up."""

from __future__ import annotations

import pytest

from tests.making.nic_facts import attributes, interface, learned, nic, nics, only, port, rdma, seen, vf


def link(carrier: bool | None, operstate: str | None, **rdma_port: object) -> object:
    one = nic()
    devices = (rdma(one, "mlx5_0", port(**rdma_port)),) if rdma_port else ()  # type: ignore[arg-type]
    facts = nics(one, interfaces=(interface(one, "eth0", carrier=carrier, operstate=operstate),), rdma=devices)
    return attributes(only(facts)).get("linkUp")


@pytest.mark.parametrize(
    ("carrier", "operstate", "up"),
    [
        (True, "up", True),
        (True, "unknown", True),
        (False, "down", False),
        (None, "up", True),
        (None, "down", False),
        (None, "lowerlayerdown", False),
        (None, "unknown", None),
        (None, None, None),
    ],
)
def test_carrier_counts_and_operstate_without_it(carrier: bool | None, operstate: str | None, up: bool | None) -> None:
    assert link(carrier, operstate) is up


def test_ethernet_interface_counts_before_its_rdma_port() -> None:
    assert link(False, "down", state="4: ACTIVE") is False
    assert link(None, "unknown", state="4: ACTIVE") is True


def test_infiniband_port_counts_before_its_interface() -> None:
    hca = nic(class_code="0x020700")
    ipoib = interface(hca, "ib0", link_type=32, carrier=None, operstate="down")
    for state, up in (("4: ACTIVE", True), ("1: DOWN", False), ("2: INIT", False)):
        facts = nics(hca, interfaces=(ipoib,), rdma=(rdma(hca, "mlx5_0", port(state=state)),))
        assert attributes(only(facts))["linkUp"] is up


@pytest.mark.parametrize(("carrier", "operstate", "up"), [(True, "up", True), (None, "down", False)])
def test_idle_virtual_function_has_its_physical_functions_link(carrier: bool | None, operstate: str, up: bool) -> None:
    one = nic(sriov_totalvfs=8)
    uplink = interface(one, "eth0", carrier=carrier, operstate=operstate)
    without, idle = vf(0, driver="vfio-pci"), vf(1)
    facts = nics(one, without, idle, interfaces=(uplink, interface(idle, "v1", carrier=None, operstate="down")))
    assert {device.attribute("linkUp") for device in seen(facts).values()} == {up}


def test_virtual_function_that_is_up_tells_of_its_own_link() -> None:
    one, other = nic(sriov_totalvfs=8), vf(0)
    facts = nics(one, other, interfaces=(interface(one, "eth0"), interface(other, "v0", carrier=False)))
    assert seen(facts)["nic-0000-86-00-2"].attribute("linkUp") is False


def test_link_of_a_nic_in_a_pod_is_not_known() -> None:
    one = nic()
    before = learned(nics(one, interfaces=(interface(one, "eth0"),)))
    assert "linkUp" not in attributes(only(nics(one), before))
    assert "linkUp" not in attributes(only(nics(nic(driver="vfio-pci"))))


@pytest.mark.parametrize(("rate", "gbps"), [("2.5 Gb/sec (1X SDR)", 2), ("56 Gb/sec (4X FDR)", 56), ("odd", None)])
def test_rate_is_whole_gigabits(rate: str, gbps: int | None) -> None:
    one = nic()
    assert (
        attributes(only(nics(one, rdma=(rdma(one, "mlx5_0", port(rate=rate, state=None)),)))).get("rdmaRateGbps")
        == gbps
    )


def test_rdma_device_without_ports_has_no_state() -> None:
    one = nic()
    device = rdma(one, "mlx5_0")
    found = attributes(only(nics(one, rdma=(type(device)(device.name, device.path),))))
    assert found["rdma"] is True
    assert not found.keys() & {"rdmaPortState", "linkUp"}
