"""Follows the links of interfaces that are in pods: whether a cable was pulled while a pod uses it. Nothing is polled.

One socket in the node's namespace hears of the links of all namespaces that have a number there
(NETLINK_LISTEN_ALL_NSID, which needs CAP_NET_BROADCAST). A socket inside each pod's namespace would need no such right,
but it would keep the namespace alive: the kernel returns a NIC only when the last user of its namespace is gone, so a
NIC could be out of everybody's reach for as long as the agent runs.

Any pod with NET_ADMIN can make as many messages as it likes. Under such a flood nothing is heard: after each pause the
links are read once.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from node.health.kernel.links import LiveLink
from node.interfaces.links import GETLINK, LINK, NEWLINK, InterfaceLink, parse_interface_link
from node.interfaces.model import InterfaceError
from node.interfaces.mover import alias_of
from node.interfaces.namespace import NetworkNamespace
from node.inventory.live.passing import in_passing
from node.netlink import NetlinkError, NetlinkSocket, attribute, attributes, group_mask

_DELLINK, _NEWNSID, _DELNSID, _GETNSID = 17, 88, 89, 90
_LINK_GROUP, _NSID_GROUP = 1, 28
_NSID, _DESCRIPTOR = 1, 3
_ANY_FAMILY = bytes(4)
"""rtgenmsg, padded."""
_NUMBER = struct.Struct("=i")
_TARGET_NSID = 46
_BUFFER = 1 << 20
_AT_A_TIME = 64
"""Reads per turn of the loop."""
_MOST_MESSAGES = 4096
"""Messages in a pause's time that are read; a hundred links that come and go at once make fewer."""
_PAUSE = 1.0
"""Seconds."""


class PodLinkListener(Protocol):
    """Receives the links of interfaces in pods, on the loop."""

    def pod_link(self, device: str, link: LiveLink | None) -> None:
        """The link of the device's interface changed; None: it is in no pod any more, or its namespace is gone."""


class PodLinkWatch:
    """Reports every change of the link of each interface that is in a pod; belongs to the thread of the loop."""

    name = "pod links"

    def __init__(self, listener: PodLinkListener, *, most: int = _MOST_MESSAGES, pause: float = _PAUSE) -> None:
        self._listener = listener
        self._most, self._pause = most, pause
        self._heard_since, self._heard_count = 0.0, 0
        """The loop's time, and the messages since then."""
        self._wanted: dict[str, Path] = {}
        self._devices: dict[tuple[int, int], str] = {}
        """By the number of the namespace and the link's index."""
        self._found: dict[str, Path] = {}
        """By device, the namespace in which it was found."""
        self._unheard: set[tuple[int, int]] = set()
        """Links that were found, of which no message has come since."""
        self._shown: dict[str, LiveLink] = {}
        self._changed = asyncio.Event()
        self._socket: NetlinkSocket | None = None
        self._ended: asyncio.Future[None] | None = None

    def follow(self, places: Mapping[str, Path]) -> None:
        """From now on, follow the interfaces of these devices, each found by its alias in the namespace at the path."""
        # The same places again may mean that an interface left one and returned there.
        self._wanted = dict(places)
        self._changed.set()

    async def run(self) -> None:
        """Listen until cancelled; raises NetlinkError, InterfaceError and OSError when it cannot."""
        try:
            while True:
                await self._wait_for_devices()
                with _listening() as netlink:
                    await self._listen(netlink)
                if self._wanted:
                    await asyncio.sleep(self._pause)
        finally:
            # What is not followed is not known to be down.
            for device in list(self._shown):
                self._show(device, None)

    async def _wait_for_devices(self) -> None:
        """Without any device there is no socket to read."""
        while not self._wanted:
            for device in list(self._shown):
                self._show(device, None)
            self._changed.clear()
            await self._changed.wait()

    async def _listen(self, netlink: NetlinkSocket) -> None:
        """Listen until messages were lost, too many came, or nothing is left to follow."""
        loop = asyncio.get_running_loop()
        self._socket, self._ended = netlink, loop.create_future()
        self._devices.clear()
        self._found.clear()
        loop.add_reader(netlink.fileno(), self._drain)
        try:
            while self._wanted and not self._ended.done():
                self._changed.clear()
                await self._find(dict(self._wanted))
                change = loop.create_task(self._changed.wait())
                await asyncio.wait((change, self._ended), return_when=asyncio.FIRST_COMPLETED)
                change.cancel()
            if self._ended.done():
                self._ended.result()
        finally:
            loop.remove_reader(netlink.fileno())
            self._socket = None

    async def _find(self, wanted: Mapping[str, Path]) -> None:
        """Begin to follow what is new, and stop with what is not wanted any more."""
        for key, device in list(self._devices.items()):
            if wanted.get(device) != self._found[device]:
                self._lose(key)
        new = {device: path for device, path in wanted.items() if device not in self._found}
        found = await in_passing(_located, new) if new else {}
        self._devices |= {key: device for device, key in found.items()}
        self._found |= {device: wanted[device] for device in found}
        self._unheard = set(found.values())
        # After messages about them count: whatever changes later is in a message, which is newer than this.
        for key, link in (await in_passing(_present, list(found.values()))).items() if found else ():
            if key in self._unheard:
                self._take(key, link)
        for device in self._shown.keys() - self._found.keys():
            self._show(device, None)

    def _drain(self) -> None:
        if self._socket is None or self._ended is None or self._ended.done():
            return
        try:
            for _ in range(_AT_A_TIME):
                messages = self._socket.numbered_notifications()
                if not messages:
                    return
                for number, kind, payload in messages:
                    self._heard(number, kind, payload)
                if self._is_flooded(len(messages)):
                    raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        except Exception as error:  # noqa: BLE001 - the part ends with it, its supervisor logs it and begins anew
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            if isinstance(error, OSError) and error.errno == errno.ENOBUFS:
                self._ended.set_result(None)
            else:
                self._ended.set_exception(error)

    def _is_flooded(self, count: int) -> bool:
        """Whether, with that many messages more, too many came in the time of a pause."""
        now = asyncio.get_running_loop().time()
        if now - self._heard_since > self._pause:
            self._heard_since, self._heard_count = now, 0
        self._heard_count += count
        return self._heard_count > self._most

    def _heard(self, number: int | None, kind: int, payload: bytes) -> None:
        if number is None and kind == _DELNSID:
            # With its number a namespace that ends loses its voice: its links are not reported as gone.
            ended = _NUMBER.unpack(attributes(payload, len(_ANY_FAMILY))[_NSID])[0]
            for key in [key for key in self._devices if key[0] == ended]:
                self._lose(key)
            return
        # Most messages are of other pods' links; only the header is read of those.
        if number is None or kind not in {NEWLINK, _DELLINK} or len(payload) < LINK.size or payload[0]:
            return
        key = number, LINK.unpack_from(payload)[2]
        if key in self._devices:
            self._unheard.discard(key)
            self._take(key, parse_interface_link(payload) if kind == NEWLINK else None)

    def _take(self, key: tuple[int, int], link: InterfaceLink | None) -> None:
        if link is None:
            self._lose(key)
        elif key in self._devices and link.name:
            # A message without a name is an event of a wireless driver.
            self._show(self._devices[key], LiveLink(link.up, link.carrier, link.name))

    def _lose(self, key: tuple[int, int]) -> None:
        """The link left this namespace."""
        self._unheard.discard(key)
        device = self._devices.pop(key, None)
        if device is not None:
            del self._found[device]
            self._show(device, None)
            if device in self._wanted:
                # It may be back already: then the message that says so came before anybody knew its new key.
                self._changed.set()

    def _show(self, device: str, link: LiveLink | None) -> None:
        if link == self._shown.get(device):
            return
        if link is None:
            del self._shown[device]
        else:
            self._shown[device] = link
        self._listener.pod_link(device, link)


