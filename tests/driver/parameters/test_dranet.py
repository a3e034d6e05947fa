"""DRANET's parameters: served where they mean the same, otherwise refused with what to write instead.

``EXAMPLES`` has what DRANET's own examples, tests and pages ask for, in the words of this test.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver.claims.model import AllocatedConfig, ConfigSource
from driver.names import Peer
from driver.parameters.errors import UnservedParameter
from driver.parameters.interface import InterfaceParameters
from driver.parameters.peers import check_served
from kube.bodies import Json
from node.interfaces.model import Neighbor, Route, RoutingRule

CLAIM, CLASS = ConfigSource.CLAIM, ConfigSource.CLASS
MAC = "02:00:00:00:00:01"
FOR_CLASS = "leave it out; an administrator writes it into a DeviceClass"
OFFLOADS = {"tcp-segmentation-offload": False, "generic-receive-offload": False, "large-receive-offload": False}
OFF = (("gro", False), ("lro", False), ("tso", False))
KEEPS_SIZE = "leave it out, and set it on the node (ip link set); the interface keeps it in the pod"
KEEPS_FLAG = "leave it out, and set it on the node (ethtool --set-priv-flags); the interface keeps it in the pod"
TABLES = "write routes with a table, and rules with the interface's addresses as source that lead to it"


def config(parameters: Any, source: ConfigSource = CLAIM) -> AllocatedConfig:
    return AllocatedConfig(source, (), parameters, "config", Peer.DRANET)


def served(parameters: Any, source: ConfigSource = CLAIM) -> InterfaceParameters | None:
    found = check_served(config(parameters, source), "ostler.dev")
    assert found is None or isinstance(found, InterfaceParameters)
    return found


def problem(parameters: Any, source: ConfigSource = CLAIM) -> str:
    with pytest.raises(UnservedParameter) as raised:
        served(parameters, source)
    return str(raised.value)


def unserved(field: str, value: str, fix: str, why: str = "") -> str:
    because = f": {why}" if why else ""
    return f"{field}: {value} is for dra.net and ostler does not support it{because}; {fix}"


EXAMPLES: dict[str, tuple[Any, dict[str, Any] | str]] = {
    "a claim without parameters": ({}, {}),
    "a name alone": ({"interface": {"name": "dranet0"}}, {"name": "dranet0"}),
    "an address and two routes": (
        {
            "interface": {"name": "eth99", "addresses": ["169.254.169.13/32"]},
            "routes": [
                {"destination": "169.254.169.0/24", "gateway": "169.254.169.1"},
                {"destination": "169.254.169.1/32", "scope": 253},
            ],
        },
        {
            "name": "eth99",
            "addresses": ("169.254.169.13/32",),
            "routes": (Route("169.254.169.0/24", "169.254.169.1"), Route("169.254.169.1/32", scope="link")),
        },
    ),
    "everything, with the hardware address of a manufacturer": (
        {
            "interface": {
                "name": "dranet0",
                "addresses": ["169.254.169.14/24"],
                "mtu": 4321,
                "hardwareAddr": "00:11:22:33:44:55",
            },
            "ethtool": {"features": OFFLOADS},
        },
        (
            'interface.hardwareAddr: "00:11:22:33:44:55" belongs to a manufacturer, and a claim may not take it; write '
            "one "
            "whose second digit is 2, 6, a or e, or have an administrator write it into a DeviceClass"
        ),
    ),
    "the same with one of its own": (
        {
            "interface": {"name": "dranet0", "addresses": ["169.254.169.14/24"], "mtu": 4321, "hardwareAddr": MAC},
            "ethtool": {"features": OFFLOADS},
        },
        {
            "name": "dranet0",
            "addresses": ("169.254.169.14/24",),
            "mtu": 4321,
            "hardware_address": MAC,
            "features": OFF,
        },
    ),
    "a neighbor by a field of the page that DRANET itself lacks": (
        {"neighbors": [{"ipAddress": "192.168.1.1", "hardwareAddr": "00:11:22:33:44:55"}]},
        "neighbors[0].ipAddress: a neighbor has no such field; it has destination, hardwareAddr",
    ),
    "the same by its real field": (
        {"neighbors": [{"destination": "192.168.1.1", "hardwareAddr": "00:11:22:33:44:55"}]},
        {"neighbors": (Neighbor("192.168.1.1", "00:11:22:33:44:55"),)},
    ),
    "ARP for several interfaces in one network": (
        {"interface": {"name": "dranet-arp", "arpIgnore": 1, "arpAnnounce": 2}},
        {"name": "dranet-arp", "sysctls": (("ipv4/arp_announce", "2"), ("ipv4/arp_ignore", "1"))},
    ),
    "large segments": (
        {
            "interface": {"name": "dranet1", "addresses": ["192.168.200.1/24"], "mtu": 8896, "gsoMaxSize": 65536},
            "ethtool": {"features": {"tcp-segmentation-offload": True}},
        },
        unserved("interface.gsoMaxSize", "65536", KEEPS_SIZE),
    ),
    "eBPF programs detached": (
        {"interface": {"disableEbpfPrograms": True}},
        (
            "interface.disableEbpfPrograms: a claim may not detach what others attached to the node's interface; "
            f"{FOR_CLASS}"
        ),
    ),
    "a driver's private flag": (
        {"interface": {"mtu": 8896}, "ethtool": {"privateFlags": {"enable-max-rx-buffer-size": True}}},
        unserved("ethtool.privateFlags", '{"enable-max-rx-buffer-size": true}', KEEPS_FLAG),
    ),
    "policy routing": (
        {
            "interface": {"name": "net1", "addresses": ["192.168.100.10/24"]},
            "rules": [
                {"source": "192.168.100.0/24", "table": 100, "priority": 32000},
                {"destination": "192.168.200.0/24", "table": 100, "priority": 32000},
            ],
            "routes": [{"destination": "0.0.0.0/0", "table": 100, "gateway": "192.168.100.2"}],
        },
        {
            "name": "net1",
            "addresses": ("192.168.100.10/24",),
            "rules": (
                RoutingRule(100, "192.168.100.0/24", "", 32000),
                RoutingRule(100, "", "192.168.200.0/24", 32000),
            ),
            "routes": (Route("0.0.0.0/0", "192.168.100.2", table=100),),
        },
    ),
    "a VRF": (
        {
            "interface": {"name": "eth1", "addresses": ["10.10.10.1/24"], "vrf": {"name": "test-vrf"}},
            "routes": [{"destination": "0.0.0.0/0", "gateway": "10.10.10.2"}],
        },
        unserved("interface.vrf", '{"name": "test-vrf"}', TABLES),
    ),
    "a profile": (
        {"profile": "whereabouts-profile"},
        unserved(
            "profile",
            '"whereabouts-profile"',
            "write what the profile stands for, such as interface.addresses and routes",
            "ostler asks no webhook for settings",
        ),
    ),
    "DHCP": (
        {"interface": {"name": "eth1", "dhcp": True}},
        unserved("interface.dhcp", "true", "write interface.addresses and routes", "ostler asks no DHCP server"),
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_served_or_refused_with_what_to_write(name: str) -> None:
    parameters, result = EXAMPLES[name]
    if isinstance(result, str):
        assert problem(parameters) == f"config.{result}"
        return
    found = served(parameters)
    assert {each: getattr(found, each) for each in (found.given if found is not None else ())} == result
    assert found is None or found.of_peer


@pytest.mark.parametrize(
    "parameters",
    [
        {"interface": {"name": "", "dhcp": False, "forwarding": False, "disableEbpfPrograms": False, "vrf": None}},
        {"profile": "", "interface": None, "routes": None, "rules": [], "neighbors": [], "ethtool": None},
        {"interface": {"addresses": [], "mtu": None}, "ethtool": {"features": {}, "privateFlags": {}}},
    ],
)
def test_what_dranets_decoder_takes_as_absent_asks_for_nothing(parameters: Json) -> None:
    assert served(parameters) is None


def test_a_class_may_have_what_a_claim_may_not() -> None:
    asked = {"interface": {"disableEbpfPrograms": True, "forwarding": True, "hardwareAddr": "00:11:22:33:44:55"}}
    found = served(asked, CLASS)
    assert found is not None
    assert found.keep_ebpf is False
    assert found.sysctls == (("ipv4/forwarding", "1"), ("ipv6/forwarding", "1"))
    assert found.hardware_address == "00:11:22:33:44:55"
    forwarding = {"interface": {"forwarding": True}}
    assert problem(forwarding) == f"config.interface.forwarding: a claim may not set it; {FOR_CLASS}"


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"interface": []}, ".interface: [] is not an object; write an object, or leave it out"),
        (
            {"interface": {"mac": MAC}},
            (
                ".interface.mac: dra.net has no such field; it has name, addresses, dhcp, mtu, hardwareAddr, "
                "gsoMaxSize, groMaxSize, gsoIPv4MaxSize, groIPv4MaxSize, disableEbpfPrograms, forwarding, arpIgnore, "
                "arpAnnounce, vrf"
            ),
        ),
        (
            {"interface": {"arpIgnore": 4}},
            ".interface.arpIgnore: 4 is not a value of it; write one of 0, 1, 2, 3, 8",
        ),
        ({"interface": {"mtu": 0}}, ".interface.mtu: 0 is out of range; write a whole number from 68 to 65535"),
        (
            {"interface": {"dhcp": "yes"}},
            '.interface.dhcp: "yes" is neither true nor false; write true or false',
        ),
        (
            {"routes": [{"destination": "10.0.0.0/8"}]},
            ".routes[0].gateway: write it, or scope 253 for a network that the interface is in",
        ),
        (
            {"routes": [{"destination": "10.0.0.0/8", "scope": 200}]},
            ".routes[0].scope: 200 is not known; write 253 (link) or 0 (global)",
        ),
        (
            {"routes": [{"destination": "10.0.0.0/8", "scope": 253}]},
            (
                ".routes: they would be added to the routes that the node's interface has, and ostler adds none; write "
                "interface.addresses, too, or NicConfig with interface.routes for the driver ostler.dev"
            ),
        ),
        (
            {"rules": [{"source": "10.0.0.0/8", "table": 7}]},
            (
                ".rules: they would be added to the rules that the node's interface has, and ostler adds none; write "
                "interface.addresses, too, or NicConfig with interface.rules for the driver ostler.dev"
            ),
        ),
        (
            {"rules": [{"source": "10.0.0.0/8", "table": 0}]},
            ".rules[0].table: write the table of routes that it leads to, as 100",
        ),
        ({"ethtool": {"features": {"rx-all": True}}}, '.ethtool.features."rx-all": a claim may not set it; leave it'),
    ],
)
def test_a_mistake_is_named_with_field_value_and_fix(parameters: Any, text: str) -> None:
    assert problem(parameters).startswith(f"config{text}")


def test_a_network_with_bits_behind_its_prefix_is_read_as_dranet_reads_it() -> None:
    routes = [{"destination": "10.1.2.3/16", "scope": 253, "gateway": "", "source": None, "table": 0}]
    found = served({"interface": {"addresses": ["10.0.0.2/24"]}, "routes": routes})
    assert found is not None
    assert found.routes == (Route("10.1.0.0/16", scope="link"),)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
NAMES = ("name", "addresses", "dhcp", "mtu", "hardwareAddr", "arpIgnore", "vrf", "destination", "gateway", "table")


@settings(max_examples=20)
@given(
    st.dictionaries(
        st.sampled_from(["profile", "interface", "routes", "rules", "neighbors", "ethtool"]),
        json_values
        | st.dictionaries(st.sampled_from(NAMES), json_values)
        | st.lists(st.dictionaries(st.sampled_from(NAMES), json_values)),
    )
)
def test_whatever_is_written_is_served_or_refused_in_words(parameters: dict[str, Json]) -> None:
    text = "config"
    try:
        served(parameters)
    except UnservedParameter as error:
        text = str(error)
    assert text.startswith("config")
    assert len(text) < 700
