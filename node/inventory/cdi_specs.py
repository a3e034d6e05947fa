"""Devices that CDI specs of others define, so that answers can refer to them by name.

Only names are read: the runtime judges whether a spec is right in every detail. As in the runtimes, a bad file costs
only its own devices, a later directory beats an earlier one, and a name that two files of one directory define belongs
to neither. Files are read again only when inode, time or size changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from node.documents import DocumentRefused, described, parse_json
from node.inventory.facts import CdiFacts, NodeFacts
from node.inventory.sysfs.files import entries
from node.opening import read_regular

_KIND = r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
_NAME = r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?"

_Key = tuple[int, int, int]


class _BadSpec(Exception):
    """A spec whose devices cannot be read."""


class CdiSpecSource:
    """Source of ``NodeFacts.cdi``.

    ``directories`` in rising priority (``/etc/cdi``, ``/var/run/cdi``); one that does not exist has no specs.
    ``own_files`` are the names of files that this agent writes, which are left out, ``own_prefixes`` the beginnings of
    such names (a file for every claim).
    """

    name = "cdi"

    def __init__(
        self,
        directories: Sequence[Path],
        own_files: frozenset[str] = frozenset(),
        own_prefixes: tuple[str, ...] = (),
    ) -> None:
        self._directories = tuple(str(directory) for directory in directories)
        self._own_files = own_files
        self._own_prefixes = own_prefixes
        self._known: dict[str, tuple[_Key, tuple[str, ...] | str]] = {}

    def read(self) -> NodeFacts:
        """Qualified names (``nvidia.com/gpu=0``), sorted."""
        errors: list[str] = []
        seen: dict[str, tuple[_Key, tuple[str, ...] | str]] = {}
        directories = [self._specs(directory, seen, errors) for directory in self._directories]
        self._known = seen
        devices = _resolved(directories, errors)
        return NodeFacts(cdi=CdiFacts(devices, tuple(errors)))

    def close(self) -> None:
        """Forget what was read."""
        self._known = {}

    def _specs(
        self,
        directory: str,
        seen: dict[str, tuple[_Key, tuple[str, ...] | str]],
        errors: list[str],
    ) -> list[tuple[str, tuple[str, ...]]]:
        """Path and device names of every usable spec of one directory."""
        found = []
        for entry in entries(directory, errors, absent_is_fine=True):
            if not entry.name.endswith((".json", ".yaml")):
                continue
            if entry.name in self._own_files or entry.name.startswith(self._own_prefixes):
                continue
            result = self._spec(entry.path, seen)
            if isinstance(result, tuple):
                found.append((entry.path, result))
            elif result:
                errors.append(f"{entry.path}: {result}")
        return found

    def _spec(self, path: str, seen: dict[str, tuple[_Key, tuple[str, ...] | str]]) -> tuple[str, ...] | str:
        """Device names of a file, or why it has none; an empty text for a file that vanished."""
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return ""
        except OSError as error:
            return error.strerror or str(error)
        key = (status.st_ino, status.st_mtime_ns, status.st_size)
        known = self._known.get(path)
        if known is None or known[0] != key:
            from node.cdi.spec import LARGEST  # Many nodes have no specs of others.

            try:
                # Not through links: in a container, the runtime's or ours, their targets are elsewhere.
                raw = read_regular(Path(path), LARGEST)
            except OSError as error:
                # Not cached: a change of permissions does not change the file's time.
                return error.strerror or str(error)
            known = (key, _names(path, raw))
        seen[path] = known
        return known[1]


def _names(path: str, raw: bytes) -> tuple[str, ...] | str:
    try:
        return _qualified(_parsed(path, raw))
    except (_BadSpec, DocumentRefused) as error:
        return str(error)


def _parsed(path: str, raw: bytes) -> object:
    """The document. Raises DocumentRefused."""
    parsed: object
    if path.endswith(".json"):
        parsed = parse_json(raw)
    else:
        from node.yaml_text import parse_yaml  # As above.

        parsed = parse_yaml(raw)
    return parsed


def _qualified(document: object) -> tuple[str, ...]:
    if not isinstance(document, dict):
        raise _BadSpec("not a CDI spec: not a mapping")
    kind = document.get("kind")
    if not isinstance(kind, str) or not re.fullmatch(_KIND, kind):
        raise _BadSpec(f"kind is {described(kind)}; it must be vendor/class, such as nvidia.com/gpu")
    devices = document.get("devices")
    if not isinstance(devices, list) or not devices:
        raise _BadSpec("devices must be a list with at least one device")
    names = [device.get("name") if isinstance(device, dict) else None for device in devices]
    for position, name in enumerate(names):
        if not isinstance(name, str) or not re.fullmatch(_NAME, name):
            raise _BadSpec(
                f"devices[{position}].name is {described(name)}; it must be letters, digits and _ - . : inside"
            )
    if len(set(names)) < len(names):
        raise _BadSpec("two devices have one name")
    return tuple(f"{kind}={name}" for name in names)


def _resolved(directories: Iterable[list[tuple[str, tuple[str, ...]]]], errors: list[str]) -> tuple[str, ...]:
    """Names that a runtime would resolve; one clash in a directory takes a name out, as the runtimes do it."""
    owners: dict[str, str] = {}
    clashes: set[str] = set()
    for specs in directories:
        here: dict[str, str] = {}
        for path, names in specs:
            both = sorted(name for name in names if name in here)
            if both:
                more = f" and {len(both) - 1} more" if len(both) > 1 else ""
                errors.append(f"{path}: {both[0]}{more} also defined in {here[both[0]]}; runtimes use neither")
            clashes.update(both)
            here.update(dict.fromkeys(names, path))
        owners |= here
    return tuple(sorted(name for name in owners if name not in clashes))
