"""Hand-made facts of NICs: a ConnectX-7 at bus 86 with virtual functions and a subfunction."""

from __future__ import annotations

from dataclasses import replace

from node.inventory.devices import devices_of
from node.inventory.facts import DeviceFile, NodeFacts, PciFunction, SysfsFacts
from node.inventory.identity import Identities
from node.inventory.model import Device
from node.inventory.net_facts import NetInterface, NetworkFacts, RdmaDevice, RdmaFile, RdmaPort, SubFunction

BUS = "pci0000:80/0000:80:01.0"
PF = "0000:86:00.0"


def nic(number: int = 0, bus: str = "86", **changes: object) -> PciFunction:
    """A ConnectX-7 at 0000:86:00.0, 0000:86:00.1, ..."""
    address = f"0000:{bus}:00.{number}" if number < 8 else f"0000:{bus}:{number // 8:02x}.{number % 8}"
    made = PciFunction(
        address=address,
        path=f"{BUS}/{address}",
        class_code="0x020000",
        vendor="0x15b3",
        device="0x1021",
        numa_node=1,
        driver="mlx5_core",
        iommu_group="57",
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def vf(index: int, **changes: object) -> PciFunction:
    """The virtual function with this number below 0000:86:00.0."""
    return replace(nic(index + 2, device="0x101e", physfn=PF, vf_index=index), **changes)  # type: ignore[arg-type]


def interface(owner: PciFunction | SubFunction, name: str, **changes: object) -> NetInterface:
    """An Ethernet interface of this function or subfunction that is up."""
    made = NetInterface(
        name=name,
        path=f"{owner.path}/net/{name}",
        ifindex=2,
        link_type=1,
        address="94:6d:ae:00:00:01",
        mtu=9000,
        operstate="up",
        carrier=True,
        speed_mbps=400000,
        dev_port=0,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def port(number: int = 1, **changes: object) -> RdmaPort:
    made = RdmaPort(
        port=number,
        state="4: ACTIVE",
        physical_state="5: LinkUp",
        link_layer="Ethernet",
        rate="400 Gb/sec (4X NDR)",
        pkey="0xffff",
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def rdma(owner: PciFunction | SubFunction, name: str, *ports: RdmaPort, **changes: object) -> RdmaDevice:
    """An RDMA device of this function or subfunction, with one active port unless others are given."""
    number = int(name.rpartition("_")[2])
    made = RdmaDevice(
        name=name,
        path=f"{owner.path}/infiniband/{name}",
        node_guid="946d:ae03:0000:0001",
        firmware_version="28.39.1002",
        ports=ports or (port(),),
        files=(RdmaFile(f"uverbs{number}", 231, 192 + number), RdmaFile(f"umad{number}", 231, number)),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def subfunction(owner: PciFunction, number: int = 2, sfnum: int | None = 88) -> SubFunction:
    name = f"mlx5_core.sf.{number}"
    return SubFunction(name, f"{owner.path}/{name}", sfnum, "mlx5_core.sf")


def files(*paths: str) -> tuple[DeviceFile, ...]:
    return tuple(DeviceFile(path, "c", 10, number) for number, path in enumerate(paths))


def nics(*pci: PciFunction, network: NetworkFacts | None = None, **sysfs: object) -> NodeFacts:
    """A node with these functions; further fields are those of SysfsFacts."""
    return NodeFacts(sysfs=replace(SysfsFacts(pci=pci), **sysfs), network=network)  # type: ignore[arg-type]


def seen(facts: NodeFacts, remembered: Identities | None = None) -> dict[str, Device]:
    return {device.name: device for device in devices_of(facts, remembered or Identities())}


def only(facts: NodeFacts, remembered: Identities | None = None) -> Device:
    (device,) = devices_of(facts, remembered or Identities())
    return device


def attributes(device: Device) -> dict[str, object]:
    return {each.name: each.value for each in device.attributes}


def learned(facts: NodeFacts, before: Identities | None = None) -> Identities:
    before = before or Identities()
    return before.updated(devices_of(facts, before), facts)
