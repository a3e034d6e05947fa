"""Interfaces move into real network namespaces and come back as they were."""

from __future__ import annotations

import errno
import logging
import os
import socket
from pathlib import Path

import pytest

from node.interfaces.model import InterfaceError, MovableInterface, Neighbor, Route, RoutingRule
from node.values import replace
from tests.making.network_namespaces import namespaces
from tests.node.interfaces.conftest import DEVICE, PodsNode

pytestmark = pytest.mark.needs_root

RICH = (
    "link set v0 alias rail-of-the-fabric",
    "link set v0 mtu 1400",
    "address add 10.7.0.2/24 dev v0",
    "address add fd00:7::2/64 dev v0 nodad",
    "link set v0 up",
    "route add 10.9.0.0/16 via 10.7.0.1",
    "route add default via 10.7.0.1 table 77 metric 5 proto dhcp",
    "route add 10.10.0.0/16 via 10.66.0.1 dev v0 onlink",
    "route add fd00:9::/64 via fd00:7::1",
    "rule add from 10.7.0.2 table 77 priority 1000",
    "neighbor add 10.7.0.9 lladdr 02:00:00:00:00:09 dev v0 nud permanent",
)
"""What an operator may have given an interface."""


def test_an_interface_keeps_what_it_had_on_the_node_unless_the_claim_says_otherwise(node: PodsNode) -> None:
    node.host.ip(*RICH)
    attached = node.attach(node.interface())
    assert (attached.device, attached.name, attached.mtu) == (DEVICE, "v0", 1400)
    assert attached.hardware_address == "02:00:00:00:86:00"
    assert attached.addresses == ("10.7.0.2/24", "fd00:7::2/64")
    assert node.host.names() == {"v1"}
    [link] = node.pod.shows("link", "show", "v0")
    assert link["operstate"] == "UP"
    assert link["ifalias"] == f"ostler:{DEVICE}"
    shown = [*node.pod.shows("route", "show", "table", "all"), *node.pod.shows("-6", "route")]
    assert {
        ("10.9.0.0/16", "10.7.0.1"),
        ("default", "10.7.0.1"),
        ("10.10.0.0/16", "10.66.0.1"),
        ("fd00:9::/64", "fd00:7::1"),
    } <= {(each["dst"], each.get("gateway")) for each in shown}
    assert ("10.7.0.2", "77") in {(each.get("src"), each.get("table")) for each in node.pod.shows("rule")}


def test_everything_is_restored(node: PodsNode) -> None:
    node.host.ip(*RICH)
    node.host.run(lambda: _write("/proc/sys/net/ipv4/conf/v0/arp_ignore", "2"))
    interface = node.interface(
        name="rail0",
        addresses=("192.168.1.5/24",),
        routes=(Route("0.0.0.0/0", gateway="192.168.1.1"), Route("172.16.0.0/12", scope="link", table=300)),
        rules=(RoutingRule(300, source="192.168.1.0/24", priority=500),),
        neighbors=(Neighbor("192.168.1.1", "02:00:00:00:00:01"),),
        mtu=9000,
        hardware_address="02:00:00:00:00:77",
        features=(("tso", False), ("rx-gro", True)),
        sysctls=(("ipv4/arp_announce", "2"), ("ipv6/accept_ra", "0")),
        keep_ebpf=False,
    )
    setup, rules = node.look(interface), node.host.shows("rule")
    attached = node.attach(interface, setup)
    assert (attached.name, attached.mtu, attached.addresses) == ("rail0", 9000, ("192.168.1.5/24",))
    assert node.pod.run(lambda: _read("/proc/sys/net/ipv4/conf/rail0/arp_announce")) == "2"
    [neighbor] = node.pod.shows("neighbor", "show", "nud", "permanent", "dev", "rail0")
    assert (neighbor["dst"], neighbor["lladdr"]) == ("192.168.1.1", "02:00:00:00:00:01")
    assert "192.168.1.0" in {each.get("src") for each in node.pod.shows("rule")}

    assert node.detach(interface, setup)
    assert node.look(interface) == setup
    assert node.host.shows("rule") == rules
    assert node.pod.names() == set()
    assert {each["priority"] for each in node.pod.shows("rule")} == {0, 32766, 32767}
    [link] = node.host.shows("link", "show", "v0")
    assert link["ifalias"] == "rail-of-the-fabric"


