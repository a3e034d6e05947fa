"""Whether the link of a NIC is down, and which functions, nodes and ports are read for which device. Pure.

The link's state comes from rtnetlink's last message and from the last scan. rtnetlink is faster but knows only
interfaces of this network namespace; the scan knows the devices. Three rules keep deliberate changes from counting as
faults:

- A NIC that somebody else gave to a pod (``inPod``) has no link trouble, whatever happens to its link there: nobody
  reports it. Of one that ostler moved itself the link is known, and judged as on the node.
- An interface that is administratively down says nothing of its cable. The kernel sets an interface down the moment
  before it moves it into a pod's namespace, so that such a message alone is believed only once a scan says the same. An
  idle virtual function waits in that state, and its link is its physical function's.
- A link that no rule with ``linkHealth`` asks about is not reported.

InfiniBand's state is its RDMA port's, which no message reports: the scan's finding stands (a poll wakes the scan).

Several devices may share a function (ports of a NIC, subfunctions, MIG devices beside their GPU); it is looked at once.
Parts of GPUs have nodes of their own and nothing else; the health keeper spreads what their GPU has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from node.health.signal import Condition, Trouble
from node.inventory.model import NIC_KINDS, Device, DeviceKind, NodeRole, Snapshot, is_gone
from node.rules import Rule, rule_for
from node.values import Value, value

_VIRTUAL = ("vf", "sf")


@value
class LiveLink(Value):
    """An interface as rtnetlink shows it: ``up`` administratively, and whether it has a carrier.

    ``name``: in the pod, for one that is there.
    """

    up: bool
    carrier: bool
    name: str = ""


@value
class NicLink(Value):
    """The facts of a NIC that decide about its link; ``link_up``: what the scan found, None if unknown.

    ``above``: the interface of the physical function of a virtual one, empty for others. ``asked``: a rule has
    linkHealth. ``away``: a pod has it, or it is gone, so that its link does not matter here.
    """

    interface: str = ""
    above: str = ""
    infiniband: bool = False
    asked: bool = False
    away: bool = False
    link_up: bool | None = None


def nic_link(device: Device, rules: Iterable[Rule]) -> NicLink | None:
    """The facts of a NIC that matter here; None for any other device."""
    if device.kind not in NIC_KINDS:
        return None
    rule = rule_for(device, rules)
    link_up = device.attribute("linkUp")
    return NicLink(
        interface=device.text("ifName"),
        above=device.text("pfName") if device.text("sriovFunction") in _VIRTUAL else "",
        infiniband=device.text("linkType") == "infiniband",
        asked=rule is not None and rule.link_health,
        away=device.attribute("inPod") is True or is_gone(device),
        link_up=link_up if isinstance(link_up, bool) else None,
    )


def link_troubles(nic: NicLink, live: Mapping[str, LiveLink], in_pod: LiveLink | None = None) -> tuple[Condition, ...]:
    """The condition of a link that is down; empty if it is not. ``in_pod``: the link of one that ostler moved there."""
    if not nic.asked:
        return ()
    if in_pod is not None and not nic.infiniband:
        down = in_pod.up and not in_pod.carrier
        return (Condition(Trouble.CARRIER, f"{in_pod.name} in its pod has no carrier"),) if down else ()
    if nic.away:
        return ()
    if nic.infiniband:
        return (Condition(Trouble.PORT, "its InfiniBand port is not active"),) if nic.link_up is False else ()
    for name in (nic.interface, nic.above):
        heard = live.get(name)
        if heard is not None and heard.up:
            return () if heard.carrier else (Condition(Trouble.CARRIER, f"{name} has no carrier"),)
    return (Condition(Trouble.CARRIER, "its link is down"),) if nic.link_up is False else ()


def by_interface(nics: Mapping[str, NicLink]) -> dict[str, Sequence[str]]:
    """By interface, the devices whose link its state may decide."""
    found: dict[str, list[str]] = {}
    for device, nic in nics.items():
        for name in {nic.interface, nic.above} - {""}:
            found.setdefault(name, []).append(device)
    return {**found}


_PARTS = (DeviceKind.MIG, DeviceKind.PARTITION)
_OWN = (NodeRole.DEVICE, NodeRole.CAPABILITY, NodeRole.RENDER, NodeRole.RDMA)
_SHARED = "/dev/infiniband/rdma_cm"


@value
class Watched(Value):
    """A device and what to read for it; a device with nothing to read counts as healthy here.

    ``address``: its PCI function, empty if it is not read by itself. ``auxiliary``: its device on the auxiliary bus.
    ``virtual``: a virtual function, which has no PCIe link and whose errors its physical one counts. ``speed_counts``:
    see ``pcie.link_troubles``. ``nodes``: paths on the host. ``rdma``: RDMA device and port.
    """

    device: str
    address: str = ""
    auxiliary: str = ""
    virtual: bool = False
    speed_counts: bool = False
    nodes: tuple[str, ...] = ()
    rdma: tuple[str, int] | None = None


def watched(snapshot: Snapshot, rules: Iterable[Rule]) -> tuple[Watched, ...]:
    """Everything to read, in the snapshot's order."""
    rules = tuple(rules)
    return tuple([_watched(device, rules) for device in snapshot.devices])


def _watched(device: Device, rules: tuple[Rule, ...]) -> Watched:
    if is_gone(device):
        return Watched(device.name)
    nic = nic_link(device, rules)
    # An RDMA device in a pod's network namespace, and its nodes, concern only that pod.
    roles = _OWN if nic is None or not nic.away else tuple(role for role in _OWN if role is not NodeRole.RDMA)
    own = [node for node in device.nodes_of(*roles) if node.path != _SHARED and not node.by_numbers]
    nodes = tuple([node.on_host or node.path for node in own])
    if device.kind in _PARTS:
        return Watched(device.name, nodes=nodes)
    virtual = device.text("sriovFunction") == "vf"
    asked = nic is not None and nic.asked and not nic.away and not (virtual or nic.above)
    return Watched(
        device.name,
        address=device.pci_address or "",
        auxiliary=device.text("auxDevice"),
        virtual=virtual,
        speed_counts=nic is not None,
        nodes=nodes,
        rdma=_rdma(device) if asked else None,
    )


def _rdma(device: Device) -> tuple[str, int] | None:
    name, port = device.text("rdmaDevice"), device.attribute("port")
    # An adapter counts its RDMA ports from 1 and its interfaces' ports from 0.
    return (name, port + 1 if isinstance(port, int) else 1) if name else None
