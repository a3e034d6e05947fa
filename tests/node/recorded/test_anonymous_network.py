"""Hardware addresses, GUIDs, host addresses and unique ids in recordings that are given away."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from ipaddress import IPv4Network, IPv6Network, ip_interface

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.inventory.amd.facts import AmdGpu, KfdNode
from node.inventory.facts import NodeFacts, SysfsFacts
from node.inventory.net_facts import (
    HostAddress,
    HostLink,
    HostRoute,
    NetInterface,
    NetworkFacts,
    RdmaDevice,
    RdmaPort,
)
from node.inventory.recordings.anonymous import Disguise
from node.inventory.recordings.source import anonymize, dump, read
from sandbox import nodes

MAC = "0c:42:a1:12:34:56"
NAMED = "enx0c42a1123456"
PATH = "pci0000:15/0000:15:01.0/0000:16:00.0"
NODE = NodeFacts(
    sysfs=SysfsFacts(
        interfaces=(
            NetInterface(NAMED, f"{PATH}/net/{NAMED}", address=MAC, switch_id="0c42a10300123456", port_name="p0"),
            NetInterface("ib0", f"{PATH}/net/ib0", address=f"00:00:10:29:fe:80{':00' * 6}:0c:42:a1:03:00:12:34:56"),
        ),
        rdma=(
            RdmaDevice(
                "mlx5_0",
                f"{PATH}/infiniband/mlx5_0",
                node_guid="0c42:a103:0012:3456",
                system_guid="0e42:a1ff:fe12:3456",
                board_id="MT_0000000223",
                ports=(RdmaPort(1, interface=NAMED),),
            ),
        ),
        amd_gpus=(AmdGpu("0000:08:00.0", unique_id="5c1f23d4e5a6b798", serial="692412345678"),),
        kfd=(KfdNode(2, 4711, 0, 0x800, 128, unique_id=0x5C1F23D4E5A6B798),),
        errors=(f"/sys/class/net/{NAMED}/speed: odd", f"{MAC} answers twice"),
    ),
    network=NetworkFacts(
        links=(HostLink(NAMED, master="bond0", permanent_address=MAC), HostLink("bond0.7", lower=NAMED)),
        addresses=(
            HostAddress(NAMED, "172.20.1.11/24"),
            HostAddress("bond0", "172.20.1.12/24"),
            HostAddress("bond0", "fd00:1234:5678::11/64"),
        ),
        default_routes=(HostRoute(NAMED, 4),),
    ),
)

macs = st.binary(min_size=6, max_size=6).filter(lambda octets: not octets[0] & 1 and any(octets))
guids = st.binary(min_size=8, max_size=8).filter(any)


def disguise() -> Disguise:
    return Disguise("salt")


def hidden() -> tuple[SysfsFacts, NetworkFacts]:
    node = anonymize(NODE, "salt")
    assert node.sysfs is not None
    assert node.network is not None
    return node.sysfs, node.network


def grouped(octets: bytes) -> str:
    return ":".join(octets.hex()[start : start + 4] for start in range(0, 16, 4))


def test_a_mac_address_keeps_its_vendor_and_is_the_same_everywhere() -> None:
    sysfs, network = hidden()
    made = sysfs.interfaces[0].address or ""

    assert re.fullmatch(r"0c:42:a1(:[0-9a-f]{2}){3}", made)
    assert made != MAC
    assert network.links[0].permanent_address == made
    assert sysfs.errors[1] == f"{made} answers twice"


def test_an_interface_named_after_its_mac_address_is_renamed_wherever_it_is_mentioned() -> None:
    sysfs, network = hidden()
    name = f"enx{(sysfs.interfaces[0].address or '').replace(':', '')}"

    assert name != NAMED
    assert sysfs.interfaces[0].name == name
    assert sysfs.interfaces[0].path == f"{PATH}/net/{name}"
    assert sysfs.rdma[0].ports[0].interface == name
    assert sysfs.errors[0] == f"/sys/class/net/{name}/speed: odd"
    assert [network.links[0].name, network.links[1].lower, network.addresses[0].interface] == [name] * 3
    assert network.default_routes[0].interface == name


def test_guids_are_made_of_the_replaced_mac_address() -> None:
    sysfs, _ = hidden()
    made = (sysfs.interfaces[0].address or "").replace(":", "")
    own = f"{made[6:8]}:{made[8:]}"

    assert sysfs.rdma[0].node_guid == f"0c42:a103:00{own}"
    assert sysfs.rdma[0].system_guid == f"0e42:a1ff:fe{own}"
    assert sysfs.interfaces[0].switch_id == f"0c42a10300{made[6:]}"
    assert (sysfs.interfaces[1].address or "").endswith(f":0c:42:a1:03:00:{made[6:8]}:{made[8:10]}:{made[10:]}")


def test_addresses_of_the_node_keep_their_prefix_and_their_network() -> None:
    _, network = hidden()
    first, second, third = (ip_interface(each.address) for each in network.addresses)

    assert first.network == second.network
    assert first != second
    assert first.network.subnet_of(IPv4Network("10.0.0.0/8"))  # type: ignore[arg-type]
    assert third.network.subnet_of(IPv6Network("2001:db8::/32"))  # type: ignore[arg-type]
    assert (first.network.prefixlen, third.network.prefixlen) == (24, 64)


def test_an_amd_gpu_and_its_kfd_node_stay_the_same_one() -> None:
    sysfs, _ = hidden()
    gpu = sysfs.amd_gpus[0]

    assert re.fullmatch("[0-9a-f]{16}", gpu.unique_id or "")
    assert int(gpu.unique_id or "", 16) == sysfs.kfd[0].unique_id
    assert re.fullmatch("[0-9]{12}", gpu.serial or "")


def test_nothing_of_it_is_left_and_what_identifies_nothing_stays() -> None:
    text = dump(anonymize(NODE, "salt"), name="n", description="d", recorded_at=datetime(2026, 1, 31, tzinfo=UTC))

    for secret in ("12:34:56", "123456", "0012:3456", "172.20", "fd00", "5c1f23d4e5a6b798", "692412345678"):
        assert secret not in text
    for kept in (PATH, "MT_0000000223", "mlx5_0", "bond0.7", "port_name: p0"):
        assert kept in text


@pytest.mark.parametrize(
    "text",
    [
        "00:00:00:00:00:00",
        "ff:ff:ff:ff:ff:ff",
        "0000:0000:0000:0000",
        "pci0000:15/0000:15:01.0/0000:16:00.0/0000:1b:00.0/net/enp27s0f0np0",
        "00:11:22:33:44:55:66",
        "5: LinkUp",
        "22.41.1000 (MT_0000000359)",
        "enP39600s1",
        "fox0123456789ab",
    ],
)
def test_what_is_no_address_stays(text: str) -> None:
    assert disguise().addresses(text) == text


@given(macs, macs)
def test_no_two_mac_addresses_become_one(one: bytes, two: bytes) -> None:
    made = [disguise().addresses(octets.hex(":")) for octets in (one, two)]

    assert (made[0] == made[1]) == (one == two)
    assert all(re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", each) for each in made)
    assert disguise().addresses(one.hex(":").upper()) == made[0]


@given(guids, guids)
def test_no_two_guids_become_one(one: bytes, two: bytes) -> None:
    made = [disguise().addresses(grouped(octets)) for octets in (one, two)]

    assert (made[0] == made[1]) == (one == two)
    assert [each.replace(":", "") for each in made] == [disguise().digits(octets.hex()) for octets in (one, two)]


@given(macs)
def test_a_guid_follows_its_mac_address(mac: bytes) -> None:
    def modified(octets: bytes) -> bytes:
        return bytes((octets[0] ^ 2, *octets[1:3], 0xFF, 0xFE, *octets[3:]))

    made = bytes.fromhex(disguise().digits(mac.hex()))

    assert disguise().digits((mac[:3] + b"\3\0" + mac[3:]).hex()) == (made[:3] + b"\3\0" + made[3:]).hex()
    assert disguise().digits(modified(mac).hex()) == modified(made).hex()


@given(st.ip_addresses(), st.data())
def test_addresses_stay_equal_if_and_only_if_they_were(address: object, data: st.DataObject) -> None:
    shortest = 8 if ip_interface(str(address)).version == 4 else 32
    longest = 32 if shortest == 8 else 128
    one = ip_interface(f"{address}/{data.draw(st.integers(shortest, longest))}")
    hosts = one.network.num_addresses
    two = ip_interface(f"{one.network[data.draw(st.integers(0, hosts - 1))]}/{one.network.prefixlen}")
    made = [ip_interface(disguise().host_address(str(each))) for each in (one, two)]

    assert made[0].network == made[1].network
    assert made[0].network.prefixlen == one.network.prefixlen
    assert (made[0] == made[1]) == (one == two)


def test_an_address_that_is_none_is_made_up_in_the_same_shape() -> None:
    assert re.fullmatch(r"[a-z]{3}\.[0-9]{2}/[a-z]", disguise().host_address("abc.12/x"))


@given(st.integers(1, 64), st.data())
def test_numbers_are_permuted(bits: int, data: st.DataObject) -> None:
    numbers = data.draw(st.sets(st.integers(0, 2**bits - 1), max_size=20))
    made = {disguise().number(number, bits) for number in numbers}

    assert len(made) == len(numbers)
    assert all(0 <= number < 1 << bits for number in made)
    assert disguise().number(0, bits) == 0
    assert disguise().number(-5, bits) == -5


@pytest.mark.parametrize("name", nodes.names())
def test_no_shipped_node_shows_its_addresses_afterwards(name: str) -> None:
    node = read(nodes.path(name)).facts
    assert node.sysfs is not None
    assert node.network is not None
    written = dump(anonymize(node, "salt"), name="n", description="d", recorded_at=datetime(2026, 1, 31, tzinfo=UTC))

    secrets = {interface.address for interface in node.sysfs.interfaces}
    secrets |= {device.node_guid for device in node.sysfs.rdma} | {gpu.unique_id for gpu in node.sysfs.amd_gpus}
    secrets |= {each.address.partition("/")[0] for each in node.network.addresses}
    assert not [secret for secret in secrets if secret is not None and f"{secret}" in written]
