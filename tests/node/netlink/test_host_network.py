"""The source of what the node uses its interfaces for, over tables of the test's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import pytest

from node.inventory.net_facts import HostAddress, HostLink, HostRoute, NetworkFacts
from node.inventory.network.host import DriverInfo, HostNetwork, driver_info
from node.inventory.network.rtnetlink import Address, DefaultRoute, Link
from node.netlink import NetlinkError

Row = TypeVar("Row")


@dataclass
class FakeTables:
    known: tuple[Link, ...] = ()
    used: tuple[Address, ...] = ()
    routes: tuple[DefaultRoute, ...] = ()
    broken: str = ""

    def links(self) -> tuple[Link, ...]:
        return self._unless_broken("links", self.known)

    def addresses(self) -> tuple[Address, ...]:
        return self._unless_broken("addresses", self.used)

    def default_routes(self) -> tuple[DefaultRoute, ...]:
        return self._unless_broken("routes", self.routes)

    def _unless_broken(self, name: str, found: tuple[Row, ...]) -> tuple[Row, ...]:
        if self.broken == name:
            raise NetlinkError(name, "Operation not permitted", 1)
        return found


BOND = FakeTables(
    known=(
        Link(1, "lo", loopback=True, up=True),
        Link(2, "ens1np0", up=True, master=4, permanent_address="02:00:00:00:00:01"),
        Link(3, "ens2np0", up=True, master=4),
        Link(4, "bond0", kind="bond", up=True),
        Link(5, "bond0.7", kind="vlan", up=True, lower=4),
        Link(6, "cali12", kind="veth", up=True),
        Link(7, "kube-ipvs0", kind="dummy"),
    ),
    used=(
        Address(1, "10.9.9.9/32"),
        Address(5, "10.0.0.7/24"),
        Address(5, "fe80::1/64", wide=False),
        Address(6, "10.1.1.1/32"),
        Address(7, "10.96.0.1/32"),
    ),
    routes=(DefaultRoute(5, 4, 100), DefaultRoute(5, 4, 100), DefaultRoute(6, 4)),
)


def read(source: HostNetwork) -> NetworkFacts:
    facts = source.read().network
    assert facts is not None
    return facts


def test_pods_links_and_loopback_are_left_out_with_all_they_carry() -> None:
    facts = read(HostNetwork(BOND, driver=lambda _: DriverInfo("mlx5_core", "28.39")))
    assert facts.links == (
        HostLink("bond0", "bond", up=True),
        HostLink("bond0.7", "vlan", up=True, lower="bond0"),
        HostLink(
            "ens1np0",
            up=True,
            master="bond0",
            permanent_address="02:00:00:00:00:01",
            driver="mlx5_core",
            firmware_version="28.39",
        ),
        HostLink("ens2np0", up=True, master="bond0", driver="mlx5_core", firmware_version="28.39"),
    )
    assert facts.addresses == (HostAddress("bond0.7", "10.0.0.7/24"),)
    assert facts.default_routes == (HostRoute("bond0.7", 4, 100),)
    assert facts.errors == ()


def test_a_table_that_cannot_be_read_keeps_what_was_there_and_says_so() -> None:
    tables = FakeTables(BOND.known, BOND.used, BOND.routes)
    source = HostNetwork(tables, driver=lambda _: DriverInfo())
    before = read(source)
    tables.broken, tables.used = "routes", ()
    after = read(source)
    assert after.default_routes == before.default_routes
    assert after.addresses == ()
    assert after.unread is None
    assert after.errors == ("netlink: routes: Operation not permitted; the last content counts",)


def test_a_scan_of_gpus_has_the_facts_of_the_last_scan() -> None:
    tables = FakeTables(BOND.known, BOND.used, BOND.routes)
    source = HostNetwork(tables, driver=lambda _: DriverInfo())
    before = source.read_gpus(frozenset({"GPU-0"})).network
    tables.routes = ()
    assert source.read_gpus(frozenset({"GPU-0"})).network is before
    after = read(source)
    assert after.default_routes == ()
    source.close()
    tables.routes = BOND.routes
    assert source.read_gpus(frozenset({"GPU-0"})).network == before


@pytest.mark.parametrize("table", ["links", "addresses", "routes"])
def test_a_table_that_was_never_read_is_told_until_it_is(table: str) -> None:
    tables = FakeTables(broken=table)
    source = HostNetwork(tables, driver=lambda _: DriverInfo())
    facts = read(source)
    assert (facts.links, facts.addresses, facts.default_routes) == ((), (), ())
    assert facts.errors == (f"netlink: {table}: Operation not permitted",)
    assert facts.unread == facts.errors[0]
    tables.broken = ""
    assert read(source) == NetworkFacts()  # The node has nothing, and that is known.
    tables.broken = table
    assert read(source).unread is None
    source.close()
    assert read(source).unread == facts.unread


def test_this_machine_is_read_without_an_error() -> None:
    facts = read(HostNetwork())
    assert facts.errors == ()
    assert "lo" not in {link.name for link in facts.links}


def test_an_interface_that_does_not_exist_has_no_driver() -> None:
    assert driver_info("no-such-link") == DriverInfo()
    assert driver_info("a name much too long for an interface") == DriverInfo()
