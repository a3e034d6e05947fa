"""What the node itself uses an interface for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from node.inventory.net_facts import HostAddress, HostLink, HostRoute, NetworkFacts
from node.inventory.nics.use import HostUses
from node.values import replace
from tests.making.nic_facts import interface, learned, nic, nics, only, seen


def use(
    name: str, *links: HostLink, routes: tuple[HostRoute, ...] = (), addresses: tuple[HostAddress, ...] = ()
) -> str:
    return HostUses(NetworkFacts(links, addresses, routes)).of(name)


def test_interface_with_the_default_route_carries_it() -> None:
    assert use("eth0", routes=(HostRoute("eth0", 4), HostRoute("eth0", 4, 100))) == (
        "carries the node's default route (IPv4, by eth0)"
    )
    assert use("eth0", routes=(HostRoute("eth0", 6), HostRoute("eth0", 4))) == (
        "carries the node's default route (IPv4 and IPv6, by eth0)"
    )
    assert use("eth1", HostLink("eth1"), routes=(HostRoute("eth0", 4),)) == ""


def test_address_in_use_is_named() -> None:
    assert use("eth0", addresses=(HostAddress("eth0", "10.0.0.7/24"),)) == "has the node's address 10.0.0.7/24"


def test_many_addresses_are_counted() -> None:
    many = tuple(HostAddress("eth0", f"10.0.0.{number}/24") for number in range(5))
    assert use("eth0", addresses=many) == ("has the node's addresses 10.0.0.0/24, 10.0.0.1/24, 10.0.0.2/24 and 2 more")


def test_member_of_a_bond_or_bridge_is_told_with_what_that_is_for() -> None:
    links = (HostLink("eth0", master="bond0"), HostLink("eth1", master="bond0"), HostLink("bond0", "bond"))
    bonded = use("eth0", *links, routes=(HostRoute("bond0", 4),), addresses=(HostAddress("bond0", "10.0.0.7/24"),))
    assert bonded == (
        "is in bond0; carries the node's default route (IPv4, by bond0); has the node's address 10.0.0.7/24 by bond0"
    )
    assert use("eth0", HostLink("eth0", master="br0"), HostLink("br0", "bridge")) == "is in bridge br0"
    assert use("eth0", HostLink("eth0", master="unseen")) == "is in unseen"


def test_uses_are_found_several_levels_up() -> None:
    links = (
        HostLink("eth0", master="bond0"),
        HostLink("bond0", "bond"),
        HostLink("bond0.100", "vlan", lower="bond0", master="br-ex"),
        HostLink("br-ex", "bridge"),
    )
    found = use("eth0", *links, routes=(HostRoute("br-ex", 4),))
    assert found == ("is in bond0; is in bridge br-ex by bond0.100; carries the node's default route (IPv4, by br-ex)")


def test_vlan_alone_is_no_use_and_its_address_is() -> None:
    vlan = HostLink("eth0.7", "vlan", lower="eth0")
    assert use("eth0", HostLink("eth0"), vlan) == ""
    assert use("eth0", vlan, addresses=(HostAddress("eth0.7", "fd00::7/64"),)) == (
        "has the node's address fd00::7/64 by eth0.7"
    )


def test_loop_of_masters_ends() -> None:
    links = (HostLink("a", master="b"), HostLink("b", master="a", lower="a"))
    assert use("a", *links) == "is in b; is in a by b"


names = st.sampled_from(["a", "b", "c", "d"])
some = st.one_of(st.none(), names)
networks = st.builds(
    NetworkFacts,
    links=st.lists(st.builds(HostLink, name=names, kind=st.sampled_from(["", "bond"]), master=some, lower=some)).map(
        tuple
    ),
    addresses=st.lists(st.builds(HostAddress, names, st.just("10.0.0.7/24"))).map(tuple),
    default_routes=st.lists(st.builds(HostRoute, names, st.sampled_from([4, 6]))).map(tuple),
)


@given(networks, names)
def test_every_interface_with_a_route_or_address_is_in_use(network: NetworkFacts, name: str) -> None:
    found = HostUses(network).of(name)
    used = {each.interface for each in network.addresses} | {each.interface for each in network.default_routes}
    assert name not in used or found


def test_member_of_a_vrf_or_with_an_ipv6_route_alone_is_in_use() -> None:
    links = (HostLink("eth0", master="blue"), HostLink("blue", "vrf"), HostLink("eth1"))
    assert use("eth0", *links) == "is in vrf blue"
    assert use("eth1", *links, routes=(HostRoute("eth1", 6, 1024),)) == (
        "carries the node's default route (IPv6, by eth1)"
    )


def test_while_a_table_was_never_read_every_interface_may_serve_the_node() -> None:
    failed = "netlink: routes: Operation not permitted"
    network = NetworkFacts((HostLink("eth0"), HostLink("eth1")), errors=(failed,), unread=failed)
    assert HostUses(network).of("eth1") == f"may be used by the node itself, which ostler cannot find out: {failed}"
    known = replace(network, addresses=(HostAddress("eth0", "10.0.0.7/24"),))
    assert HostUses(known).of("eth0") == "has the node's address 10.0.0.7/24"
    assert HostUses(replace(network, unread=None)).of("eth1") == ""  # What was read last stands.


def test_interface_of_another_network_namespace_may_serve_the_node() -> None:
    assert use("eth1", HostLink("eth0")) == (
        "may be used by the node itself, which ostler cannot find out: "
        "it is not in the agent's network namespace (hostNetwork: true)"
    )
    assert HostUses(None).of("eth1") == ""


def test_device_whose_use_is_unknown_tells_it_and_one_without_an_interface_is_free() -> None:
    one, other = nic(), nic(1, driver="vfio-pci")
    network = NetworkFacts(errors=("netlink: links: refused",), unread="netlink: links: refused")
    found = seen(nics(one, other, network=network, interfaces=(interface(one, "eth0"),)))
    assert {name: device.host_use for name, device in found.items()} == {
        "nic-0000-86-00-0": "may be used by the node itself, which ostler cannot find out: netlink: links: refused",
        "nic-0000-86-00-1": "",
    }


def test_device_of_a_used_interface_tells_it_and_one_in_a_pod_does_not() -> None:
    one = nic()
    network = NetworkFacts(default_routes=(HostRoute("eth0", 4),))
    facts = nics(one, network=network, interfaces=(interface(one, "eth0"),))
    assert only(facts).host_use == "carries the node's default route (IPv4, by eth0)"
    assert only(nics(one, network=network), learned(facts)).host_use == ""
    assert only(nics(one, interfaces=(interface(one, "eth0"),))).host_use == ""
