"""RDMA devices, their ports and their character devices, from /sys/class/infiniband and the classes beside it.

What a device is cannot change as long as its directory entry is the same one, so it is read once. Most drivers ask the
device's firmware for a port's state and rate, so what follows from the state is not asked for: an active port's
physical state is up, and an Ethernet port has the one partition key that it was made with.

Whether RDMA devices belong to network namespaces (``rdma system set netns``) is a parameter of the module ib_core,
built in or not. RDMA netlink says the same, but loads that module where there is no RDMA at all. A kernel before 5.3
has neither and shares the devices.
"""

from __future__ import annotations

import errno
import re
from operator import attrgetter

from node.inventory.net_facts import RdmaDevice, RdmaFile, RdmaPort
from node.inventory.sysfs.files import DRIVERS, Stamp, SysfsFolder, Unreadable, entries, printable, read_text, stamp
from node.values import replace

_FILES = (
    ("infiniband_verbs", re.compile(r"uverbs[0-9]+")),
    ("infiniband_mad", re.compile(r"(?:umad|issm)[0-9]+")),
)
"""Classes of character devices, and how their entries are named; ``abi_version`` is a plain file among them."""
_NUMBERS = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")
_PORT = re.compile(r"[0-9]{1,3}")
_ACTIVE = "4: ACTIVE"
_LINKED = "5: LinkUp"
_ETHERNET = "Ethernet"


class RdmaDevices:
    """Reads the RDMA devices below ``sys`` and remembers what cannot change."""

    def __init__(self, sys: str) -> None:
        self._class = f"{sys}/class"
        self._known: dict[str, tuple[Stamp, RdmaDevice]] = {}
        self._listed: dict[str, Stamp] = {}
        self._numbers: dict[str, tuple[Stamp, str, RdmaFile]] = {}

    def read(self, errors: list[str]) -> tuple[RdmaDevice, ...]:
        """The devices by name."""
        found = entries(f"{self._class}/infiniband", errors, absent_is_fine=True)
        listed = {entry.name: mark for entry in found if (mark := stamp(entry)) is not None}
        files = self._files(listed, errors)
        known: dict[str, tuple[Stamp, RdmaDevice]] = {}
        devices = []
        for name, mark in listed.items():
            seen, before = self._known.get(name, (None, None))
            folder = SysfsFolder(f"{self._class}/infiniband/{name}", [])
            device = before if before is not None and seen == mark else _identify(folder, name)
            if device is not None:
                device = _update(folder, device, tuple(files.get(printable(name), ())))
            if (folder.errors or _incomplete(device)) and folder.gone:
                continue
            errors += folder.errors
            if device is not None:
                devices.append(device)
                # The ports appear a moment after the device does.
                if not folder.errors and device.ports:
                    known[name] = (mark, device)
        self._known, self._listed = known, listed
        return tuple(devices)

    def forget(self) -> None:
        """Forget what was seen."""
        self._known = {}
        self._listed = {}
        self._numbers = {}

    def _files(self, listed: dict[str, Stamp], errors: list[str]) -> dict[str, list[RdmaFile]]:
        """Character devices by the name of their RDMA device.

        udev renames RDMA devices after their character devices are there, so whose one is can be remembered only as
        long as the RDMA devices listed are the same.
        """
        remembered = self._numbers if listed == self._listed else {}
        numbers: dict[str, tuple[Stamp, str, RdmaFile]] = {}
        found: dict[str, list[RdmaFile]] = {}
        for kind, names in _FILES:
            for entry in entries(f"{self._class}/{kind}", errors, absent_is_fine=True):
                mark = stamp(entry) if names.fullmatch(entry.name) else None
                if mark is None:
                    continue
                now = remembered.get(entry.name)
                if now is None or now[0] != mark:
                    folder = SysfsFolder(entry.path, [])
                    now = _character_device(folder, entry.name, mark)
                    if folder.gone:
                        continue
                    errors += folder.errors
                if now is not None:
                    found.setdefault(now[1], []).append(now[2])
                    numbers[entry.name] = now
        self._numbers = numbers
        for files in found.values():
            files.sort(key=attrgetter("name"))
        return found


def _character_device(folder: SysfsFolder, name: str, mark: Stamp) -> tuple[Stamp, str, RdmaFile] | None:
    """The entry's stamp, the name of the RDMA device and the character device's; None if one cannot be read."""
    device = folder.text("ibdev")
    text = folder.text("dev")
    if text is None or device is None:
        return None
    match = _NUMBERS.fullmatch(text)
    if match is None:
        folder.complain("dev", f"{text[:40]!r} is not a major:minor number")
        return None
    return mark, device, RdmaFile(name, int(match.group(1)), int(match.group(2)))


def _identify(folder: SysfsFolder, name: str) -> RdmaDevice | None:
    """The facts of a device that cannot change, and its ports' numbers; None for other entries."""
    path = folder.tree_path(name)
    if not path:
        return None
    return RdmaDevice(
        name=printable(name),
        path=path,
        node_type=folder.text("node_type"),
        node_guid=folder.text("node_guid"),
        system_guid=folder.text("sys_image_guid"),
        firmware_version=folder.text("fw_ver", DRIVERS) or None,
        board_id=folder.text("board_id", DRIVERS) or None,
        hca_type=folder.text("hca_type", DRIVERS) or None,
        ports=tuple(RdmaPort(number) for number in sorted(int(each) for each in folder.names("ports", _PORT))),
    )


def _update(folder: SysfsFolder, device: RdmaDevice, files: tuple[RdmaFile, ...]) -> RdmaDevice:
    """The device with its current variable facts; the same value if nothing changed."""
    ports = tuple([_port(folder, port) for port in device.ports])
    if ports == device.ports and files == device.files:
        return device
    return replace(device, ports=ports, files=files)


def _incomplete(device: RdmaDevice | None) -> bool:
    """Whether something that every device has could not be read; the state is what is read last."""
    return device is None or not device.ports or any(port.state is None for port in device.ports)


def _port(folder: SysfsFolder, before: RdmaPort) -> RdmaPort:
    base = f"ports/{before.port}"
    # A port without an interface has no first GID's device to name.
    interface = folder.text(f"{base}/gid_attrs/ndevs/0", DRIVERS) or None
    layer = before.link_layer or folder.text(f"{base}/link_layer")
    pkey = before.pkey
    if pkey is None or layer != _ETHERNET:
        pkey = folder.text(f"{base}/pkeys/0", DRIVERS) or None
    rate = folder.text(f"{base}/rate")
    state = folder.text(f"{base}/state")
    physical = before.physical_state
    if not (state == before.state == _ACTIVE and physical == _LINKED):
        physical = folder.text(f"{base}/phys_state")
    now = RdmaPort(before.port, state, physical, layer, rate, interface, pkey)
    return before if now == before else now


def rdma_exclusive(sys: str, errors: list[str]) -> bool | None:
    """Whether each RDMA device works in one network namespace only; None where the kernel does not say.

    What cannot be read is a line in ``errors``.
    """
    try:
        return read_text(f"{sys}/module/ib_core/parameters/netns_mode") == "N"
    except Unreadable as error:
        cause = error.__cause__
        if not (isinstance(cause, OSError) and cause.errno in (errno.ENOENT, errno.ENOTDIR)):
            errors.append(str(error))
        return None
