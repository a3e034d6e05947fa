"""Every mistake in the section ``interface`` is named with its field, its value and the fix."""

from __future__ import annotations

import json
from typing import Any

import pytest

from driver.claims.model import AllocatedConfig
from driver.parameters.decoding import API_VERSION, decode, pairs
from driver.parameters.errors import ParameterError
from driver.parameters.interface import PATHS
from kube.bodies import Json
from tests.making.interface_section import CLAIM, CLASS, MAC, problem

NETWORK = "write a network with its prefix length, as 10.1.0.0/16, or 0.0.0.0/0 for everything"
ADDRESS = "write an address with its prefix length, as 10.0.0.2/24"
OWN = "write an address of the interface's own, as 10.0.0.2/24"
HOST = "write an address without prefix length, as 10.0.0.1"
STATION = "write the address of one station, as 02:00:00:00:00:01"
NAME = "write 1 to 15 letters, digits, '-', '_' and '.', as net1"
PAIRS = "write six pairs of hexadecimal digits, as 02:00:00:00:00:01"

MISTAKES: list[tuple[Any, str]] = [
    ([], f": [] is not an object; write an object with {', '.join(p.partition('.')[2] for p in PATHS.values())}"),
    ({"nam": "net1"}, ".nam: interface has no such field; did you mean name?"),
    (
        {"dhcp": True},
        (
            ".dhcp: interface has no such field; it has name, addresses, routes, rules, neighbors, mtu, "
            "hardwareAddress, vf, features, sysctls, keepEbpf"
        ),
    ),
    ({"name": 7}, f".name: 7 is not a text; {NAME}"),
    ({"name": None}, f".name: null is not a text; {NAME}"),
    *(
        ({"name": name}, f'.name: "{name}" cannot be the name of an interface; {NAME}')
        for name in ("", ".", "..", "a/b", "a b", "a:0", "net%d", "a" * 16)
    ),
    *(
        (
            {"name": name},
            (
                f'.name: "{name}" is a name of the node\'s own network, and the interface may come back to the node '
                "under it; write another name, as net1"
            ),
        )
        for name in ("cni0", "docker0", "cali1234", "flannel.1", "br-ex", "vethnet")
    ),
    ({"name": "lo"}, '.name: "lo" is the loopback interface; write another name, as net1'),
    ({"name": "eth0"}, '.name: "eth0" is the pod\'s own interface; write another name, as net1'),
    ({"name": "all"}, '.name: "all" is the kernel\'s word for every interface; write another name, as net1'),
    ({"name": "default"}, '.name: "default" is the kernel\'s word for new interfaces; write another name, as net1'),
    ({"addresses": "10.0.0.2/24"}, '.addresses: "10.0.0.2/24" is not a list; write a list of addresses'),
    ({"addresses": ["10.0.0.2/24"] * 17}, ".addresses: it has 17 addresses; write at most 16"),
    (
        {"addresses": ["2001:db8::1/64", "2001:DB8:0::1/64"]},
        '.addresses[1]: "2001:DB8:0::1/64" is listed twice; write it once',
    ),
    ({"addresses": [7]}, f".addresses[0]: 7 is not a text; {ADDRESS}"),
    *(
        ({"addresses": [each]}, f'.addresses[0]: "{each}" is not an address with a prefix length; {ADDRESS}')
        for each in (
            "10.0.0.2",
            "10.0.0.2/33",
            "10.0.0.2/255.255.255.0",
            "10.0.0/8",
            "010.0.0.2/24",
            "fe80::1%eth0/64",
            "a.example/24",
            "10.0.0.2/-1",
            "",
        )
    ),
    *(
        ({"addresses": [each]}, f'.addresses[0]: "{each}" {why}; {OWN}')
        for each, why in (
            ("224.0.0.5/24", "is a multicast address"),
            ("ff02::1/64", "is a multicast address"),
            ("127.0.0.2/8", "is a loopback address"),
            ("::1/128", "is a loopback address"),
            ("0.0.0.0/24", "means this host, and no address"),
            ("0.1.2.3/24", "means this host, and no address"),
            ("::/64", "means this host, and no address"),
            ("255.255.255.255/32", "is reserved"),
            ("240.0.0.1/24", "is reserved"),
            ("::ffff:10.0.0.1/120", "stands for an IPv4 address (10.0.0.1)"),
            ("10.0.0.1/0", "has the prefix length 0, which makes every address its neighbour"),
            ("10.0.0.0/24", "is the network 10.0.0.0/24 itself, and no address in it"),
            ("2001:db8::/64", "is the network 2001:db8::/64 itself, and no address in it"),
            ("10.0.0.255/24", "is the broadcast address of 10.0.0.0/24"),
        )
    ),
    (
        {"routes": [[]]},
        ".routes[0]: [] is not an object; write an object with destination, gateway, source, scope, table",
    ),
    ({"routes": [{}]}, ".routes[0].destination: write the network that it leads to, as 10.1.0.0/16"),
    (
        {"routes": [{"destination": "10.0.0.0/8", "via": "10.0.0.1"}]},
        ".routes[0].via: a route has no such field; it has destination, gateway, source, scope, table",
    ),
    ({"routes": [{"destination": "10.1.0.0"}]}, f'.routes[0].destination: "10.1.0.0" is not a network; {NETWORK}'),
    ({"routes": [{"destination": "default"}]}, f'.routes[0].destination: "default" is not a network; {NETWORK}'),
    (
        {"routes": [{"destination": "10.1.0.1/16"}]},
        '.routes[0].destination: "10.1.0.1/16" has bits behind its prefix; write 10.1.0.0/16',
    ),
    (
        {"routes": [{"destination": "127.0.0.0/8"}]},
        '.routes[0].destination: "127.0.0.0/8" is the pod\'s loopback network; write another network',
    ),
    (
        {"routes": [{"destination": "10.1.0.0/16", "gateway": "10.0.0.1/24"}]},
        f'.routes[0].gateway: "10.0.0.1/24" is not an address; {HOST}',
    ),
    (
        {"routes": [{"destination": "10.1.0.0/16", "gateway": "224.0.0.1"}]},
        f'.routes[0].gateway: "224.0.0.1" is a multicast address; {HOST}',
    ),
    (
        {"routes": [{"destination": "10.1.0.0/16", "source": "2001:db8::1"}]},
        (
            '.routes[0].source: "2001:db8::1" and the destination 10.1.0.0/16 are of different IP versions; write '
            "two of the same version"
        ),
    ),
    (
        {"routes": [{"destination": "10.1.0.0/16", "scope": 253}]},
        ".routes[0].scope: 253 is not known; write global or link, or leave it out",
    ),
    (
        {"routes": [{"destination": "10.1.0.0/16", "gateway": "10.0.0.1", "scope": "link"}]},
        (
            '.routes[0].scope: "link" is for networks that the interface is in, and "10.0.0.1" is a gateway; leave '
            "one of the two out"
        ),
    ),
    (
        {"routes": [{"destination": "10.1.0.0/16", "table": 255}]},
        ".routes[0].table: 255 is the kernel's table of local addresses; write another table, as 100",
    ),
    (
        {"routes": [{"destination": "10.1.0.0/16", "table": 0}]},
        ".routes[0].table: 0 is out of range; write a whole number from 1 to 4294967295",
    ),
    (
        {"routes": [{"destination": f"10.{n}.0.0/16"} for n in range(65)]},
        ".routes: it has 65 routes; write at most 64",
    ),
    (
        {"rules": [{"source": "10.0.0.0/8"}]},
        ".rules[0].table: write the table of routes that it leads to, as 100",
    ),
    (
        {"rules": [{"table": 100}]},
        (
            ".rules[0]: it has neither source nor destination; write source or destination; 0.0.0.0/0 and ::/0 are "
            "everything"
        ),
    ),
    (
        {"rules": [{"table": 100, "source": "10.0.0.0/8", "destination": "::/0"}]},
        (
            ".rules[0]: source 10.0.0.0/8 and destination ::/0 are of different IP versions; write a rule for each "
            "version"
        ),
    ),
    (
        {"rules": [{"table": 100, "source": "10.0.0.0/8", "priority": 32768}]},
        ".rules[0].priority: 32768 is out of range; write a whole number from 1 to 32767",
    ),
    (
        {"rules": [{"table": n, "source": "10.0.0.0/8"} for n in range(1, 34)]},
        ".rules: it has 33 rules; write at most 32",
    ),
    (
        {"neighbors": [{"destination": "10.0.0.9"}]},
        ".neighbors[0].hardwareAddress: write the neighbor's address, as 02:00:00:00:00:01",
    ),
    (
        {"neighbors": [{"destination": "10.0.0.9/32", "hardwareAddress": MAC}]},
        f'.neighbors[0].destination: "10.0.0.9/32" is not an address; {HOST}',
    ),
    (
        {"neighbors": [{"ip": "10.0.0.9"}]},
        ".neighbors[0].ip: a neighbor has no such field; it has destination, hardwareAddress",
    ),
    ({"mtu": 67}, ".mtu: 67 is out of range; write a whole number from 68 to 65535"),
    ({"mtu": 65536}, ".mtu: 65536 is out of range; write a whole number from 68 to 65535"),
    ({"mtu": True}, ".mtu: true is out of range; write a whole number from 68 to 65535"),
    ({"mtu": "9000"}, '.mtu: "9000" is out of range; write a whole number from 68 to 65535'),
    ({"hardwareAddress": 1}, f".hardwareAddress: 1 is not a text; {PAIRS}"),
    *(
        ({"hardwareAddress": each}, f'.hardwareAddress: "{each}" is not a hardware address; {PAIRS}')
        for each in ("02-00-00-00-00-01", "02:00:00:00:00", "02:00:00:00:00:0g", "02:00:00:00:00:01:02:03")
    ),
    (
        {"hardwareAddress": "03:00:00:00:00:01"},
        f'.hardwareAddress: "03:00:00:00:00:01" is a group address; {STATION}',
    ),
    (
        {"hardwareAddress": "00:00:00:00:00:00"},
        f'.hardwareAddress: "00:00:00:00:00:00" is all zeros; {STATION}',
    ),
    ({"features": []}, ".features: [] is not an object; write features by their names, as {gro: false}"),
    ({"features": {"gro": "off"}}, '.features.gro: "off" is neither true nor false; write true or false'),
    (
        {"features": {"G RO": True}},
        (
            '.features."G RO": it cannot be the name of a feature; write a name that ethtool -k shows, as '
            "tcp-segmentation-offload"
        ),
    ),
    (
        {"features": {"tso": True, "tcp-segmentation-offload": False}},
        '.features."tcp-segmentation-offload": the feature is listed twice, also as tso; write it once',
    ),
    (
        {"features": {f"tx-checksum-{n}": True for n in range(33)}},
        ".features: it has 33 entries; write at most 32",
    ),
    ({"sysctls": 1}, ".sysctls: 1 is not an object; write settings by their names, as {ipv4.arp_ignore: 1}"),
    (
        {"sysctls": {"ipv4.arp_ignor": 1}},
        '.sysctls."ipv4.arp_ignor": sysctls has no such field; did you mean ipv4.arp_ignore?',
    ),
    (
        {"sysctls": {"../all/forwarding": 1}},
        '.sysctls."../all/forwarding": sysctls has no such field; did you mean ipv6.forwarding?',
    ),
    (
        {"sysctls": {"ipv4.arp_ignore": 4}},
        ".sysctls.ipv4.arp_ignore: 4 is not a value of it; write one of 0, 1, 2, 3, 8",
    ),
    (
        {"sysctls": {"ipv4.arp_ignore": True}},
        ".sysctls.ipv4.arp_ignore: true is not a value of it; write one of 0, 1, 2, 3, 8",
    ),
    (
        {"sysctls": {"ipv4.arp_ignore": [1]}},
        ".sysctls.ipv4.arp_ignore: [1] is not a value of it; write one of 0, 1, 2, 3, 8",
    ),
    ({"keepEbpf": 1}, ".keepEbpf: 1 is neither true nor false; write true or false"),
    (
        {"vf": []},
        ".vf: [] is not an object; write an object with hardwareAddress, vlan, vlanQos, trust, spoofCheck",
    ),
    ({"vf": {"spoofcheck": True}}, ".vf.spoofcheck: vf has no such field; did you mean spoofCheck?"),
]
"""Sections with a mistake, and the end of the error."""


