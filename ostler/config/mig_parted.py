"""MIG layouts in the file format of NVIDIA's mig-parted.

Only the configuration that was asked for is read: a file has those of all models, and problems elsewhere in it concern
other nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from node.partitions import MigLayout
from ostler.config.document import (
    Mapping,
    MappingEntry,
    Node,
    RefusedNode,
    ScalarNode,
    Sequence,
    parse_document,
    read_bytes,
    shown,
    source_name,
)
from ostler.config.errors import ConfigError, ConfigErrors, Origin
from ostler.config.mig import MOST_INSTANCES, MigProfileName
from ostler.config.scalars import BadValue, Boolean, Integer, ScalarType, Text, Unusable
from ostler.config.section import ConfigField, ConfigList, Section, Values

_Wanted = tuple[tuple[str, ...], Origin]


class _Instances(ScalarType[_Wanted]):
    """``mig-devices``: numbers of instances by profile."""

    example = '{"1g.10gb": 7}'
    accepts = "numbers of instances by profile"

    def read(self, node: Node, at: Origin, problems: list[ConfigError]) -> _Wanted:
        """See ``ValueType``."""
        if isinstance(node, RefusedNode):
            raise Unusable
        if not isinstance(node, Mapping):
            raise BadValue("is not a mapping", f"write {self.example}")
        profiles: list[str] = []
        for entry in node.entries:
            where = Origin(at.source, entry.line, entry.column, f"{at.key}.{entry.key}")
            try:
                profile = MigProfileName().from_text(entry.key)
                number = Integer(0, MOST_INSTANCES, 1).read(entry.value, where, problems)
            except BadValue as error:
                problems.append(where.error(error.problem, error.fix))
            else:
                profiles += [profile] * number
        return tuple(profiles), at


class _Devices(ScalarType[tuple[int, ...] | None]):
    """``devices``: all of them, or their indices."""

    example = "all"
    accepts = "all, or a list of indices"

    def read(self, node: Node, at: Origin, problems: list[ConfigError]) -> tuple[int, ...] | None:
        """See ``ValueType``."""
        if isinstance(node, ScalarNode) and node.text == "all":
            return None
        if not isinstance(node, Sequence):
            raise BadValue("is neither all nor a list", "write all, or the GPUs' indices such as [0, 1]")
        return ConfigList(Integer(0, 255)).read(node, at, problems)


_FILTER = Text(r"0x[0-9A-Fa-f]{8}", "a PCI device and vendor id", "0x233010DE")
DEVICE_FILTER: ConfigField[tuple[str, ...]] = ConfigField(
    "device-filter", ConfigList(_FILTER, single=True), (), "Models."
)
DEVICES: ConfigField[tuple[int, ...] | None] = ConfigField("devices", _Devices(), None, "GPUs.", required=True)
ENABLED = ConfigField("mig-enabled", Boolean(), False, "MIG mode.", required=True)
INSTANCES: ConfigField[_Wanted] = ConfigField("mig-devices", _Instances(), ((), Origin("")), "Instances.")
_SPECS = ConfigList(Section(DEVICE_FILTER, DEVICES, ENABLED, INSTANCES), unique=False)


def load_layouts(path: Path, name: str) -> tuple[MigLayout, ...]:
    """The layouts of the configuration ``name`` in a file; of several for one GPU the last counts.

    Raises ``ConfigErrors`` with every problem found.
    """
    source = source_name(path)
    return parse_layouts(source, read_bytes(path, source), name)


def parse_layouts(source: str, data: bytes, name: str) -> tuple[MigLayout, ...]:
    """``load_layouts`` for content in memory; ``source`` is its name in messages."""
    problems: list[ConfigError] = []
    tree, faults = parse_document(source, data)
    problems.extend(faults)
    chosen = _chosen(tree, source, name, problems) if tree is not None else None
    found: tuple[MigLayout, ...] = ()
    if chosen is not None:
        at = Origin(source, chosen.line, chosen.column, f"mig-configs.{name}")
        try:
            found = tuple(_layouts(_SPECS.read(chosen.value, at, problems), problems))
        except BadValue as error:
            problems.append(at.error(error.problem, error.fix))
        except Unusable:
            pass  # reported where it was found
    if problems:
        raise ConfigErrors(problems)
    return found


def _chosen(tree: Node, source: str, name: str, problems: list[ConfigError]) -> MappingEntry | None:
    here = Origin(source, tree.line, tree.column)
    if not isinstance(tree, Mapping):
        problems.append(here.error("the file is not a mapping", "give a file of mig-parted, with 'version: v1'"))
        return None
    version, configs = tree.entry("version"), tree.entry("mig-configs")
    if version is None or not isinstance(version.value, ScalarNode) or version.value.text != "v1":
        problems.append(here.error("has no 'version: v1'", "give a file of mig-parted"))
        return None
    if configs is None or not isinstance(configs.value, Mapping):
        problems.append(here.error("has no mapping 'mig-configs'", "give a file of mig-parted"))
        return None
    found = configs.value.entry(name)
    if found is None:
        known = ", ".join(entry.key for entry in configs.value.entries[:20]) or "none"
        where = Origin(source, configs.line, configs.column, "mig-configs")
        problems.append(where.error(f"has no configuration {shown(name)}", f"set nvidia.migConfig to one of: {known}"))
    return found


def _layouts(specs: tuple[Values, ...], problems: list[ConfigError]) -> Iterator[MigLayout]:
    for spec in specs:
        profiles, _ = spec[INSTANCES]
        if profiles and not spec[ENABLED]:
            problem = "has instances, but mig-enabled is false"
            problems.append(spec.place(INSTANCES).error(problem, "remove them, or set 'mig-enabled: true'"))
        models = tuple(text.lower() for text in spec[DEVICE_FILTER])
        yield MigLayout(profiles, enabled=spec[ENABLED], gpus=spec[DEVICES], models=models)
