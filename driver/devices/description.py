"""Describes a device for a ResourceSlice: attributes, capacity and taints.

Pure; the same device gives the same bytes, so that nothing is written if nothing changes. The API accepts at most 32
attributes and capacities of a device together, names of at most 32 characters below a domain, and texts of at most 64
bytes. A longer text is left out and not cut, because cutting could make two devices equal. If a device has too many
facts, ours that claims choose by come first, then the peers' in their order, then the rest of ours.

Names in our own domain are the inventory's, which existing claims use already (NVIDIA's driver for GPUs, DRANET for
NICs), including standard attributes in Kubernetes' domain. Every device also has ``type`` and ``vendor``, and
``resource``, the name of its rule's resource: claims and classes can ask for the name that the plugin door would use.

In a peer's domain the device has what the peer's driver would publish for it, so that claims written for the peer work
with ours. Names, types and texts are the peer's. Facts that the node does not know are absent: DRANET's names of
vendors and devices from pci.ids, addresses, and everything about an interface's configuration. The SR-IOV driver
publishes virtual functions only, NVIDIA's its own GPUs only.

Multus reads two attributes of every device that a pod's claims were allocated, and gives the pod no network if one
lacks them. So with Multus among the peers all devices have both, before all that other peers say, and GPUs have them
too: a claim may have a GPU and a NIC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter

from driver.devices.partitions import CounterSet
from driver.devices.shares import consumable, is_shared
from driver.devices.view import DraDevice, taints
from driver.names import Peer
from kube.bodies import Json, JsonObject
from node.inventory.model import NIC_KINDS, AttributeValue, Device, Version
from node.inventory.nvidia.vendor import NVIDIA
from node.inventory.vendors import vendor_of
from node.sharing import COMPUTE, MEMORY
from node.values import Value, quick, value


@value
class Described(Value):
    """Everything that a slice says about a device: equal values give the same bytes."""

    offered: DraDevice
    taints: tuple[Json, ...]


def described(offered: DraDevice) -> Described:
    """The description of a device in a slice. The reason of its taints is not part of it.

    A partition is described by its shape, so that making and removing it writes nothing.
    """
    device = offered.device if offered.part is None else offered.part.described
    plain = DraDevice(device, offered.rule, True, placement=offered.placement, uses=offered.uses, held=offered.held)
    return Described(plain, tuple(taints(offered)))


def slice_device(offered: DraDevice, peers: tuple[Peer, ...] = ()) -> JsonObject:
    """The device as a resource.k8s.io/v1 object in a slice."""
    said = described(offered)
    offered = said.offered
    first, rest = own_facts(offered)
    in_order = sorted(peers, key=lambda peer: peer is not Peer.MULTUS)
    facts = [*first, *(fact for peer in in_order for fact in peer_facts(peer, offered)), *rest]
    attributes, capacity = sections(facts)
    device: JsonObject = {"name": offered.device.name, "attributes": attributes}
    if is_shared(offered.device, offered.rule.sharing):
        device["allowMultipleAllocations"] = True
        capacity = _consumable(capacity, offered)
    if capacity:
        device["capacity"] = capacity
    if offered.uses is not None:
        device["consumesCounters"] = [{"counterSet": offered.uses.name, "counters": _counters(offered.uses)}]
    if said.taints:
        device["taints"] = [*said.taints]
    return device


def counter_set(counters: CounterSet) -> JsonObject:
    """A counter set as a resource.k8s.io/v1 object in a slice of its own."""
    return {"name": counters.name, "counters": _counters(counters)}


def _counters(counters: CounterSet) -> JsonObject:
    return {
        name: {"value": quantity(Fact(name, amount, amount=True, bytes=name == "memory"))}
        for name, amount in counters.counters
    }


MOVES = "movesInterface"
"""True for a NIC whose network interface moves into the pod of its claim; the others have no such attribute."""
LIMIT = 32
"""Attributes and capacities of one device (resource.k8s.io/v1)."""
TEXT_BYTES = 64

_BINARY = tuple((f"{prefix}i", 1 << 10 * power) for power, prefix in reversed([*enumerate("KMGTPE", 1)]))
_DECIMAL = tuple((prefix, 1000**power) for power, prefix in reversed([*enumerate("kMGTPE", 1)]))


@quick
@value
class Fact(Value):
    """One attribute or, if it has an ``amount``, one capacity; ``name`` includes its domain unless that is the
    driver's.

    ``bytes``: whether the amount is in bytes, which people read in binary units.
    """

    name: str
    value: AttributeValue
    amount: bool = False
    bytes: bool = False


def fits(fact: Fact) -> bool:
    """Whether the API accepts such a fact."""
    return not isinstance(fact.value, str) or 0 < len(fact.value.encode(errors="replace")) <= TEXT_BYTES


def sections(facts: Iterable[Fact]) -> tuple[JsonObject, JsonObject]:
    """Attributes and capacity as in resource.k8s.io/v1, sorted by name; ``facts`` begin with the most important.

    Of several facts with one name the first counts; facts beyond ``LIMIT`` are left out.
    """
    chosen: dict[tuple[bool, str], Fact] = {}
    for fact in facts:
        if fits(fact):
            chosen.setdefault((fact.amount, fact.name), fact)
    kept = sorted(list(chosen.values())[:LIMIT], key=attrgetter("name"))
    attributes: JsonObject = {fact.name: _typed(fact.value) for fact in kept if not fact.amount}
    capacity: JsonObject = {fact.name: {"value": quantity(fact)} for fact in kept if fact.amount}
    return attributes, capacity


def quantity(fact: Fact) -> str:
    """An amount as the API server would write it: ``80Gi`` for bytes, ``132`` for a count."""
    number = int(str(fact.value))
    units = (*_BINARY, *_DECIMAL) if fact.bytes else _DECIMAL
    unit, size = next(((unit, size) for unit, size in units if number and number % size == 0), ("", 1))
    return f"{number // size}{unit}"


def _consumable(capacity: JsonObject, offered: DraDevice) -> JsonObject:
    """The capacities of a shared device; ``capacity``: those of the same device unshared.

    A share takes the whole of a capacity without a policy. So every capacity that shares do not consume (including a
    peer's names for the memory) gets a policy whose only valid amount is zero; a claim that asks for some of it gets no
    device.
    """
    assert offered.rule.sharing is not None, "asked for shared devices alone"
    found: JsonObject = {
        name: {**entry, "requestPolicy": {"default": "0", "validValues": ["0"]}}
        for name, entry in capacity.items()
        if isinstance(entry, dict)
    }
    for name, each in consumable(offered.device, offered.rule.sharing, offered.held).items():
        # A range must have room for a step above its least. If less is left, the device has a taint, so this misleads
        # nobody.
        amounts = (max(each.left, each.least + each.step), each.default, each.step, each.least)
        left, default, step, least = (quantity(Fact(name, one, amount=True, bytes=name == MEMORY)) for one in amounts)
        policy: JsonObject = {"default": default, "validRange": {"min": least, "step": step}}
        found[name] = {"value": left, "requestPolicy": policy}
    return dict(sorted(found.items()))


def _typed(found: AttributeValue) -> Json:
    # bool before int: Python's True is one.
    if isinstance(found, bool):
        return {"bool": found}
    if isinstance(found, int):
        return {"int": found}
    return {"version": found.text} if isinstance(found, Version) else {"string": found}


STANDARD = "resource.kubernetes.io/"

_CHOOSING = (
    *("type", "uuid", "parentUUID", "profile", "productName", "memory", "multiprocessors", "sharing", COMPUTE),
    *(f"{STANDARD}pciBusID", f"{STANDARD}pcieRoot", f"{STANDARD}numaNode", "resource", "vendor"),
    *("switch", "rail", "cell2", "cell4", "cell8", "cell16", "cell32"),
    *("ifName", "rdma", "linkType", "sriovFunction", "pfName", "vfIndex", "driver", MOVES),
)
"""Attributes by which claims choose any device: never left out."""
_KNOWING = (
    *("driverVersion", "cudaDriverVersion", "cudaComputeCapability", "architecture", "migEnabled", "clique"),
    *("pciVendor", "pciDevice", "pfPciAddress", "mac", "mtu", "linkUp", "linkSpeedMbps"),
    *("rdmaDevice", "rdmaRateGbps", "rdmaPortState", "pKey", "eswitchMode", "inPod", "dataDirect"),
    *("brand", "nvlinks", "eccEnabled", "migCapable", "gpuModuleID"),
    *("copyEngines", "decoders", "encoders", "jpegEngines", "ofaEngines"),
    *("gpuSlices", "computeSlices", "placementStart", "placementSize"),
)
_TELLING = (
    *("addressingMode", "virtualizationMode", "mode", "operState", "iommuGroup", "minor"),
    *("gpuInstanceID", "computeInstanceID", "gpuInstanceProfileID", "sriovTotalVfs", "acpiIndex"),
    *("firmwareVersion", "nodeGuid", "vbiosVersion", "serial", "boardPartNumber"),
)
"""Attributes for information; left out from the end if there are too many. Unlisted facts come before these."""
_WORTH = {name: number for number, name in enumerate((*_CHOOSING, *_KNOWING))}
_UNLISTED = len(_WORTH)
_WORTH |= {name: _UNLISTED + 1 + number for number, name in enumerate(_TELLING)}


def own_facts(offered: DraDevice) -> tuple[list[Fact], list[Fact]]:
    """The facts that are never left out, and the others; each with the most important first."""
    facts = sorted(_facts(offered), key=lambda fact: (_WORTH.get(fact.name, _UNLISTED), fact.name))
    most = len(_CHOOSING)
    first = [fact for fact in facts if _WORTH.get(fact.name, _UNLISTED) < most]
    return first, facts[len(first) :]


def _facts(offered: DraDevice) -> Iterator[Fact]:
    device = offered.device
    known: dict[str, AttributeValue] = {attribute.name: attribute.value for attribute in device.attributes}
    known.setdefault("type", device.kind.value)
    known["vendor"] = device.vendor
    known["resource"] = offered.rule.resource_of(device)
    if offered.rule.sharing is not None and is_shared(device, offered.rule.sharing):
        known["sharing"] = offered.rule.sharing.strategy.value
    if device.uuid is not None:
        known.setdefault("uuid", device.uuid)
    if offered.rule.moves_interface and device.text("ifName"):
        known[MOVES] = True
    known |= {attribute.name: attribute.value for attribute in offered.placement}
    yield from (Fact(name, found) for name, found in known.items())
    for capacity in device.capacity:
        yield Fact(capacity.name, capacity.value, amount=True, bytes=capacity.name == "memory")
    if "sharing" in known:
        yield Fact(COMPUTE, 100, amount=True)  # It counts towards the limit like any other fact.


_NVIDIA = (
    *("type", "uuid", "parentUUID", "profile", "productName", "brand", "architecture", "cudaComputeCapability"),
    *("driverVersion", "cudaDriverVersion", "addressingMode", "gpuModuleID"),
)
_ENCAPSULATION = {"ethernet": "ether", "infiniband": "infiniband"}

Named = Iterator[tuple[str, AttributeValue | None]]


def peer_facts(peer: Peer, offered: DraDevice) -> list[Fact]:
    """The attributes that this peer would publish, most important first; none for a device that is not its own."""
    return list(_SPEAKERS[peer](offered)) if is_of(peer, offered.device) else []


def is_of(peer: Peer, device: Device) -> bool:
    """Whether this peer would publish the device."""
    if peer is Peer.NVIDIA:
        return vendor_of(device) is NVIDIA
    if peer is Peer.MULTUS:
        return True
    return device.kind in NIC_KINDS and (peer is Peer.DRANET or device.text("sriovFunction") == "vf")


def _nvidia(offered: DraDevice) -> Iterator[Fact]:
    device = offered.device
    known: dict[str, AttributeValue] = {attribute.name: attribute.value for attribute in device.attributes}
    yield from (Fact(f"{Peer.NVIDIA}/{name}", known[name]) for name in _NVIDIA if name in known)
    for capacity in device.capacity:
        yield Fact(f"{Peer.NVIDIA}/{capacity.name}", capacity.value, amount=True, bytes=capacity.name == "memory")


def _dranet(offered: DraDevice) -> Iterator[Fact]:
    names = _dranet_names(offered.device)
    yield from (Fact(f"{Peer.DRANET}/{name}", found) for name, found in names if found is not None)


def _dranet_names(device: Device) -> Named:
    function = device.text("sriovFunction")
    total = device.attribute("sriovTotalVfs")
    yield "ifName", device.attribute("ifName")
    yield "rdma", device.attribute("rdma")
    yield "rdmaDevice", device.attribute("rdmaDevice")
    yield "numaNode", device.numa_node
    yield "mac", device.attribute("mac")
    yield "state", device.attribute("operState")
    yield "mtu", device.attribute("mtu")
    yield "pciAddress", device.pci_address
    yield "encapsulation", _ENCAPSULATION.get(device.text("linkType"))
    yield "type", "device" if device.text("ifName") else None
    yield "sriov", bool(total) if function != "vf" else False
    yield "sriovVfs", device.attribute("sriovVfs")
    yield "isSriovVf", True if function == "vf" else None
    yield "virtual", False


def _sriov(offered: DraDevice) -> Iterator[Fact]:
    device = offered.device
    yield from (Fact(f"{Peer.SRIOV}/{name}", found) for name, found in _sriov_names(device) if found is not None)
    yield from _multus(offered)
    if device.numa_node is not None:
        yield Fact(f"{Peer.DRANET}/numaNode", device.numa_node)


def _multus(offered: DraDevice) -> Iterator[Fact]:
    device = offered.device
    yield Fact(f"{Peer.MULTUS}/resourceName", offered.rule.resource_of(device))
    # CNI plugins take a PCI address; of a device without one no plugin makes a network, but Multus wants a text.
    yield Fact(f"{Peer.MULTUS}/deviceID", device.pci_address or device.name)


def _sriov_names(device: Device) -> Named:
    yield "vendor", device.attribute("pciVendor")
    yield "deviceID", device.attribute("pciDevice")
    yield "pciAddress", device.pci_address
    yield "PFName", device.attribute("pfName")
    yield "pfPciAddress", device.attribute("pfPciAddress")
    yield "vfID", device.attribute("vfIndex")
    yield "rdmaCapable", device.attribute("rdma")
    yield "linkType", device.attribute("linkType")
    yield "EswitchMode", device.attribute("eswitchMode")


_SPEAKERS: dict[Peer, Callable[[DraDevice], Iterator[Fact]]] = {
    Peer.NVIDIA: _nvidia,
    Peer.DRANET: _dranet,
    Peer.SRIOV: _sriov,
    Peer.MULTUS: _multus,
}
