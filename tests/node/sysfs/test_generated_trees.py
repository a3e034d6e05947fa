"""Any facts that a kernel could show are read from their tree as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.inventory.facts import DeviceFile, PciFunction, SysfsFacts
from node.inventory.net_facts import NetInterface, RdmaDevice, RdmaFile, RdmaPort, SubFunction
from tests.node.sysfs.rendering import ordered, render, source

BRIDGE = "pci0000:15/0000:15:01.0"

numbers = st.integers(0, 2**31 - 1)
# No slash, which no file name has, and no colon, which no interface's name has.
names = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zs", "Zl", "Zp"), exclude_characters="/:"), min_size=1)
labels = names.filter(lambda name: name not in (".", "..") and 0 < len(name.encode()) <= 15)
hexadecimal = st.integers(0, 0xFFFF).map(lambda number: f"0x{number:04x}")
drivers = st.none() | st.sampled_from(("mlx5_core", "ice", "nvidia"))


@st.composite
def functions(draw: st.DrawFn, address: str) -> PciFunction:
    driver = draw(drivers | st.sampled_from(("vfio-pci", "igb_uio")))
    total = draw(st.none() | st.integers(0, 256))
    group = draw(st.none() | st.integers(0, 999).map(str))
    return PciFunction(
        address=address,
        path=f"{BRIDGE}/{address}",
        class_code=draw(st.sampled_from(("0x020000", "0x020700", "0x030200", "0x120000"))),
        vendor=draw(hexadecimal),
        device=draw(hexadecimal),
        subsystem_vendor=draw(hexadecimal),
        subsystem_device=draw(hexadecimal),
        revision=draw(hexadecimal),
        numa_node=draw(st.none() | st.integers(-1, 7)),
        driver=driver,
        iommu_group=group,
        sriov_totalvfs=total,
        sriov_numvfs=None if total is None else draw(st.integers(0, total)),
        vfio="vfio0" if driver == "vfio-pci" else None,
        uio="uio0" if driver == "igb_uio" else None,
        acpi_index=draw(st.none() | numbers),
    )


@st.composite
def interfaces(draw: st.DrawFn, function: PciFunction, name: str) -> NetInterface:
    carrier = draw(st.none() | st.booleans())
    return NetInterface(
        name=name,
        path=f"{function.path}/net/{name}",
        ifindex=draw(numbers),
        link_type=draw(st.sampled_from((1, 32))),
        address="02:fc:00:00:00:01",
        mtu=draw(st.integers(68, 65_536)),
        operstate=draw(st.sampled_from(("up", "down", "unknown", "dormant"))),
        carrier=carrier,
        speed_mbps=None if carrier is False else draw(st.none() | st.integers(0, 800_000)),
        dev_port=draw(st.none() | st.integers(0, 9)),
        port_name=draw(st.none() | st.sampled_from(("p0", "pf0vf3", "pf0sf88", "c1pf0vf0"))),
        switch_id=draw(st.none() | st.just("c2a888e4a0")),
    )


@st.composite
def ports(draw: st.DrawFn, number: int) -> RdmaPort:
    return RdmaPort(
        port=number,
        state=draw(st.sampled_from(("4: ACTIVE", "1: DOWN", "2: INIT"))),
        physical_state=draw(st.sampled_from(("5: LinkUp", "3: Disabled"))),
        link_layer=draw(st.sampled_from(("InfiniBand", "Ethernet"))),
        rate="400 Gb/sec (4X NDR)",
        interface=draw(st.none() | st.just("ens1np0")),
        pkey=draw(st.none() | hexadecimal),
    )


@st.composite
def rdma_devices(draw: st.DrawFn, function: PciFunction, number: int) -> RdmaDevice:
    files = [RdmaFile(f"{kind}{number}", 231, draw(st.integers(0, 255))) for kind in ("issm", "umad", "uverbs")]
    return RdmaDevice(
        name=f"mlx5_{number}",
        path=f"{function.path}/infiniband/mlx5_{number}",
        node_type="1: CA",
        node_guid="a088:c203:00e4:0ba9",
        system_guid="a088:c203:00e4:0ba8",
        firmware_version=draw(st.none() | st.just("28.39.1002")),
        board_id=draw(st.none() | st.just("MT_0000000838")),
        hca_type=draw(st.none() | st.just("MT4129")),
        ports=tuple(draw(ports(port)) for port in range(1, draw(st.integers(1, 3)) + 1)),
        files=tuple(file for file in files if draw(st.booleans())),
    )


@st.composite
def machines(draw: st.DrawFn) -> SysfsFacts:
    slots = draw(st.lists(st.integers(0, 255), unique=True, max_size=6))
    found = [draw(functions(f"0000:1a:{slot // 8:02x}.{slot % 8}")) for slot in slots]
    if len(found) > 1:
        for index, virtual in enumerate(found[1:]):
            if draw(st.booleans()):
                found[index + 1] = _virtual(virtual, found[0], index)
    named = draw(st.lists(labels, unique=True, max_size=len(found)))
    chosen = list(enumerate(function for function in found if draw(st.booleans())))
    return SysfsFacts(
        pci=tuple(found),
        device_files=tuple(DeviceFile(f"/dev/vfio/{number}", "c", 234, number) for number in range(len(found))),
        interfaces=tuple(draw(interfaces(function, name)) for function, name in zip(found, named, strict=False)),
        rdma=tuple(draw(rdma_devices(function, number)) for number, function in chosen),
        subfunctions=tuple(
            SubFunction(f"mlx5_core.sf.{n}", f"{function.path}/mlx5_core.sf.{n}", draw(numbers), draw(drivers))
            for n, function in chosen
        ),
    )


def _virtual(function: PciFunction, parent: PciFunction, index: int) -> PciFunction:
    return replace(function, physfn=parent.address, vf_index=index, sriov_totalvfs=None, sriov_numvfs=None)


@settings(max_examples=30)
@given(facts=machines())
def test_a_machine_is_read_from_its_tree_as_it_is(tmp_path_factory: pytest.TempPathFactory, facts: SysfsFacts) -> None:
    root = tmp_path_factory.mktemp("machine")
    render(facts, root)
    reader = source(facts, root)

    first = reader.read().sysfs

    assert first == ordered(facts)
    assert reader.read().sysfs == first
