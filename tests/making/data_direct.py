"""A node as a GB300 has it: each GPU beside the Data Direct function of a NIC that is in another PCI domain."""

from __future__ import annotations

from pathlib import Path

from node.inventory.facts import DeviceFile, GpuFacts, NodeFacts, NvmlFacts, PciFunction, SysfsFacts
from node.inventory.net_facts import RdmaDevice, RdmaFile
from node.values import replace
from tests.making.nic_facts import port
from tests.node.sysfs.rendering import render

DIRECT_CLASS = "0x080100"
"""The class is not known for certain; the reader does not depend on it."""


def uuid(number: int) -> str:
    """The UUID of the functions of a NIC."""
    return f"58a2e1f0b5a4ee118000b8cef612345{number}"


def vpd(v3: str, name: str = "NVIDIA ConnectX-8 C8240 SuperNIC") -> bytes:
    """Vital product data with this field V3."""
    fields = b"".join(
        key + bytes([len(text)]) + text
        for key, text in ((b"PN", b"900-9X81E"), (b"V3", v3.encode("latin-1")), (b"RV", b"\0"))
    )
    title = name.encode()
    return (
        bytes([0x82])
        + len(title).to_bytes(2, "little")
        + title
        + bytes([0x90])
        + len(fields).to_bytes(2, "little")
        + fields
        + bytes([0x78])
    )


def gpu(number: int) -> PciFunction:
    """A GPU below two switches of the NIC, in a domain of its own with the Data Direct function."""
    domain = f"{8 + number:04x}"
    path = f"pci{domain}:00/{domain}:00:00.0/{domain}:01:00.0/{domain}:02:00.0/{domain}:03:00.0/{domain}:04:00.0"
    return _function(f"{domain}:05:00.0", path, "0x030200", "0x10de", "0x31c2", driver="nvidia", numa_node=number // 2)


def direct(number: int) -> PciFunction:
    """The Data Direct function beside GPU ``number``."""
    domain = f"{8 + number:04x}"
    path = f"pci{domain}:00/{domain}:00:00.0/{domain}:01:00.0/{domain}:02:01.0"
    made = _function(
        f"{domain}:06:00.0", path, DIRECT_CLASS, "0x15b3", "0x2100", driver="mlx5_ib", numa_node=number // 2
    )
    return replace(made, vpd_uuid=uuid(number))


def nic(number: int) -> PciFunction:
    """The NIC of GPU ``number``, at a root port of the CPU."""
    domain = f"{number * 2:04x}"
    path = f"pci{domain}:00/{domain}:00:00.0/{domain}:01:00.0/{domain}:02:00.0"
    made = _function(
        f"{domain}:03:00.0", path, "0x020700", "0x15b3", "0x1023", driver="mlx5_core", numa_node=number // 2
    )
    return replace(made, vpd_uuid=uuid(number), sriov_totalvfs=16, sriov_numvfs=0)


def storage() -> PciFunction:
    """A NIC of another kind, which has no Data Direct function."""
    path = "pci0016:00/0016:00:00.0/0016:01:00.0/0016:02:00.0"
    made = _function("0016:03:00.0", path, "0x020000", "0x15b3", "0xa2dc", driver="mlx5_core", numa_node=0)
    return replace(made, vpd_uuid=uuid(9))


def rdma(number: int, function: PciFunction) -> RdmaDevice:
    """The RDMA device ``mlx5_<number>`` of a NIC."""
    name = f"mlx5_{number}"
    return RdmaDevice(
        name=name,
        path=f"{function.path}/infiniband/{name}",
        node_type="1: CA",
        node_guid=f"58a2:e103:00b5:000{number}",
        system_guid=f"58a2:e103:00b5:000{number}",
        firmware_version="40.45.1020",
        board_id="NVD0000000001",
        hca_type="MT4131",
        ports=(port(link_layer="InfiniBand"),),
        files=(RdmaFile(f"uverbs{number}", 231, 192 + number), RdmaFile(f"umad{number}", 231, number)),
    )


def node(gpus: int = 4) -> NodeFacts:
    """The facts of such a node; its RDMA devices are numbered against the order of the GPUs."""
    nics = [nic(number) for number in range(gpus)]
    functions = (*map(gpu, range(gpus)), *map(direct, range(gpus)), *nics, storage())
    devices = [rdma(gpus - 1 - number, each) for number, each in enumerate(nics)]
    seen = tuple(
        GpuFacts(
            index=number,
            bus_id=f"0000{gpu(number).address.upper()}",
            uuid=f"GPU-0000000{number}-0000-0000-0000-000000000000",
            name="NVIDIA GB300",
            minor=number,
        )
        for number in range(gpus)
    )
    files = [
        *(
            DeviceFile(f"/dev/infiniband/{each.name}", "c", each.major, each.minor)
            for one in devices
            for each in one.files
        ),
        DeviceFile("/dev/infiniband/rdma_cm", "c", 10, 120),
        *(DeviceFile(f"/dev/nvidia{number}", "c", 195, number) for number in range(gpus)),
        DeviceFile("/dev/nvidiactl", "c", 195, 255),
        DeviceFile("/dev/nvidia-uvm", "c", 509, 0),
    ]
    sysfs = SysfsFacts(
        pci=tuple(sorted(functions, key=lambda each: each.address)), rdma=tuple(devices), device_files=tuple(files)
    )
    return NodeFacts(nvml=NvmlFacts(driver_version="580.65.06", gpus=seen), sysfs=sysfs)


def render_node(facts: SysfsFacts, root: Path) -> None:
    """The tree of the node, with the VPD of every function that has a UUID."""
    render(facts, root)
    for function in facts.pci:
        if function.vpd_uuid:
            (root / "sys/devices" / function.path / "vpd").write_bytes(vpd(function.vpd_uuid))


def _function(
    address: str, above: str, code: str, vendor: str, device: str, *, driver: str, numa_node: int
) -> PciFunction:
    return PciFunction(
        address=address,
        path=f"{above}/{address}",
        class_code=code,
        vendor=vendor,
        device=device,
        subsystem_vendor=vendor,
        subsystem_device="0x0001",
        revision="0x00",
        driver=driver,
        numa_node=numa_node,
    )
