"""A foreign plugin's configuration as a file in our own format: ``ostler config convert``.

The foreign file works as it is, so converting is for those who want more: rules for other devices, or options that only
our format has. Invariant: the written file gives the same settings as the foreign one. It spells out what the foreign
format implies (a MIG strategy's resources, the meaning of a NIC's name). Every line names the key and line that it
comes from, and comments at the top list what has no meaning here or differs there. Keys that are refused when the file
is read are refused here as well: without them the file would offer something else.

Values are written as YAML that is read again as the same values. Keys stand in the order of the format's description. A
value that nobody gave and that is the default is left out; ``remark`` says what stands behind a line as a comment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import cast

from node.rules import FunctionRange
from ostler.config import device_fields, option_fields, schema, sharing
from ostler.config.default_rules import nvidia_resources
from ostler.config.errors import ConfigErrors, Note, NoteKind, Origin
from ostler.config.load import FileValues, SourceFormat, load_bytes, read_document
from ostler.config.nvidia_sharing import differs_there
from ostler.config.options import Roots
from ostler.config.resources import PlacedRule
from ostler.config.section import AnyField, ConfigField, ConfigList, Section, Values
from ostler.config.settings import MigStrategy
from ostler.config.settings_builder import ForeignDefaults
from ostler.config.sriov import DEFAULT_PREFIX

_WIDTH = 110
_LEGEND = "The comment after a line names the key that it comes from."

_FOREIGN = {
    SourceFormat.NVIDIA: "NVIDIA's device plugin (version: v1)",
    SourceFormat.SRIOV: "the SR-IOV network device plugin (resourceList)",
}
_OWN_REMARKS = {
    option_fields.NAMED_IN_USE.key: "as in the plugin: a function's name does not offer what the node itself uses",
}
"""The comment on a value that comes from no key of the foreign file, by our key."""


def convert(source: str, data: bytes) -> str:
    """The file in our format; ``source`` is the name of the foreign one in messages.

    Raises ``ConfigErrors`` for a file that cannot be used, or that is in our format already.
    """
    loaded = load_bytes(source, data, {}, {})
    if loaded.source_format not in _FOREIGN:
        problem, fix = "is in ostler's own format already", "use it as it is"
        raise ConfigErrors([Origin(source, 1, 1, schema.API_VERSION_FIELD.key).error(problem, fix)])
    read = read_document(source, data, [], [])
    values = read.values
    nvidia = read.source_format is SourceFormat.NVIDIA
    if nvidia:
        values.put(schema.RESOURCES, tuple(_resources(read)), values.origin)
    else:
        _leave_out(values, {note.origin for note in loaded.notes if note.kind is NoteKind.IDLE})
    differences = [*(_nvidia_differences(values, read.implied) if nvidia else _sriov_differences(loaded.notes))]
    _leave_out_strategy(values)
    given = {note.origin for note in loaded.notes if note.kind is NoteKind.TAKEN}

    def remark(field: AnyField, origin: Origin) -> str:
        return _OWN_REMARKS.get(field.key, "") or (f"{origin.key}, line {origin.line}" if origin in given else "")

    lines = [
        *_paragraph(
            f"Converted from a file of {_FOREIGN[read.source_format]} by 'ostler config convert'. {_LEGEND}", "# ", "# "
        ),
        *_listed("Differences:", differences),
        *_listed("Left out:", _of_kind(loaded.notes, NoteKind.IDLE)),
        *_listed("Ignored:", _of_kind(loaded.notes, NoteKind.IGNORED)),
        f"{schema.API_VERSION_FIELD.key}: {schema.API_VERSION}",
        f"{schema.KIND_FIELD.key}: {schema.KIND}",
        *write_section(schema.ROOT, values, remark),
    ]
    return "\n".join(lines) + "\n"


def _leave_out(values: Values, idle: set[Origin]) -> None:
    """Leave out resources that never get a device, which our format refuses."""
    kept = tuple(resource for resource in values[schema.RESOURCES] if resource.origin not in idle)
    values.put(schema.RESOURCES, kept, values.place(schema.RESOURCES))


def _of_kind(notes: Iterable[Note], kind: NoteKind) -> list[str]:
    return [
        f"{note.origin.key}, line {note.origin.line}: {note.text.removeprefix('is ignored: ')}"
        for note in notes
        if note.kind is kind
    ]


def _listed(head: str, points: list[str]) -> Iterator[str]:
    if points:
        yield "#"
        yield f"# {head}"
        for point in points:
            yield from _paragraph(point, "# - ", "#   ")


def _paragraph(text: str, first: str, further: str) -> list[str]:
    import textwrap  # only for those who convert

    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=further, break_long_words=False, break_on_hyphens=False
    )


def _resources(read: FileValues) -> Iterator[Values]:
    """Our resources for the renames, the MIG strategy and the shared resources of a file of NVIDIA's plugin."""
    implied, roots = read.implied, Roots("/", "/")
    # The file has been judged: it has no problems.
    for one in nvidia_resources(read.values, implied.renames, implied.shares, roots=roots, problems=[], notes=[]):
        yield _resource(one)


