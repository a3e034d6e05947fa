"""Turns what the kernel reports about devices' health into Looks at once.

It complements the scans, which follow a hint only after some hundred milliseconds: a device that is withdrawn late is
given to one more pod. rtnetlink's messages and uevents are judged on the loop, at once; the files of /sys and /dev
every few seconds and soon after a uevent, in a thread. So there are two sources of Looks:

- ``kernel``: links, and what uevents say of functions and nodes. A uevent's report holds until a sweep that began after
  it has looked, so that nothing stays because an event was lost; as long as sweeps hang it stays.
- ``sysfs``: everything that a sweep found.

Only differences are handed over, so that a link that goes up and down a thousand times within one read of the socket is
one Look or none; what flapping means is not decided here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from node.clocks import Clocks
from node.events import EventBus
from node.health.kernel.functions import concerns_devices, is_made, names_of, trouble_of
from node.health.kernel.links import LiveLink, NicLink, by_interface, link_troubles, nic_link
from node.health.signal import Condition, Look
from node.inventory.live.sweeps import Swept
from node.inventory.live.udev import Uevent
from node.inventory.model import Device, Snapshot
from node.inventory.network.host import POD_KINDS
from node.inventory.network.rtnetlink import Link
from node.rules import Rule

KERNEL, SYSFS = "kernel", "sysfs"
"""Names of the sources."""


class KernelHealth:
    """Publishes every ``Look`` on ``bus``.

    Call ``observe`` with every snapshot, before listening begins and whenever one is published or the rules change.
    ``looks`` counts. All methods belong to the thread of the loop.
    """

    def __init__(self, bus: EventBus, clocks: Clocks) -> None:
        self._bus = bus
        self._clock = clocks.clock
        self._rules: tuple[Rule, ...] = ()
        self._links: dict[int, Link] = {}
        self._live: dict[str, LiveLink] = {}
        self._in_pods: dict[str, LiveLink] = {}
        """By device, the link of an interface that this agent moved into a pod."""
        self._devices: dict[str, Device] = {}
        self._nics: dict[str, NicLink] = {}
        self._by_interface: Mapping[str, Sequence[str]] = {}
        self._names: Mapping[str, Sequence[str]] = {}
        self._events: dict[str, dict[str, tuple[Condition, float]]] = {}
        """By device, the reports of uevents by their source's name, with the time by the loop's clock."""
        self._reported: dict[str, tuple[Condition, ...]] = {}
        self._dirty: set[str] = set()
        self.looks = 0

    def observe(self, snapshot: Snapshot, rules: tuple[Rule, ...]) -> None:
        """Use these devices from now on, and judge everything known again."""
        before, nics = self._devices, self._nics
        same = rules is self._rules or rules == self._rules
        self._rules = rules
        self._devices = {device.name: device for device in snapshot.devices}
        self._nics = {}
        for name, device in self._devices.items():
            # Unchanged devices are the very objects of the snapshot before: a large node has a thousand.
            nic = nics.get(name) if same and before.get(name) is device else nic_link(device, rules)
            if nic is not None:
                self._nics[name] = nic
        self._by_interface = by_interface(self._nics)
        self._names = names_of(snapshot.devices)
        for name in self._events.keys() - self._devices.keys():
            del self._events[name]
        departed = self._reported.keys() - self._devices.keys()
        over = {name: () for name in departed if self._reported[name]}
        for name in departed:
            del self._reported[name]
        if over:
            # A report on it must not wait for another, healthy device of that name.
            self._look(KERNEL, over)
        self._dirty |= self._nics.keys() | self._events.keys()
        self.settle()

    def republish(self) -> None:
        """Report everything known again, for a new subscriber or a changed policy."""
        found = {name: troubles for name, troubles in self._reported.items() if troubles}
        if found:
            self._look(KERNEL, found)

    def relisted(self, links: Sequence[Link]) -> None:
        """Take in the list of all links."""
        self._links, self._live = {}, {}
        for link in links:
            self._see(link)
        self._dirty |= self._nics.keys()
        self.settle()

    def link(self, link: Link, *, gone: bool) -> None:
        """Take in a link's new state or its end; judged with the next ``settle``."""
        before = self._links.pop(link.index, None)
        if before is not None:
            self._live.pop(before.name, None)
            self._dirty.update(self._by_interface.get(before.name, ()))
        if not gone:
            self._see(link)
            self._dirty.update(self._by_interface.get(link.name, ()))

    def pod_link(self, device: str, link: LiveLink | None) -> None:
        """Take in the link of an interface that is in a pod; None for one that is not, or is not followed."""
        if link is None:
            self._in_pods.pop(device, None)
        else:
            self._in_pods[device] = link
        self._dirty.add(device)
        self.settle()

    def uevent(self, event: Uevent) -> bool:
        """Take in an event of a function or a device node; returns whether it concerns a device."""
        devices = self._names.get(event.name, ()) if concerns_devices(event.subsystem) else ()
        at = asyncio.get_running_loop().time()
        for device in devices:
            made = is_made(self._devices[device])
            trouble = trouble_of(event.action, event.subsystem, event.name, made=made)
            said = self._events.setdefault(device, {})
            if trouble is None:
                said.pop(event.name, None)
            else:
                said[event.name] = (trouble, at)
            self._dirty.add(device)
        self.settle()
        return bool(devices)

    def swept(self, swept: Swept) -> None:
        """Take in a sweep, which replaces older reports of uevents."""
        # A device that is not there any more is left out.
        known = {name: troubles for name, troubles in swept.found.items() if name in self._devices}
        if known:
            self._look(SYSFS, known)
        for name, said in list(self._events.items()):
            if name not in known:
                continue
            left = {what: (trouble, at) for what, (trouble, at) in said.items() if at >= swept.began}
            if left != said:
                self._events[name] = left
                self._dirty.add(name)
            if not left:
                del self._events[name]
        self.settle()

    def settle(self) -> None:
        """Report what differs from the last report."""
        found = {}
        for name in sorted(self._dirty & self._devices.keys()):
            now = self._troubles(name)
            if now != self._reported.get(name, ()):
                found[name] = now
        self._dirty.clear()
        if found:
            self._reported |= found
            self._look(KERNEL, found)

    def _troubles(self, name: str) -> tuple[Condition, ...]:
        said = [trouble for trouble, _ in self._events.get(name, {}).values()]
        nic = self._nics.get(name)
        return (*said, *(link_troubles(nic, self._live, self._in_pods.get(name)) if nic is not None else ()))

    def _look(self, source: str, found: Mapping[str, tuple[Condition, ...]]) -> None:
        self.looks += 1
        self._bus.publish(Look(source, self._clock(), found))

    def _see(self, link: Link) -> None:
        # Pods have hundreds of links; only one with the name of a NIC's interface counts.
        if link.kind in POD_KINDS and link.name not in self._by_interface:
            return
        self._links[link.index] = link
        self._live[link.name] = LiveLink(link.up, link.carrier)
