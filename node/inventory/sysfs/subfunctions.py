"""Subfunctions of network devices, from the auxiliary bus.

The bus lists every part that a driver splits a device into (``mlx5_core.eth.0``); subfunctions are those of the kind
``sf``. One is identified once, as long as its directory entry is the same.
"""

from __future__ import annotations

import re

from node.inventory.net_facts import SubFunction
from node.inventory.sysfs.folder import Stamp, SysfsFolder, stamp
from node.inventory.sysfs.small_file import entries
from node.values import replace

_NAME = re.compile(r"[A-Za-z0-9_-]+\.sf\.[0-9]+")


class SubFunctions:
    """Reads the subfunctions below ``sys`` and remembers what cannot change."""

    def __init__(self, sys: str) -> None:
        self._folder = f"{sys}/bus/auxiliary/devices"
        self._known: dict[str, tuple[Stamp, SubFunction]] = {}

    def read(self, errors: list[str]) -> tuple[SubFunction, ...]:
        """The subfunctions by name."""
        known: dict[str, tuple[Stamp, SubFunction]] = {}
        found = []
        for entry in entries(self._folder, errors, absent_is_fine=True):
            mark = stamp(entry) if _NAME.fullmatch(entry.name) else None
            if mark is None:
                continue
            seen, before = self._known.get(entry.name, (None, None))
            folder = SysfsFolder(entry.path, [])
            if before is None or seen != mark:
                path = folder.tree_path(entry.name)
                before = SubFunction(entry.name, path, folder.number("sfnum")) if path else None
            if before is not None:
                driver = folder.link("driver")
                before = before if driver == before.driver else replace(before, driver=driver)
            if folder.gone:
                continue
            errors += folder.errors
            if before is not None:
                found.append(before)
                if not folder.errors:
                    known[entry.name] = (mark, before)
        self._known = known
        return tuple(found)

    def forget(self) -> None:
        """Forget what was seen."""
        self._known = {}
