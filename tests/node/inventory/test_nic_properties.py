"""What holds for all facts of NICs, however odd."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from node.inventory.devices import statuses_of
from node.inventory.facts import NodeFacts, PciFunction, SysfsFacts
from node.inventory.identity import Identities
from node.inventory.net_facts import (
    HostAddress,
    HostLink,
    HostRoute,
    NetInterface,
    NetworkFacts,
    RdmaDevice,
    RdmaFile,
    RdmaPort,
    SubFunction,
)
from node.inventory.nics.devices import nic_devices
from node.inventory.nics.memory import nics_from_data, nics_to_data
from tests.making.nic_facts import BUS, files

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
ADDRESSES = [f"0000:86:00.{number}" for number in range(4)]
SUBFUNCTIONS = ["", "/mlx5_core.sf.1", "/mlx5_core.sf.2", "/virtio0"]

addresses = st.sampled_from(ADDRESSES)
optional_address = st.one_of(st.none(), addresses)
number = st.one_of(st.none(), st.integers(0, 3))
paths = st.builds(lambda address, below: f"{BUS}/{address}{below}", addresses, st.sampled_from(SUBFUNCTIONS))
names = st.sampled_from(["eth0", "eth1", "a b", "übel", "x" * 15, ""])
drivers = st.sampled_from([None, "mlx5_core", "mlx5_core", "vfio-pci", "igb_uio", "pci-stub", ""])

functions = st.builds(
    lambda address, **facts: PciFunction(address=address, path=f"{BUS}/{address}", **facts),
    addresses,
    class_code=st.sampled_from(["0x020000", "0x020000", "0x020700", "0x028000", "0x120000", "0x030200", "what"]),
    vendor=st.sampled_from(["0x15b3", "0x8086", "0xbeef", ""]),
    device=st.sampled_from(["0x101e", ""]),
    numa_node=st.sampled_from([None, -1, 0]),
    driver=drivers,
    iommu_group=st.sampled_from([None, "7", "odd"]),
    iommu_group_name=st.sampled_from([None, "vfio-noiommu"]),
    physfn=optional_address,
    vf_index=number,
    sriov_totalvfs=number,
    sriov_numvfs=number,
    uio=st.sampled_from([None, "uio0"]),
)
interfaces = st.builds(
    lambda path, name, **facts: NetInterface(name=name, path=f"{path}/net/{name}", **facts),
    paths,
    names,
    ifindex=number,
    link_type=st.sampled_from([None, 1, 32, 772]),
    address=st.sampled_from([None, "", "00:00:00:00:00:00", "94:6d:ae:00:00:01"]),
    operstate=st.sampled_from([None, "up", "down", "odd"]),
    carrier=st.sampled_from([None, True, False]),
    speed_mbps=st.sampled_from([None, -1, 0, 25000]),
    dev_port=number,
    port_name=st.sampled_from([None, "", "p0", "pf0", "pf0vf1", "c1pf0vf0"]),
    switch_id=st.sampled_from([None, "a1"]),
)
ports = st.builds(
    RdmaPort,
    port=st.integers(0, 3),
    state=st.sampled_from([None, "4: ACTIVE", "1: DOWN", "odd"]),
    link_layer=st.sampled_from([None, "InfiniBand", "Ethernet", "odd"]),
    rate=st.sampled_from([None, "400 Gb/sec (4X NDR)", "odd"]),
    interface=st.one_of(st.none(), names),
)
rdma_devices = st.builds(
    lambda path, name, **facts: RdmaDevice(name=name, path=f"{path}/infiniband/{name}", **facts),
    paths,
    st.sampled_from(["mlx5_0", "mlx5_1", ""]),
    ports=st.lists(ports, max_size=3).map(tuple),
    files=st.sampled_from([(), (RdmaFile("uverbs0", 231, 192),)]),
)
subfunctions = st.builds(
    lambda address, below, sfnum, driver: SubFunction(below[1:], f"{BUS}/{address}{below}", sfnum, driver),
    addresses,
    st.sampled_from(SUBFUNCTIONS[1:3]),
    number,
    drivers,
)
networks = st.builds(
    NetworkFacts,
    links=st.lists(st.builds(HostLink, names, master=st.one_of(st.none(), names)), max_size=3).map(tuple),
    addresses=st.lists(st.builds(HostAddress, names, st.just("10.0.0.7/24")), max_size=2).map(tuple),
    default_routes=st.lists(st.builds(HostRoute, names, st.sampled_from([4, 6])), max_size=2).map(tuple),
)
sysfses = st.builds(
    SysfsFacts,
    pci=st.lists(functions, max_size=4, unique_by=lambda each: each.address).map(tuple),
    device_files=st.sampled_from([(), files("/dev/vfio/7"), files("/dev/net/tun")]),
    interfaces=st.lists(interfaces, max_size=5, unique_by=lambda each: each.path).map(tuple),
    rdma=st.lists(rdma_devices, max_size=3, unique_by=lambda each: each.path).map(tuple),
    subfunctions=st.lists(subfunctions, max_size=3, unique_by=lambda each: each.path).map(tuple),
    errors=st.sampled_from([(), ("odd",)]),
)
nodes = st.builds(NodeFacts, sysfs=st.one_of(st.none(), sysfses), network=st.one_of(st.none(), networks))
memories = nodes.map(lambda facts: Identities().updated((), facts))


def devices_are_uniquely_named_labels_with_sorted_attributes(
    facts: NodeFacts, remembered: Identities, random: Random
) -> None:
    found = nic_devices(facts, remembered)
    assert len({device.name for device in found}) == len(found)
    for device in found:
        assert LABEL.fullmatch(device.name)
        assert device.name.startswith(f"{device.kind.value}-0000-86-00-")
        assert [each.name for each in device.attributes] == sorted({each.name for each in device.attributes})
        assert all(each.value != "" for each in device.attributes)
        assert device.health.usable or device.health.reason
        assert len(device.attributes) <= 32
    statuses_of(facts, remembered)


def order_of_the_facts_does_not_matter(facts: NodeFacts, remembered: Identities, random: Random) -> None:
    assert nic_devices(facts, remembered) == nic_devices(facts, remembered)
    if facts.sysfs is None:
        return

    def shuffled(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(random.sample(items, len(items)))

    sysfs = replace(
        facts.sysfs,
        pci=shuffled(facts.sysfs.pci),
        interfaces=shuffled(facts.sysfs.interfaces),
        rdma=shuffled(facts.sysfs.rdma),
        subfunctions=shuffled(facts.sysfs.subfunctions),
    )
    other = replace(facts, sysfs=sysfs)
    assert nic_devices(other, remembered) == nic_devices(facts, remembered)


def every_network_function_is_a_device_whatever_is_visible(
    facts: NodeFacts, remembered: Identities, random: Random
) -> None:
    found = {device.name.removeprefix("nic-").removeprefix("rdma-") for device in nic_devices(facts, remembered)}
    for function in facts.sysfs.pci if facts.sysfs is not None else ():
        if function.class_code.startswith("0x02"):
            assert function.address.replace(":", "-").replace(".", "-") in found


def kind_does_not_depend_on_what_is_visible(facts: NodeFacts, remembered: Identities, random: Random) -> None:
    if facts.sysfs is None:
        return
    kinds = {device.pci_address: device.kind for device in nic_devices(facts, remembered)}
    hidden = replace(facts, sysfs=replace(facts.sysfs, interfaces=(), rdma=()))
    for device in nic_devices(hidden, remembered.updated((), facts)):
        assert kinds[device.pci_address] is device.kind


def nics_that_go_into_pods_keep_their_names_and_health(
    facts: NodeFacts, remembered: Identities, random: Random
) -> None:
    if facts.sysfs is None:
        return
    hidden = replace(facts, sysfs=replace(facts.sysfs, interfaces=(), rdma=()))
    before = {device.name: device for device in nic_devices(facts, remembered)}
    kernel = {each.address for each in facts.sysfs.pci if each.driver == "mlx5_core"}
    after = {device.name: device for device in nic_devices(hidden, remembered.updated((), facts))}
    for name, device in before.items():
        if device.pci_address in kernel and device.text("auxDevice") == "":
            assert after[name].health == device.health
            assert after[name].text("ifName") == device.text("ifName")
            assert after[name].text("rdmaDevice") == device.text("rdmaDevice")


def memory_is_learned_once_and_survives_the_disk(facts: NodeFacts, remembered: Identities, random: Random) -> None:
    learned = remembered.updated((), facts)
    assert learned.updated((), facts) == learned
    assert nics_from_data(nics_to_data(learned.nics)) == learned.nics


RULES = (
    devices_are_uniquely_named_labels_with_sorted_attributes,
    order_of_the_facts_does_not_matter,
    every_network_function_is_a_device_whatever_is_visible,
    kind_does_not_depend_on_what_is_visible,
    nics_that_go_into_pods_keep_their_names_and_health,
    memory_is_learned_once_and_survives_the_disk,
)
"""What holds for all nodes: to make one takes longer than to judge it by every rule."""


@settings(max_examples=150)
@given(nodes, memories, st.randoms(use_true_random=False))
def test_every_rule_holds_for_all_facts(facts: NodeFacts, remembered: Identities, random: Random) -> None:
    for rule in RULES:
        rule(facts, remembered, random)
