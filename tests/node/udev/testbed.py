"""A process with a mocked /sys, driven by lines on its standard input: devices, attributes, links and uevents.

Run with LD_PRELOAD=libumockdev-preload.so.0. The library is called through ctypes, so that any interpreter will do.
The first line written is the test bed's folder; other processes with the same preload see it with UMOCKDEV_DIR set to
it. Every command is a line of JSON, ``[name, argument, ...]``, answered with a line of JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

_Text = ctypes.c_char_p
_Bed = ctypes.c_void_p


class _Testbed:
    """libumockdev's test bed; paths of devices begin with /sys."""

    def __init__(self) -> None:
        self._library = library = ctypes.CDLL("libumockdev.so.0")
        library.umockdev_testbed_new.restype = _Bed
        library.umockdev_testbed_get_root_dir.restype = _Text
        library.umockdev_testbed_get_root_dir.argtypes = [_Bed]
        library.umockdev_testbed_add_devicev.restype = _Text
        texts = ctypes.POINTER(_Text)
        library.umockdev_testbed_add_devicev.argtypes = [_Bed, _Text, _Text, _Text, texts, texts]
        library.umockdev_testbed_remove_device.argtypes = [_Bed, _Text]
        library.umockdev_testbed_uevent.argtypes = [_Bed, _Text, _Text]
        self._bed = library.umockdev_testbed_new()
        self.root = Path(library.umockdev_testbed_get_root_dir(self._bed).decode())
        # A folder of the bus must exist before anybody looks, as on every machine with PCI.
        (self.root / "sys/bus/pci/devices").mkdir(parents=True)
        (self.root / "sys/class/net").mkdir(parents=True)

    def add(self, subsystem: str, name: str, parent: str, attributes: dict[str, str]) -> str:
        """Make a device and send its ``add``; attributes get the newline that sysfs gives them."""
        # A host bridge has no subsystem and is only a folder.
        (self.root / parent.lstrip("/")).mkdir(parents=True, exist_ok=True)
        path = self._library.umockdev_testbed_add_devicev(
            self._bed,
            subsystem.encode(),
            name.encode(),
            parent.encode(),
            _list({key: f"{text}\n" for key, text in attributes.items()}),
            _list({}),
        )
        if path is None:
            raise ValueError(f"umockdev refuses {subsystem} device {name!r} below {parent!r}")
        return str(path.decode())

    def write(self, path: str, text: str) -> None:
        """Write an attribute, with the folders that it is in, without an event."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def link(self, path: str, target: str | None) -> None:
        """Make ``path`` a link to ``target`` (both absolute), or remove it, without an event."""
        file = self.root / path.lstrip("/")
        file.unlink(missing_ok=True)
        if target is not None:
            there = self.root / target.lstrip("/")
            there.mkdir(parents=True, exist_ok=True)
            file.symlink_to(os.path.relpath(there, file.parent))

    def uevent(self, path: str, action: str) -> None:
        """Send an event of a device."""
        self._library.umockdev_testbed_uevent(self._bed, path.encode(), action.encode())

    def remove(self, path: str) -> None:
        """Send ``remove`` and remove the device; the library itself sends none in all versions."""
        self.uevent(path, "remove")
        self._library.umockdev_testbed_remove_device(self._bed, path.encode())


def _list(pairs: Mapping[str, str]) -> ctypes.Array[_Text]:
    flat = [text.encode() for pair in pairs.items() for text in pair]
    return (_Text * (len(flat) + 1))(*flat, None)


def main() -> None:
    bed = _Testbed()
    commands: dict[str, Callable[..., object]] = {
        "add": bed.add,
        "write": bed.write,
        "link": bed.link,
        "uevent": bed.uevent,
        "remove": bed.remove,
    }
    print(bed.root, flush=True)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(commands[name](*arguments)), flush=True)


if __name__ == "__main__":
    main()
