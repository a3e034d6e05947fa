"""The largest node that the agent is measured on: 16 GPUs, 32 NICs with 256 virtual functions, 8 NVSwitches.

Every NIC and virtual function has an interface, an RDMA device with a port and two character devices, as a node has
that gives SR-IOV functions to containers; 200 functions more are of no interest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from node.inventory.facts import DeviceFile, PciFunction, SysfsFacts
from node.inventory.net_facts import NetInterface, RdmaDevice, RdmaFile, RdmaPort

GPUS, NICS, SWITCHES, VFS_PER_NIC, DULL = 16, 32, 8, 8, 200


def facts() -> SysfsFacts:
    """The node's facts, in the order in which a source reads them."""
    functions = [*_gpus(), *_nics(), *_switches()]
    nics = [function for function in functions if function.class_code == "0x020000"]
    rdma = [_rdma(number, function) for number, function in enumerate(nics)]
    files = [DeviceFile(f"/dev/infiniband/{file.name}", "c", file.major, file.minor) for d in rdma for file in d.files]
    files += [DeviceFile(f"/dev/nvidia{number}", "c", 195, number) for number in range(GPUS)]
    return SysfsFacts(
        pci=tuple(functions),
        device_files=tuple(files),
        interfaces=tuple(_interface(number, function) for number, function in enumerate(nics)),
        rdma=tuple(rdma),
    )


def dull_functions() -> Iterator[str]:
    """Paths of the functions of no interest, below /sys/devices."""
    for number in range(DULL):
        yield f"pci0000:f0/0000:f0:{number // 8:02x}.{number % 8}"


def _function(path: str, code: str, ids: tuple[str, str], driver: str, group: int) -> PciFunction:
    vendor, device = ids
    return PciFunction(
        address=path.rpartition("/")[2],
        path=path,
        class_code=code,
        vendor=vendor,
        device=device,
        subsystem_vendor=vendor,
        subsystem_device="0x0001",
        revision="0x00",
        numa_node=0,
        driver=driver,
        iommu_group=str(group),
    )


def _gpus() -> Iterator[PciFunction]:
    for number in range(GPUS):
        path = f"pci0000:10/0000:10:01.0/0000:11:00.0/0000:{0x20 + number:02x}:00.0"
        yield _function(path, "0x030200", ("0x10de", "0x2330"), "nvidia", number)


def _switches() -> Iterator[PciFunction]:
    for number in range(SWITCHES):
        path = f"pci0000:10/0000:10:02.0/0000:12:00.0/0000:{0x38 + number:02x}:00.0"
        yield _function(path, "0x068000", ("0x10de", "0x22a3"), "nvidia", 100 + number)


def _nics() -> Iterator[PciFunction]:
    for number in range(NICS):
        bridge = f"pci0000:10/0000:10:03.0/0000:13:00.0/0000:{0x40 + number:02x}"
        physical = _function(f"{bridge}:00.0", "0x020000", ("0x15b3", "0x1021"), "mlx5_core", 200 + number)
        yield replace(physical, sriov_totalvfs=16, sriov_numvfs=VFS_PER_NIC)
        for index in range(VFS_PER_NIC):
            path = f"{bridge}:{1 + index // 8:02x}.{index % 8}"
            virtual = _function(path, "0x020000", ("0x15b3", "0x101e"), "mlx5_core", 1000 + number * 10 + index)
            yield replace(virtual, physfn=physical.address, vf_index=index)


def _interface(number: int, function: PciFunction) -> NetInterface:
    name = f"ens{number}np0"
    return NetInterface(
        name=name,
        path=f"{function.path}/net/{name}",
        ifindex=number + 2,
        link_type=1,
        address=f"02:00:00:00:{number // 256:02x}:{number % 256:02x}",
        mtu=9000,
        operstate="up",
        carrier=True,
        speed_mbps=400_000,
        dev_port=0,
        port_name="p0",
        switch_id=f"{number:016x}",
    )


def _rdma(number: int, function: PciFunction) -> RdmaDevice:
    name = f"mlx5_{number}"
    return RdmaDevice(
        name=name,
        path=f"{function.path}/infiniband/{name}",
        node_type="1: CA",
        node_guid="a088:c203:00e4:0ba9",
        system_guid="a088:c203:00e4:0ba9",
        firmware_version="28.39.1002",
        board_id="MT_0000000838",
        hca_type="MT4129",
        ports=(RdmaPort(1, "4: ACTIVE", "5: LinkUp", "Ethernet", "400 Gb/sec (4X NDR)", f"ens{number}np0", "0xffff"),),
        files=(RdmaFile(f"umad{number}", 229, number), RdmaFile(f"uverbs{number}", 231, number)),
    )