def _listening() -> NetlinkSocket:
    try:
        return NetlinkSocket(group_mask(_LINK_GROUP, _NSID_GROUP), buffer=_BUFFER, all_namespaces=True)
    except NetlinkError as error:
        if error.number != errno.EPERM:
            raise
        raise NetlinkError(
            "links of interfaces in pods", "not permitted; the agent needs the capability NET_BROADCAST", error.number
        ) from error


def _located(places: Mapping[str, Path]) -> dict[str, tuple[int, int]]:
    """The number of its namespace and its index for each device's link that is there."""
    found = {}
    with NetlinkSocket() as netlink:
        for device, path in places.items():
            try:
                with NetworkNamespace(path) as namespace:
                    number = _number_of(netlink, namespace)
            except (FileNotFoundError, InterfaceError):
                # Gone already, or about to go: the interface comes back, and its place is told then.
                continue
            for link in _links(netlink, number, 0, alias_of(device).encode()):
                if link.alias == alias_of(device):
                    found[device] = number, link.index
    return found


def _present(keys: list[tuple[int, int]]) -> dict[tuple[int, int], InterfaceLink | None]:
    """The links as they are now; None for one that has left."""
    with NetlinkSocket() as netlink:
        return {(number, index): next(_links(netlink, number, index), None) for number, index in keys}


def _number_of(netlink: NetlinkSocket, namespace: NetworkNamespace) -> int:
    """The number that the namespace has in this one; it gets one if it has none."""
    descriptor = attribute(_DESCRIPTOR, _NUMBER.pack(namespace.fileno()))
    try:
        netlink.request(_NEWNSID, _ANY_FAMILY + attribute(_NSID, _NUMBER.pack(-1)) + descriptor, "a namespace's number")
    except NetlinkError as error:
        if error.number != errno.EEXIST:
            raise
    [payload] = netlink.request(_GETNSID, _ANY_FAMILY + descriptor, "a namespace's number")
    return int(_NUMBER.unpack(attributes(payload, len(_ANY_FAMILY))[_NSID])[0])


def _links(netlink: NetlinkSocket, number: int, index: int, mark: bytes = b"") -> Iterator[InterfaceLink]:
    """The link with that index in the namespace with that number, or for 0 all in whose messages ``mark`` is.

    None if either is gone. A pod may have very many links: they are read one after the other.
    """
    request = LINK.pack(socket.AF_UNSPEC, 0, index, 0, 0) + attribute(_TARGET_NSID, _NUMBER.pack(number))
    ask: Callable[[int, bytes, str], Iterable[bytes]] = netlink.request if index else netlink.stream
    try:
        for payload in ask(GETLINK, request, "links of a pod"):
            if mark in payload:
                yield parse_interface_link(payload)
    except NetlinkError as error:
        if error.number not in {errno.ENODEV, errno.EINVAL, errno.ENOENT}:
            raise
