"""Override files: where devices really are, for machines whose PCIe tree does not show it (mostly virtual machines).

Two formats, distinguished by content: our own YAML, and NCCL's topology XML, which cloud vendors ship for their
machines. Ours in full::

    apiVersion: ostler.dev/v1alpha1
    kind: Topology
    hostBridges:
    - numaNode: 0
      devices: ["0000:00:0a.0"]  # on the host bridge itself
      switches:
      - devices: ["0000:00:05.0", "0000:00:06.0"]
        switches:  # below this switch, up to four levels
        - devices: ["0000:00:07.0"]

Devices of one switch are PIX, of a switch and one below it PXB, of one host bridge PHB; further ones are told apart by
NUMA node. An address that the node lacks is not an error, because one file serves a whole kind of machine. An address
that the file has twice is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from node.topology.model import MAX_NUMA_NODE, PlaceOverride, below_switch
from ostler.config.document import (
    MAX_BYTES,
    Mapping,
    Meaning,
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
from ostler.config.patterns import FORM, parse_address
from ostler.config.scalars import BadValue, Choice, Integer, JsonObject, ScalarType, expect_scalar
from ostler.config.section import AnyField, ConfigField, ConfigList, Section, Values

API_VERSION = "ostler.dev/v1alpha1"
KIND = "Topology"
MAX_SWITCH_LEVELS = 4


def load_overrides(path: Path) -> tuple[PlaceOverride, ...]:
    """The overrides of a file, in its order; raises ``ConfigErrors`` with every problem found."""
    source = source_name(path)
    return parse_overrides(source, read_bytes(path, source))


def parse_overrides(source: str, data: bytes) -> tuple[PlaceOverride, ...]:
    """``load_overrides`` for a file's content; ``source`` is its name in messages."""
    problems: list[ConfigError] = []
    text = data.removeprefix(b"\xef\xbb\xbf").lstrip()
    if len(data) > MAX_BYTES:
        problems.append(Origin(source).error(f"has more than {MAX_BYTES} bytes", "no machine needs that many"))
        found: list[tuple[PlaceOverride, Origin]] = []
    elif not text:
        fix = f"write at least 'apiVersion: {API_VERSION}', 'kind: {KIND}' and hostBridges"
        problems.append(Origin(source, 1, 1).error("the file is empty", fix))
        found = []
    elif text.startswith(b"<"):
        from ostler.config.nccl import read_nccl  # only for nodes that have such a file

        found = read_nccl(source, text, data.count(b"\n", 0, len(data) - len(text)), problems)
    else:
        found = _read_ours(source, data, problems)
    _check_twice(found, problems)
    if problems:
        raise ConfigErrors(problems)
    return tuple(override for override, _ in found)


def _check_twice(found: list[tuple[PlaceOverride, Origin]], problems: list[ConfigError]) -> None:
    first: dict[str, Origin] = {}
    for override, origin in found:
        address = override.address
        known = first.setdefault(address, origin)
        if known is not origin:
            problem = f"{address} already has a place, in line {known.line}"
            problems.append(origin.error(problem, "a device has one place: remove one of the two"))


class _Address(ScalarType[tuple[str, Origin]]):
    """A PCI address with its place in the file."""

    example = '"0000:3b:00.0"'
    accepts = "PCI addresses"

    def read(self, node: Node, at: Origin, problems: list[ConfigError]) -> tuple[str, Origin]:
        """See ``ValueType``."""
        del problems  # a single value has one place and one problem
        text = expect_scalar(node, self.example).text
        address = parse_address(text)
        if address is None:
            fix = "write it as domain:bus:device.function, such as 0000:3b:00.0"
            raise BadValue(f"is {shown(text)}, not a PCI address", fix)
        return address, at

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {"type": "string", "pattern": f"^{FORM}$"}


DEVICES = ConfigField(
    "devices", ConfigList(_Address(), most=1024, unique=False), (), "PCI addresses of devices right here."
)


def _switches(levels: int) -> ConfigField[tuple[Values, ...]]:
    """The field of switches that may hold that many levels of switches; the kinds of values cannot be recursive."""
    fields: tuple[AnyField, ...] = (DEVICES,) if levels == 1 else (DEVICES, _switches(levels - 1))
    return ConfigField("switches", ConfigList(Section(*fields), unique=False), (), "PCIe switches.")


SWITCHES = _switches(MAX_SWITCH_LEVELS)
NUMA_NODE: ConfigField[int | None] = ConfigField(
    "numaNode", Integer(0, MAX_NUMA_NODE), None, "NUMA node of everything below; absent: as the kernel says."
)
HOST_BRIDGES = ConfigField(
    "hostBridges",
    ConfigList(Section(NUMA_NODE, DEVICES, SWITCHES), fewest=1, unique=False),
    (),
    "PCIe host bridges (root complexes).",
    required=True,
)
ROOT = Section(
    ConfigField("apiVersion", Choice((API_VERSION,)), API_VERSION, "Version of this format.", required=True),
    ConfigField("kind", Choice((KIND,)), KIND, "Kind of this document.", required=True),
    HOST_BRIDGES,
)


def _read_ours(source: str, data: bytes, problems: list[ConfigError]) -> list[tuple[PlaceOverride, Origin]]:
    tree, faults = parse_document(source, data)
    problems.extend(faults)
    if tree is None or isinstance(tree, RefusedNode):
        return []
    here = Origin(source, tree.line, tree.column)
    if not isinstance(tree, Mapping):
        kind = "a list" if isinstance(tree, Sequence) else shown(tree.text)
        problems.append(here.error(f"the file is {kind}, not a mapping", "write 'key: value' lines, or NCCL's XML"))
        return []
    if _is_other(tree, source, problems):
        return []
    root = ROOT.read(tree, here, problems)
    found: list[tuple[PlaceOverride, Origin]] = []
    bridges: tuple[Values, ...] = root[HOST_BRIDGES]
    for number, bridge in enumerate(bridges):
        known = len(found)
        found += _located(bridge, (f"host-bridge-{number}",), str(number), bridge[NUMA_NODE])
        if len(found) == known and not _broken(bridge):
            problems.append(bridge.origin.error("has no device", "add 'devices' or 'switches', or remove it"))
    return found


def _is_other(tree: Mapping, source: str, problems: list[ConfigError]) -> bool:
    """Whether the document is another kind of ours: its keys would only give a list of unknown keys."""
    kind = tree.entry("kind")
    if kind is None or not isinstance(kind.value, ScalarNode) or kind.value.meaning is not Meaning.TEXT:
        return False
    if kind.value.text == KIND:
        return False
    where = Origin(source, kind.line, kind.column, "kind")
    problems.append(where.error(f"is {shown(kind.value.text)}", f"an override file has 'kind: {KIND}'"))
    return True


def _located(
    group: Values, path: tuple[str, ...], number: str, numa: int | None
) -> Iterator[tuple[PlaceOverride, Origin]]:
    for address, origin in group[DEVICES]:
        yield PlaceOverride(address, path, numa), origin
    # The key is the same at every level, and so is what the field reads.
    switches: tuple[Values, ...] = group[SWITCHES]
    for position, switch in enumerate(switches):
        label = f"{number}.{position}"
        yield from _located(switch, below_switch(path, f"switch-{label}"), label, numa)


def _broken(group: Values) -> bool:
    return group.broken or any(_broken(switch) for switch in group[SWITCHES])