def _resource(placed: PlacedRule) -> Values:
    rule, origin = placed.rule, placed.origin
    silent = Origin(origin.source)
    resource, devices = Values(silent), Values(silent)
    resource.put(schema.RESOURCE_NAME, rule.resource, origin)
    resource.put(device_fields.DEVICES, devices, silent)
    resource.put(schema.UNIFORM, rule.uniform, silent)
    if rule.sharing is not None:
        resource.put(sharing.SHARING, sharing.values_of(rule.sharing, placed.shared or silent), silent)
    selected = rule.selector
    devices.put(device_fields.KINDS, selected.kinds, silent)
    devices.put(device_fields.VENDOR, selected.vendors, silent)
    devices.put(device_fields.PRODUCTS, selected.products, silent)
    devices.put(device_fields.PROFILES, selected.profiles, silent)
    devices.put(device_fields.UUIDS, selected.uuids, silent)
    devices.put(device_fields.MIG_ENABLED, selected.mig_enabled, silent)
    devices.put(device_fields.WHOLE_INSTANCES, selected.whole_instances, silent)
    return resource


def _leave_out_strategy(values: Values) -> None:
    """Remove the MIG strategy: the resources say all that it means, and would contradict it."""
    nvidia = values.section(schema.NVIDIA)
    if schema.MIG_STRATEGY in nvidia:
        nvidia.put(schema.MIG_STRATEGY, MigStrategy.NONE, Origin(values.origin.source))


def _nvidia_differences(values: Values, implied: ForeignDefaults) -> Iterator[str]:
    strategy = values.section(schema.NVIDIA)[schema.MIG_STRATEGY]
    yield f"migStrategy {strategy} is written out as resources. Add others there: the first that matches gets a device."
    defaults = values.section(option_fields.DEFAULTS)
    alone = all(some.uses_cdi for some in defaults[option_fields.STRATEGIES])  # then no answer holds device nodes
    if option_fields.DEVICE_SPECS not in defaults and not alone:
        yield (
            "passDeviceSpecs is not in the file; its default is true here and false in the plugin: device nodes are "
            "part of the answer, so that containers keep them after 'systemctl daemon-reload'."
        )
    if implied.renames:
        yield "The section resources has effect: NVIDIA's plugin reads it and then ignores it."
    if any(differs_there(share) for share in implied.shares):
        yield "The keys rename and devices of shared resources have effect: NVIDIA's plugin overrules them."


def _sriov_differences(notes: tuple[Note, ...]) -> Iterator[str]:
    if any(f"({DEFAULT_PREFIX} is" in note.text for note in notes):
        yield (
            f"Names without a resourcePrefix begin with {DEFAULT_PREFIX}. If the plugin runs with --resource-prefix, "
            "write that domain instead."
        )
    yield "ostler reads names of interfaces as whole names, whatever the release of the plugin."


_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./+-]*")
_WORDS = re.compile(r"null|true|false|yes|no|on|off|y|n", re.IGNORECASE)
"""Words that some YAML reader does not take for text."""

Remark = Callable[[AnyField, Origin], str]
"""The comment after the line of a value with this origin; empty for none."""


def write_section(section: Section, values: Values, remark: Remark, indent: str = "") -> Iterator[str]:
    """The lines of a section's values, without empty sections."""
    given = dict(values)
    for field in section.fields:
        if field.key not in given:
            continue
        value, origin = given[field.key].value, given[field.key].origin
        text = remark(field, origin)
        comment = f"  # {text}" if text else ""
        kind: object = field.type
        if isinstance(kind, Section):
            inner = list(write_section(kind, cast("Values", value), remark, f"{indent}  "))
            if inner:
                yield f"{indent}{field.key}:"
                yield from inner
        elif isinstance(kind, ConfigList) and isinstance(kind.item, Section):
            yield f"{indent}{field.key}:"
            for item in values[cast("ConfigField[tuple[Values, ...]]", field)]:
                yield from _write_item(kind.item, item, remark, indent)
        elif comment or field.required or value != field.default:
            yield f"{indent}{field.key}: {_written(field, value)}{comment}"


def _write_item(section: Section, item: Values, remark: Remark, indent: str) -> Iterator[str]:
    first, *rest = write_section(section, item, remark, f"{indent}  ")
    yield f"{indent}- {first.lstrip()}"
    yield from rest


def _written(field: AnyField, value: object) -> str:
    if not isinstance(value, tuple):
        return written(value)
    if len(value) == 1 and isinstance(field.type, ConfigList) and field.type.single:
        return written(value[0])
    return f"[{', '.join(written(item) for item in value)}]"


def written(value: object) -> str:
    """A single value as a file has it; a duration in seconds."""
    match value:
        case None:
            return '""'
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float():
            return f"{value:g}s"
        case FunctionRange():
            return _text(_function_range(value))
        case StrEnum():
            return value.value
    return _text(str(value))


def _text(text: str) -> str:
    plain = _PLAIN.fullmatch(text) and not _WORDS.fullmatch(text)
    if plain:
        return text
    # Some characters that are not printable end a line in YAML, quoted or not.
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in quoted)


def _function_range(functions: FunctionRange) -> str:
    ranges = (str(low) if low == high else f"{low}-{high}" for low, high in functions.numbers)
    return f"{functions.root}#{','.join(ranges)}" if functions.numbers else functions.root