@pytest.mark.parametrize(("content", "text"), MISTAKES)
def test_a_mistake_is_named_with_field_value_and_fix(content: Json, text: str) -> None:
    assert problem(content) == f"config.interface{text}"


@pytest.mark.parametrize(
    ("vf", "text"),
    [
        ({"vlan": 4095}, "vlan: 4095 is out of range; write a whole number from 0 to 4094"),
        ({"vlan": 5, "vlanQos": 8}, "vlanQos: 8 is out of range; write a whole number from 0 to 7"),
        ({"vlanQos": 3}, "vlanQos: a priority without vlan; write vlan, too"),
        ({"trust": "yes"}, 'trust: "yes" is neither true nor false; write true or false'),
        ({"spoofCheck": None}, "spoofCheck: null is neither true nor false; write true or false"),
        (
            {"hardwareAddress": "01:00:00:00:00:00"},
            f'hardwareAddress: "01:00:00:00:00:00" is a group address; {STATION}',
        ),
    ],
)
def test_a_mistake_about_a_virtual_function_is_named(vf: Json, text: str) -> None:
    assert problem({"vf": vf}, CLASS) == f"config (from the DeviceClass).interface.vf.{text}"


def test_a_doubled_key_below_is_refused() -> None:
    text = f'{{"apiVersion": "{API_VERSION}", "kind": "NicConfig", "interface": {{"mtu": 1500, "mtu": 9000}}}}'
    parameters = json.loads(text, object_pairs_hook=pairs)
    with pytest.raises(ParameterError, match=r"config\.interface\.mtu: the key occurs twice; write it once"):
        decode(AllocatedConfig(CLAIM, (), parameters, "config"))