def test_both_calls_may_be_repeated(node: PodsNode) -> None:
    node.host.ip(*RICH)
    interface = node.interface(name="rail0", rules=(RoutingRule(300),), routes=(Route("172.16.0.0/12"),))
    setup = node.look(interface)
    first = node.attach(interface, setup)
    assert node.attach(interface, setup) == first
    assert node.detach(interface, setup)
    assert node.detach(interface, setup)
    assert node.look(interface) == setup


def test_one_that_was_never_moved_is_on_the_node(node: PodsNode) -> None:
    node.host.ip(*RICH)
    interface = node.interface(name="rail0")
    setup = node.look(interface)
    assert node.detach(interface, setup)
    assert node.detach(interface, setup, known=False)
    assert node.look(interface) == setup


def test_one_that_is_down_comes_back_down(node: PodsNode) -> None:
    interface = node.interface(addresses=())
    setup = node.look(interface)
    assert not setup.up
    node.attach(interface, setup)
    assert node.detach(interface, setup)
    assert node.look(interface) == setup


def test_traffic_flows_between_two_pods() -> None:
    with namespaces(3) as (host, one, two):
        node = PodsNode(host, one)
        ends = []
        for pod, name, device, address in ((one, "v0", "nic-1", "10.1.0.1"), (two, "v1", "nic-2", "10.1.0.2")):
            interface = replace(
                node.interface(name="rail0", addresses=(f"{address}/24",)), interface=name, device=device
            )
            setup = node.look(interface)
            node.attach(interface, setup, pod)
            ends.append((interface, setup, pod))
        with one.run(lambda: socket.create_server(("10.1.0.1", 0))) as server:
            server.settimeout(120)
            with two.run(lambda: socket.create_connection(server.getsockname()[:2], timeout=120)) as client:
                client.sendall(b"across")
                accepted, _ = server.accept()
                with accepted:
                    assert accepted.recv(16) == b"across"
        for interface, setup, pod in ends:
            assert node.detach(interface, setup, pod)
        assert {"v0", "v1"} == host.names()


def test_ipv6_addresses_are_usable_at_once(node: PodsNode) -> None:
    node.attach(node.interface(addresses=("fd00:1::1/64",), routes=(Route("::/0", gateway="fd00:1::2"),)))

    def bind() -> None:
        # A tentative address cannot be bound.
        with socket.socket(socket.AF_INET6) as handle:
            handle.bind(("fd00:1::1", 0))

    node.pod.run(bind)


def test_a_network_on_the_link_may_come_after_the_route_that_needs_it(node: PodsNode) -> None:
    routes = (Route("0.0.0.0/0", gateway="10.99.0.1"), Route("10.99.0.1/32", scope="link"))
    node.attach(node.interface(addresses=("10.1.0.1/32",), routes=routes))
    assert "10.99.0.1" in {each["dst"] for each in node.pod.shows("route")}


