"""NICs and RDMA adapters out of raw facts, with their health and device nodes.

Pure and total. There is one device per network function and port, whatever its driver, and one per subfunction. Kind
and name come from the PCI function and not from what is visible: an interface may be in a pod at any moment, and the
device must stay the same one. Representors are no devices.

Health says whether the function has a working driver. It does not include the link: the rule that offers a NIC decides
whether a link that is down makes it unhealthy. A NIC in a pod is as healthy as any other. Device nodes are looked up
once per scan, and the same values serve every device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from node.health.signal import Trouble
from node.health.state import Health, HealthState, Recovery
from node.inventory.assembly import AttributePool, DeviceNames
from node.inventory.device_nodes import DeviceFiles
from node.inventory.facts import NodeFacts, PciFunction, SysfsFacts
from node.inventory.identity import Identities
from node.inventory.model import Device, DeviceKind, DeviceNode, NodeRole, SourceState, SourceStatus
from node.inventory.net_facts import RdmaDevice, SubFunction
from node.inventory.nics.attributes import function_attributes, nic_vendor, port_attributes
from node.inventory.nics.parts import NicPart, NicPort, keeps_away, nic_parts, serves_network, uses_uio, uses_vfio
from node.inventory.nics.use import HostUses
from node.inventory.pci import INFINIBAND_CLASS, address_label, base_class, is_data_direct, is_network, numa_node
from node.values import Value, value

_NO_LABEL = r"[^a-z0-9]+"


def nic_devices(facts: NodeFacts, identities: Identities) -> list[Device]:
    """All NICs, by PCI address; empty without a section of sysfs."""
    parts = nic_parts(facts, identities.nics)
    physical = {part.function.address: part for part in parts if part.subfunction is None}
    direct = direct_functions(facts.sysfs.pci if facts.sysfs is not None else ())
    uses, nodes = HostUses(facts.network), NicNodes(facts.sysfs)
    assembly = _Assembly(physical, direct, nodes, uses, AttributePool(), DeviceNames())
    return [device for part in parts for device in assembly.devices(part)]


def direct_functions(functions: Iterable[PciFunction]) -> Mapping[str, PciFunction]:
    """The Data Direct functions by the UUID that they share with their NIC; the last one of a UUID that two have."""
    return {function.vpd_uuid: function for function in functions if is_data_direct(function) and function.vpd_uuid}


def network_status(facts: NodeFacts, identities: Identities) -> SourceStatus | None:
    """The status of the network; None if no source reads it and nothing is odd.

    NICs with kernel drivers and not one interface: either the drivers are just being loaded, or the agent sees the
    network of its own pod. Both look alike, so it is a hint and not a failure.
    """
    errors = facts.network.errors if facts.network is not None else ()
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        return SourceStatus("network", SourceState.FAILED, f"{errors[0]}{more}")
    hidden = _hidden(facts, identities)
    if hidden:
        nics = f"{hidden} NICs" if hidden > 1 else "the NIC"
        detail = f"no network interface of {nics} is visible: the agent is probably not in the host's network namespace"
        return SourceStatus("network", SourceState.WAITING, f"{detail} (hostNetwork: true)")
    return SourceStatus("network", SourceState.OK) if facts.network is not None else None


def _hidden(facts: NodeFacts, identities: Identities) -> int:
    """The number of functions that should have an interface, if none is visible and none was ever seen."""
    if facts.sysfs is None or facts.sysfs.interfaces or any(nic.interfaces for nic in identities.nics):
        return 0
    functions = [each for each in facts.sysfs.pci if is_network(each) and serves_network(each.driver)]
    # InfiniBand adapters have interfaces only where IPoIB is loaded.
    return sum(1 for each in functions if base_class(each) != INFINIBAND_CLASS)


@value
class _Assembly(Value):
    """Facts that the devices of one scan share."""

    physical: dict[str, NicPart]
    direct: Mapping[str, PciFunction]
    nodes: NicNodes
    uses: HostUses
    pool: AttributePool
    names: DeviceNames

    def devices(self, part: NicPart) -> Iterable[Device]:
        """One device per port of the function or subfunction."""
        function = part.function
        above = self._above(part)
        direct = self.direct.get((above or part).function.vpd_uuid or "")
        shared = function_attributes(part, above, direct)
        own = self.nodes.of_user_driver(function) if part.subfunction is None else ()
        health = nic_health(part, own, listed=self.nodes.listed)
        kind = kind_of(part)
        for position, port in enumerate(part.ports):
            attributes = dict((*shared, *port_attributes(part, port, above)))
            yield Device(
                name=self.names.unique(_name(kind, part, port if position else None)),
                kind=kind,
                vendor=nic_vendor(function.vendor),
                pci_address=function.address,
                numa_node=numa_node(function),
                health=health,
                attributes=self.pool.attributes(attributes.items()),
                nodes=self._nodes(own, port),
                location=function.path,
                direct=direct.path if direct is not None else "",
                host_use=self._use(port),
            )

    def _above(self, part: NicPart) -> NicPart | None:
        """The physical function of a virtual one or subfunction; None for others and where it is not listed."""
        if part.subfunction is not None:
            return self.physical.get(part.function.address)
        if part.function.physfn is None or part.function.physfn == part.function.address:
            return None
        return self.physical.get(part.function.physfn)

    def _nodes(self, own: tuple[DeviceNode, ...], port: NicPort) -> tuple[DeviceNode, ...]:
        return own + self.nodes.of_rdma(port.rdma) + self.nodes.shared

    def _use(self, port: NicPort) -> str:
        interface = port.visible_interface
        return self.uses.of(interface.name) if interface is not None else ""


def kind_of(part: NicPart) -> DeviceKind:
    """RDMA for InfiniBand controllers, and for functions of other classes than network's; else NIC."""
    if base_class(part.function) == INFINIBAND_CLASS or not is_network(part.function):
        return DeviceKind.RDMA
    return DeviceKind.NIC


