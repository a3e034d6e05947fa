"""How a container runtime resolves CDI names: it reads the spec files of its folders and merges their edits.

As in the CDI reference implementation: every folder is read each time, a later folder beats an earlier one, a name that
two files of one folder define is unusable, a file that cannot be read loses all its devices, and a name that no file
defines fails the container. What a spec has for all its devices comes once, before the first of them; of a variable
that is set twice the later value counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from node.cdi.spec import LARGEST
from node.documents import parse_json
from node.opening import read_regular
from node.yaml_text import parse_yaml

_SUFFIXES = (".json", ".yaml")
_LISTS = ("env", "deviceNodes", "mounts", "hooks")

Edits = Mapping[str, Any]
"""``containerEdits`` as a spec has them."""


class InjectionError(Exception):
    """A container cannot be made: ``names`` are not defined; ``problems`` are files that could not be used."""

    def __init__(self, names: tuple[str, ...], problems: tuple[str, ...]) -> None:
        text = f"CDI device injection failed: unresolvable CDI devices {', '.join(names)}"
        super().__init__("; ".join((text, *problems)))


@dataclass(frozen=True, slots=True)
class _Spec:
    path: Path
    devices: Mapping[str, Edits]
    edits: Edits


@dataclass(slots=True)
class _Registry:
    """Qualified name -> the spec that defines it."""

    specs: dict[str, _Spec] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def read(self, folder: Path) -> None:
        """Add a folder, which beats those before."""
        found: dict[str, _Spec] = {}
        conflicts: set[str] = set()
        for path in sorted(folder.glob("*")) if folder.is_dir() else ():
            if path.suffix not in _SUFFIXES:
                continue
            try:
                spec = _read(path)
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                self.problems.append(f"{path}: {error}")
                continue
            conflicts |= found.keys() & spec.devices.keys()
            found.update(dict.fromkeys(spec.devices, spec))
        self.problems += [f"{name} is defined twice in {folder}" for name in sorted(conflicts)]
        self.specs.update((name, spec) for name, spec in found.items() if name not in conflicts)
        for name in conflicts:
            self.specs.pop(name, None)


def inject(names: Iterable[str], folders: Iterable[Path]) -> dict[str, list[Any]]:
    """The edits of a container that asks for ``names``: the lists of CDI's ``containerEdits``, without empty ones.

    ``folders`` in rising priority. Raises ``InjectionError``.
    """
    registry = _Registry()
    for folder in folders:
        registry.read(folder)
    wanted = tuple(names)
    unknown = tuple(name for name in wanted if name not in registry.specs)
    if unknown:
        raise InjectionError(unknown, tuple(registry.problems))
    given: dict[str, list[Any]] = {}
    for edits in _edits(registry, wanted):
        for key in _LISTS:
            given.setdefault(key, []).extend(edits.get(key) or ())
    if given.get("env"):
        given["env"] = list({entry.partition("=")[0]: entry for entry in given["env"]}.values())
    return {key: values for key, values in given.items() if values}


def _edits(registry: _Registry, names: Iterable[str]) -> Iterator[Edits]:
    seen: set[Path] = set()
    for name in names:
        spec = registry.specs[name]
        if spec.path not in seen:
            seen.add(spec.path)
            yield spec.edits
        yield spec.devices[name]


def _read(path: Path) -> _Spec:
    data = read_regular(path, LARGEST)
    document = parse_json(data) if path.suffix == ".json" else parse_yaml(data)
    devices = {f"{document['kind']}={each['name']}": each.get("containerEdits") or {} for each in document["devices"]}
    return _Spec(path, devices, document.get("containerEdits") or {})