def test_the_pods_own_default_route_wins_over_the_nodes(node: PodsNode) -> None:
    node.host.ip("address add 10.7.0.2/24 dev v0", "link set v0 up", "route add default via 10.7.0.1")
    node.pod.ip(
        "link add eth0 type veth peer name eth0p",
        "address add 10.244.0.5/24 dev eth0",
        "link set eth0 up",
        "route add default via 10.244.0.1",
    )
    node.attach(node.interface())
    defaults = [each for each in node.pod.shows("route") if each["dst"] == "default"]
    assert [each["dev"] for each in defaults] == ["eth0"]


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (
            {"name": "eth0"},
            "the pod has an interface eth0 already; set another interface.name in the claim",
        ),
        (
            {"addresses": ("10.244.0.5/16",)},
            "the pod's interface eth0 has the address 10.244.0.5/16 already; set other addresses in the claim",
        ),
        (
            {"addresses": ("10.1.0.1/24",), "routes": (Route("10.5.0.0/16", gateway="10.99.0.1"),)},
            """cannot add the route 10.5.0.0/16 via 10.99.0.1 in the pod: Network is unreachable (Nexthop has invalid \
gateway); no address of the interface reaches the gateway 10.99.0.1; give the interface an address in the gateway's \
network, or add a route to the gateway with scope link""",
        ),
        (
            {"addresses": ("10.1.0.1/24",), "routes": (Route("0.0.0.0/0", gateway="10.1.0.2"),)},
            """cannot add the route 0.0.0.0/0 via 10.1.0.2 in the pod: File exists; the pod has a route to this \
destination already; choose another destination or table""",
        ),
        (
            {"addresses": ("10.1.0.1/24",), "routes": (Route("10.5.0.0/16", source="10.2.0.1"),)},
            """cannot add the route 10.5.0.0/16 in the pod: Invalid argument (Invalid prefsrc address); the source \
10.2.0.1 must be an address of the interface""",
        ),
        (
            {"sysctls": (("ipv4/arp_ignore", "x"),)},
            "cannot set the sysctl ipv4/arp_ignore: Invalid argument; correct its value, or leave it out",
        ),
    ],
)
def test_what_cannot_be_in_the_pod_is_refused_and_undone(
    node: PodsNode, settings: dict[str, object], error: str
) -> None:
    node.host.ip(*RICH)
    node.pod.ip(
        "link add eth0 type veth peer name eth0p",
        "address add 10.244.0.5/24 dev eth0",
        "link set eth0 up",
        "route add default via 10.244.0.1",
    )
    interface = node.interface(**settings)
    setup = node.look(interface)
    with pytest.raises(InterfaceError) as refused:
        node.attach(interface, setup)
    assert str(refused.value).endswith(error)
    assert "v0" in str(refused.value)
    # The kernel gives an interface another index in a namespace that uses its own.
    assert replace(node.look(interface), index=setup.index) == setup
    assert node.pod.names() == {"eth0", "eth0p"}


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"mtu": 70000}, "mtu 70000 must be between 68 and 65535 for its driver"),
        ({"features": (("gor", True),)}, "this kernel knows no ethtool feature 'gor'; did you mean gso?"),
        (
            {"features": (("rx-vlan-filter", True),)},
            "feature rx-vlan-filter is off, and this device cannot change it; leave it out of the claim's features",
        ),
        (
            {"sysctls": (("ipv4/arp_nothing", "1"),)},
            "this kernel has no sysctl ipv4/arp_nothing of interfaces; leave it out",
        ),
        (
            {"sysctls": (("ipv4/../../core/somaxconn", "1"),)},
            "sysctl 'ipv4/../../core/somaxconn' must be ipv4/NAME or ipv6/NAME, below net/FAMILY/conf/v0",
        ),
    ],
)
def test_what_the_interface_cannot_be_is_refused_before_it_moves(
    node: PodsNode, settings: dict[str, object], error: str
) -> None:
    with pytest.raises(InterfaceError) as refused:
        node.look(node.interface(**settings))
    assert str(refused.value).endswith(error)


def test_an_mtu_above_that_of_the_physical_function_is_refused(node: PodsNode) -> None:
    interface = replace(node.interface(mtu=9000), pf_interface="v1", vf_index=0)
    with pytest.raises(InterfaceError) as refused:
        node.look(interface)
    assert str(refused.value) == (
        f"interface v0 of device {DEVICE}: mtu 9000 is above the 1500 of its physical function v1; "
        "ask for at most 1500, or raise that of v1 on the node"
    )
    with pytest.raises(InterfaceError, match="its physical function v9 is not in the node's network namespace"):
        node.look(replace(interface, pf_interface="v9"))


def test_an_interface_that_is_not_on_the_node_is_refused(node: PodsNode) -> None:
    with pytest.raises(InterfaceError) as refused:
        node.look(MovableInterface("nic-9", "ens9", node.interface().settings))
    assert str(refused.value) == (
        "interface ens9 of device nic-9: it is not in the node's network namespace; another pod or plugin has it, or "
        "it is gone"
    )


def test_a_pod_in_the_nodes_namespace_and_one_that_is_gone_are_refused(node: PodsNode) -> None:
    interface = node.interface()
    setup = node.look(interface)
    with pytest.raises(InterfaceError, match="the pod uses the node's network namespace; remove hostNetwork"):
        node.host.run(lambda: node.mover.attach(interface, setup, node.host.path))
    node.pod.close()
    with pytest.raises(InterfaceError, match=r"the pod's network namespace /proc/.* is gone"):
        node.attach(interface, setup)
    assert node.look(interface) == setup


