"""What a pod with NET_ADMIN does to its interface neither keeps it nor reaches the node."""

from __future__ import annotations

from typing import Any

import pytest

from node.interfaces.links import change_alternative_names, change_link
from node.interfaces.namespace import NetworkNamespace
from node.interfaces.sysctls import read_sysctls
from node.values import replace
from tests.node.interfaces.conftest import PodsNode

pytestmark = pytest.mark.needs_root


def _link(node: PodsNode, name: str = "v0") -> dict[str, Any]:
    [link] = node.host.shows("link", "show", name)
    return link


def test_alternative_names_of_the_pod_neither_keep_an_interface_nor_reach_the_node(node: PodsNode) -> None:
    node.host.ip("link property add dev v0 altname enp134s0f0", "link add uplink0 type veth peer name uplink1")
    interface = node.interface(name="rail0")
    setup = node.look(interface)
    node.attach(interface, setup)
    node.pod.ip(*(f"link property add dev rail0 altname {name}" for name in ("uplink0", "v0", "cni0")))
    assert node.detach(interface, setup)
    assert _link(node)["altnames"] == ["enp134s0f0"]
    assert node.look(interface) == setup


def test_names_that_are_no_text_and_an_agent_without_journal_do_not_help_the_pod(node: PodsNode) -> None:
    node.host.ip("link add uplink0 type veth peer name uplink1")
    interface = node.interface(name="rail0")
    setup = node.look(interface)
    node.attach(interface, setup)
    [index] = [each["ifindex"] for each in node.pod.shows("link", "show", "rail0")]
    with NetworkNamespace(node.pod.path) as namespace, namespace.netlink() as netlink:
        change_alternative_names(netlink, index, add=["\udcff\udcfe", "uplink0"])
    assert node.detach(interface, replace(setup, alternative_names=None))
    [left] = node.look(interface).alternative_names or ()
    assert left == "\udcff\udcfe"
    assert node.detach(interface, setup)
    assert node.look(interface) == setup


def test_an_alternative_name_that_the_pod_took_away_comes_back(node: PodsNode) -> None:
    node.host.ip("link property add dev v0 altname enp134s0f0")
    interface = node.interface(name="rail0")
    setup = node.look(interface)
    node.attach(interface, setup)
    node.pod.ip("link property del dev rail0 altname enp134s0f0")
    assert node.detach(interface, setup)
    assert _link(node)["altnames"] == ["enp134s0f0"]


def test_flags_and_queues_of_the_pod_do_not_stay(node: PodsNode) -> None:
    interface = node.interface(name="rail0")
    setup, before = node.look(interface), _link(node)
    node.attach(interface, setup)
    node.pod.ip(
        "link set rail0 arp off multicast off txqueuelen 3 group 77 gso_max_segs 1 gso_max_size 2000",
        "link set rail0 gro_max_size 2000 broadcast 02:00:00:00:00:66 mode dormant",
    )
    assert node.detach(interface, setup)
    after = _link(node)
    for link in (before, after):
        link.pop("ifi_stats", None)
    assert after == before
    assert node.look(interface) == setup


def test_an_interface_leaves_the_bridge_that_it_was_a_port_of(node: PodsNode) -> None:
    interface = node.interface(name="rail0")
    setup = node.look(interface)
    node.attach(interface, setup)
    node.pod.ip(
        "link add upper0 type bridge", "link set rail0 down", "link set rail0 master upper0", "link set upper0 up"
    )
    assert node.detach(interface, setup)
    assert node.look(interface) == setup
    assert "master" not in _link(node)


def test_a_namespace_that_vanished_with_an_interface_without_arp_leaves_no_sysctl_of_the_kernels(
    node: PodsNode,
) -> None:
    interface = node.interface(name="rail0")
    setup = node.look(interface)
    node.attach(interface, setup)
    node.pod.ip("link set rail0 arp off")
    # What the kernel does with a physical device when its namespace goes; it destroys a veth.
    with NetworkNamespace(node.pod.path) as pod, NetworkNamespace(node.host.path) as host, pod.netlink() as netlink:
        change_link(netlink, setup.index, namespace=host.fileno(), name="dev4")
    node.pod.close()
    assert _accept_dad(node, "dev4") == "-1"
    assert node.detach(interface, setup)
    assert _accept_dad(node, "v0") == "1"
    assert node.look(interface) == setup


def _accept_dad(node: PodsNode, name: str) -> str:
    return node.host.run(lambda: dict(read_sysctls(name, ["ipv6/accept_dad"])).get("ipv6/accept_dad", ""))
