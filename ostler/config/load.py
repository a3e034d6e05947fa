"""Reads settings from a file, flags and environment: the only way, for running as for ``ostler config check``.

Precedence: flag, environment variable, file, default. It raises only after it has checked everything, so that one run
shows all problems.
"""

from __future__ import annotations

from collections import abc
from dataclasses import field
from enum import StrEnum
from pathlib import Path

from node.partitions import MigLayout
from node.topology.model import PlaceOverride
from node.values import Value, replace, value
from ostler.config import schema
from ostler.config.document import (
    Mapping,
    RefusedNode,
    ScalarNode,
    Sequence,
    clipped,
    parse_document,
    read_bytes,
    shown,
    source_name,
)
from ostler.config.errors import ConfigError, ConfigErrors, Note, NoteKind, Origin
from ostler.config.overrides import apply_overrides, near_misses
from ostler.config.section import Values
from ostler.config.settings import Settings
from ostler.config.settings_builder import ForeignDefaults, build_settings


class SourceFormat(StrEnum):
    """The format that the settings were read from."""

    DEFAULTS = "defaults"
    """No file was given."""
    OSTLER = "ostler"
    """Our format, ``apiVersion: ostler.dev/v1alpha1``."""
    NVIDIA = "nvidia"
    """The configuration of NVIDIA's device plugin, ``version: v1``."""
    SRIOV = "sriov"
    """The configuration of the SR-IOV network device plugin, ``resourceList``."""


@value
class Loaded(Value):
    """Settings, what a reader should know about them, and what they were read from."""

    settings: Settings
    notes: tuple[Note, ...] = ()
    source_format: SourceFormat = SourceFormat.DEFAULTS


def load(path: Path | None, flags: abc.Mapping[str, str], environment: abc.Mapping[str, str]) -> Loaded:
    """The settings of a configuration file (None: defaults) with flags (by name, ``--http``) and environment over it.

    Raises ``ConfigErrors`` with every problem found; reads only the file and the files that it names, of the topology
    and of MIG layouts. A problem in the layouts is only a note: everything else can be served without them.
    """
    if path is None:
        return load_bytes("defaults", None, flags, environment)
    source = source_name(path)
    data = read_bytes(path, source, missing="correct the path, or leave it out for the defaults")
    return load_bytes(source, data, flags, environment)


def load_bytes(
    source: str, data: bytes | None, flags: abc.Mapping[str, str], environment: abc.Mapping[str, str]
) -> Loaded:
    """``load`` for a file's content; ``source`` is its name in messages. A content of None means no file."""
    problems: list[ConfigError] = []
    notes: list[Note] = []
    read = FileValues(Values(Origin(source))) if data is None else read_document(source, data, problems, notes)
    apply_overrides(read.values, flags, environment, problems)
    settings = build_settings(read.values, read.implied, problems, notes)
    if problems:
        raise ConfigErrors(problems)
    if settings.topology_file is not None:
        settings = replace(settings, topology_overrides=_overrides(settings.topology_file, notes))
    if settings.mig_config is not None:
        settings = replace(settings, mig_layouts=_layouts(*settings.mig_config, notes))
    notes.sort(key=lambda note: note.origin.line or 0)
    for name, meant in near_misses(environment):
        notes.append(Note(NoteKind.REMARK, Origin(clipped(name)), f"is not a setting; did you mean {meant}?"))
    return Loaded(settings, tuple(notes), read.source_format)


@value
class FileValues(Value):
    """A file's values, in the terms of our format."""

    values: Values
    implied: ForeignDefaults = field(default_factory=ForeignDefaults)
    source_format: SourceFormat = SourceFormat.DEFAULTS


def _overrides(path: Path, notes: list[Note]) -> tuple[PlaceOverride, ...]:
    from ostler.config.topology import load_overrides  # only for nodes that have such a file

    try:
        return load_overrides(path)
    except ConfigErrors as errors:
        notes += _ignored(errors)
        return ()


def _layouts(path: Path, name: str, notes: list[Note]) -> tuple[MigLayout, ...]:
    from ostler.config.mig_parted import load_layouts  # only for nodes that have such a file

    try:
        return load_layouts(path, name)
    except ConfigErrors as errors:
        notes += _ignored(errors)
        return ()


def _ignored(errors: ConfigErrors) -> list[Note]:
    return [
        Note(NoteKind.FAULT, error.origin, f"{error.problem}; {error.fix} (the whole file is ignored)")
        for error in errors.errors
    ]


def read_document(source: str, data: bytes, problems: list[ConfigError], notes: list[Note]) -> FileValues:
    """The values of a file in any known format; adds what is wrong to ``problems``."""
    tree, faults = parse_document(source, data)
    problems.extend(faults)
    nothing = FileValues(_broken(source))
    if tree is None or isinstance(tree, RefusedNode):
        return nothing
    if not isinstance(tree, Mapping):
        where = Origin(source, tree.line, tree.column)
        kind = "a list" if isinstance(tree, Sequence) else shown(tree.text)
        problems.append(where.error(f"the file is {kind}, not a mapping", "write 'key: value' lines"))
        return nothing
    if tree.entry(schema.API_VERSION_FIELD.key) is None and tree.entry(schema.KIND_FIELD.key) is None:
        foreign = _read_foreign(tree, source, problems, notes)
        if foreign is not None:
            return foreign
    if not _is_ours(tree, source, problems):
        return nothing
    root = Origin(source, tree.line, tree.column)
    return FileValues(schema.ROOT.read(tree, root, problems), source_format=SourceFormat.OSTLER)


def _read_foreign(tree: Mapping, source: str, problems: list[ConfigError], notes: list[Note]) -> FileValues | None:
    """The values of a file of a plugin that ostler can replace; None for any other."""
    from ostler.config.foreign import entry_of  # only for nodes that change over

    if entry_of(tree, "resourceList") is not None:
        from ostler.config.sriov import read_sriov

        return FileValues(
            read_sriov(tree, source, problems, notes), ForeignDefaults(first_has_all=True), SourceFormat.SRIOV
        )
    from ostler.config.nvidia import is_nvidias, read_nvidia

    if is_nvidias(tree):
        values, renames, shares = read_nvidia(tree, source, problems, notes)
        return FileValues(values, ForeignDefaults(renames, shares, nvidia_alone=True), SourceFormat.NVIDIA)
    return None


def _is_ours(tree: Mapping, source: str, problems: list[ConfigError]) -> bool:
    """Whether the document is in our format: another one would only give a list of unknown keys."""
    version, kind = tree.entry("apiVersion"), tree.entry("kind")
    if version is None:
        problem = "is missing (and so are NVIDIA's 'version: v1' and the SR-IOV plugin's 'resourceList')"
        fix = f"add 'apiVersion: {schema.API_VERSION}' and 'kind: {schema.KIND}'"
        problems.append(Origin(source, tree.line, tree.column, "apiVersion").error(problem, fix))
        return False
    if kind is not None and isinstance(kind.value, ScalarNode) and kind.value.text == "ConfigMap":
        where = Origin(source, kind.line, kind.column, "kind")
        problems.append(where.error("is ConfigMap, which holds configuration files", "give the file inside it"))
        return False
    if isinstance(version.value, ScalarNode) and version.value.text != schema.API_VERSION:
        where = Origin(source, version.line, version.column, "apiVersion")
        problems.append(where.error(f"is {shown(version.value.text)}", f"allowed: {schema.API_VERSION}"))
        return False
    return True


def _broken(source: str) -> Values:
    values = Values(Origin(source))
    values.broken = True
    return values