def test_a_name_that_is_taken_on_the_node_meanwhile_is_not_fought_for(
    node: PodsNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.host.ip("address add 10.7.0.2/24 dev v0", "link set v0 up")
    interface = node.interface(name="rail0")
    setup = node.look(interface)
    node.attach(interface, setup)
    node.host.ip("link add v0 type veth peer name v0p")
    with caplog.at_level(logging.WARNING, "ostler.interfaces"):
        assert node.detach(interface, setup)
    assert "another interface has the name of one that came back" in caplog.text
    assert node.host.names() == {"v0", "v0p", "v0_1", "v1"}
    assert node.host.shows("address", "show", "v0_1")[0]["addr_info"][0]["local"] == "10.7.0.2"


def test_alternative_names_travel_along_and_count_as_taken(node: PodsNode) -> None:
    node.host.ip("link property add dev v0 altname enp134s0f0")
    with pytest.raises(InterfaceError) as refused:
        node.attach(node.interface(name="enp134s0f0"))
    assert str(refused.value).endswith(
        "enp134s0f0 is an alternative name that the interface keeps, and cannot be its name as well; "
        "set another interface.name in the claim"
    )
    interface = node.interface(name="rail0")
    setup = node.look(interface)
    node.attach(interface, setup)
    assert node.pod.shows("link", "show", "enp134s0f0")[0]["ifname"] == "rail0"
    node.host.ip("link property add dev v1 altname v0")
    assert node.detach(interface, setup)
    assert node.host.names() == {"v0_1", "v1"}


def test_what_the_node_has_no_place_for_any_more_is_logged_and_the_rest_restored(
    node: PodsNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.host.ip(*RICH)
    interface = node.interface(name="rail0")
    setup = node.look(interface)
    node.attach(interface, setup)
    setup = replace(setup, routes=(*setup.routes, Route("10.55.0.0/16", gateway="10.66.6.6")))
    with caplog.at_level(logging.WARNING, "ostler.interfaces"):
        assert node.detach(interface, setup)
    [record] = caplog.records
    assert "cannot restore route 10.55.0.0/16 via 10.66.6.6: Network is unreachable" in record.__dict__["reason"]
    assert node.look(interface) == replace(setup, routes=setup.routes[:-1])


def test_without_rights_the_error_names_the_capabilities(node: PodsNode, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    interface = node.interface()
    setup = node.look(interface)
    monkeypatch.setattr("node.interfaces.on_node.change_link", refused)
    with pytest.raises(InterfaceError) as error:
        node.attach(interface, setup)
    assert "the agent needs the capabilities NET_ADMIN and SYS_ADMIN to move interfaces" in str(error.value)


def test_interfaces_are_found_by_their_alias_for_an_agent_without_journal(node: PodsNode) -> None:
    interface = node.interface(name="rail0")
    assert node.host.run(lambda: node.mover.marked({DEVICE})) == {}
    node.attach(interface)
    assert node.host.run(lambda: node.mover.marked({DEVICE}, node.pod.path)) == {DEVICE: "rail0"}
    assert node.host.run(lambda: node.mover.marked({DEVICE})) == {}
    node.pod.close()
    assert node.host.run(lambda: node.mover.marked({DEVICE}, node.pod.path)) == {}


def test_sysctls_are_set_where_proc_sys_is_read_only(node: PodsNode, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def read_only(path: str | Path, flags: int, *more: int, dir_fd: int | None = None) -> int:
        if str(path).startswith("/proc/sys/") and flags & os.O_WRONLY:
            raise OSError(errno.EROFS, "Read-only file system", path)
        return opened(path, flags, *more, dir_fd=dir_fd)

    monkeypatch.setattr("node.interfaces.sysctls.os.open", read_only)
    node.attach(node.interface(name="rail0", sysctls=(("ipv4/arp_announce", "2"), ("ipv6/accept_ra", "0"))))
    monkeypatch.undo()
    for key, text in (("ipv4/conf/rail0/arp_announce", "2"), ("ipv6/conf/rail0/accept_ra", "0")):
        assert node.pod.run(lambda key=key: _read(f"/proc/sys/net/{key}")) == text  # type: ignore[misc]


def test_without_a_procfs_of_its_own_the_error_says_what_is_missing(
    node: PodsNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", "/proc/sys/net/ipv4/conf/rail0/arp_announce")

    monkeypatch.setattr("node.interfaces.sysctls._write", read_only)
    monkeypatch.setattr("node.interfaces.sysctls._FSOPEN", -1)
    with pytest.raises(InterfaceError, match="the agent needs the capability SYS_ADMIN") as refused:
        node.attach(node.interface(name="rail0", sysctls=(("ipv4/arp_announce", "2"),)))
    assert str(refused.value).startswith("interface rail0: cannot set sysctls: /proc/sys is read-only, and the kernel")


def _read(path: str) -> str:
    return Path(path).read_text().strip()


def _write(path: str, text: str) -> None:
    Path(path).write_text(text)
