"""Whether the link of a NIC is down, from what rtnetlink says this moment and what the last scan found.

Pure. rtnetlink is the quicker one and knows only interfaces of this network namespace; the scan knows what a device
is. Three rules keep what somebody does on purpose from being a fault:

- A NIC that a pod has been given (``inPod``) has no link trouble, whatever happens to its link there.
- An interface that is administratively down says nothing of its cable. The kernel sets an interface down the moment
  before it moves it into a pod's namespace, so that such a message alone is believed only once a scan says the same.
  An idle virtual function waits in that state, and its link is its physical function's.
- Nobody is told of a link that no rule with ``linkHealth`` asks about.

InfiniBand's state is its RDMA port's, of which no message tells: the scan's word stands (a poll wakes the scan).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from node.health.signal import Condition, Trouble
from node.inventory.model import NIC_KINDS, Device
from node.inventory.retention import is_gone
from node.rules import Rule, rule_for
from node.values import Value, value

_VIRTUAL = ("vf", "sf")


@value
class LiveLink(Value):
    """An interface as rtnetlink shows it: ``up`` administratively, and whether it has a carrier."""

    up: bool
    carrier: bool


@value
class NicLink(Value):
    """What of a NIC decides about its link; ``told``: what the scan found, None where nobody can tell.

    ``above``: the interface of the physical function of a virtual one, empty for others. ``asked``: a rule wants to
    know. ``away``: a pod has it, or it is gone, so that its link is nobody's trouble here.
    """

    interface: str = ""
    above: str = ""
    infiniband: bool = False
    asked: bool = False
    away: bool = False
    told: bool | None = None


def nic_link(device: Device, rules: Iterable[Rule]) -> NicLink | None:
    """What of a device matters here, None for one that is no NIC."""
    if device.kind not in NIC_KINDS:
        return None
    rule = rule_for(device, rules)
    told = device.attribute("linkUp")
    return NicLink(
        interface=device.text("ifName"),
        above=device.text("pfName") if device.text("sriovFunction") in _VIRTUAL else "",
        infiniband=device.text("linkType") == "infiniband",
        asked=rule is not None and rule.link_health,
        away=device.attribute("inPod") is True or is_gone(device),
        told=told if isinstance(told, bool) else None,
    )


def link_troubles(nic: NicLink, live: Mapping[str, LiveLink]) -> tuple[Condition, ...]:
    """What is wrong with the link: nothing, or that it is down."""
    if not nic.asked or nic.away:
        return ()
    if nic.infiniband:
        return (Condition(Trouble.PORT, "its InfiniBand port is not active"),) if nic.told is False else ()
    for name in (nic.interface, nic.above):
        heard = live.get(name)
        if heard is not None and heard.up:
            return () if heard.carrier else (Condition(Trouble.CARRIER, f"{name} has no carrier"),)
    return (Condition(Trouble.CARRIER, "its link is down"),) if nic.told is False else ()


def by_interface(nics: Mapping[str, NicLink]) -> dict[str, Sequence[str]]:
    """Names of the devices whose link an interface's state may decide, by the interface."""
    found: dict[str, list[str]] = {}
    for device, nic in nics.items():
        for name in {nic.interface, nic.above} - {""}:
            found.setdefault(name, []).append(device)
    return {**found}