def _name(kind: DeviceKind, part: NicPart, port: NicPort | None) -> str:
    """Name as a DNS label; ``port``: a further port of the function."""
    name = f"{kind.value}-{address_label(part.function.address)}"
    if part.subfunction is not None:
        name = f"{name}-{_subfunction_label(part.subfunction)}"
    return name if port is None else f"{name}-p{port.number}"


def _subfunction_label(subfunction: SubFunction) -> str:
    if subfunction.sfnum is not None:
        return f"sf{subfunction.sfnum}"
    return re.sub(_NO_LABEL, "-", subfunction.name.lower()).strip("-")


def nic_health(part: NicPart, nodes: Iterable[DeviceNode], *, listed: bool) -> Health:
    """Health of a function or subfunction.

    ``nodes``: its device nodes; ``listed``: whether /dev was listed; if not, a missing node means nothing.
    """
    driver = part.driver
    if driver is None:
        return _unhealthy("no driver is bound", Trouble.UNBOUND)
    if keeps_away(driver):
        return _unhealthy(f"the driver {driver} is bound, which only reserves it")
    if not (uses_vfio(driver) or uses_uio(driver)):
        return Health()
    own = [node for node in nodes if node.role is NodeRole.DEVICE]
    if not own:
        thing = "IOMMU group" if uses_vfio(driver) else "uio device"
        return _unhealthy(f"the driver {driver} is bound, and it has no {thing}")
    missing = next((node.on_host or node.path for node in own if listed and not node.present), None)
    return Health() if missing is None else _unhealthy(f"its device node {missing} does not exist", Trouble.NODE)


def _unhealthy(reason: str, cause: str = "") -> Health:
    return Health(HealthState.UNHEALTHY, reason, recovery=Recovery.AUTOMATIC, cause=str(cause))


_AUXILIARY = ("/dev/vhost-net", "/dev/net/tun")
_WITHOUT_IOMMU = "vfio-noiommu"


class NicNodes(DeviceFiles):
    """Finds the nodes of each NIC; ``shared`` ones go to any of them if an option asks for it."""

    def __init__(self, sysfs: SysfsFacts | None) -> None:
        super().__init__(sysfs)
        self.shared = tuple(self.node(path, NodeRole.AUXILIARY) for path in _AUXILIARY if self.has(path))

    def of_user_driver(self, function: PciFunction) -> tuple[DeviceNode, ...]:
        """The nodes through which a program drives the function itself; none with a kernel driver.

        A container sees /dev/vfio/<group> whether the host has an IOMMU or not; without one the host's node has
        another name (vfio's Documentation: ``noiommu-<group>``).
        """
        group = function.iommu_group
        if uses_vfio(function.driver) and group is not None:
            on_host = f"/dev/vfio/noiommu-{group}" if function.iommu_group_name == _WITHOUT_IOMMU else None
            own = self.node(f"/dev/vfio/{group}", NodeRole.DEVICE, on_host)
            return (own, self.node("/dev/vfio/vfio", NodeRole.CONTROL))
        if uses_uio(function.driver) and function.uio is not None:
            return (self.node(f"/dev/{function.uio}", NodeRole.DEVICE),)
        return ()

    def of_rdma(self, devices: Iterable[RdmaDevice]) -> tuple[DeviceNode, ...]:
        """The character devices of RDMA devices in order of their names, and the connection manager's."""
        names = sorted({file.name: file for each in devices for file in each.files}.items())
        own = [self._rdma_node(name, file.major, file.minor) for name, file in names]
        return (*own, self.node("/dev/infiniband/rdma_cm", NodeRole.RDMA)) if own else ()

    def _rdma_node(self, name: str, major: int, minor: int) -> DeviceNode:
        path = f"/dev/infiniband/{name}"
        if self.listed:
            return self.node(path, NodeRole.RDMA)
        # /dev was not listed: sysfs has the numbers.
        return DeviceNode(path, NodeRole.RDMA, "c", major, minor)
