"""NCCL's topology XML as overrides: the files that cloud vendors ship for their machines, or a dump of NCCL's own.

Of ``<system><cpu numaid=...><pci busid=... class=...>`` only the nesting is used: a ``cpu`` stands for a host bridge of
its NUMA node, a ``pci`` of a bridge's class for a switch, every other ``pci`` for a device. Everything else NCCL writes
(links, network ports, speeds) is passed over: the node's own facts are better. Nothing is ever expanded or fetched: a
document type, and with it every entity, is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.parsers import expat

from node.topology.model import MAX_NUMA_NODE, PlaceOverride, below_switch
from ostler.config.document import MAX_DEPTH, clipped, shown
from ostler.config.errors import ConfigError, Origin
from ostler.config.patterns import parse_address

_BRIDGE = "0x0604"
_ENCODINGS = ("utf-8", "us-ascii", "iso-8859-1", "utf-16")
_PASSED_OVER = ("gpu", "nic", "net", "nvlink", "xgmi", "c2c", "pcilink", "grid", "power")


def read_nccl(
    source: str, data: bytes, skipped_lines: int, problems: list[ConfigError]
) -> list[tuple[PlaceOverride, Origin]]:
    """The overrides of an XML document; ``skipped_lines`` stand before it. Adds what is wrong to ``problems``."""
    reader = _Reader(source, skipped_lines, problems)
    try:
        reader.read(data)
    except expat.ExpatError as error:
        where = Origin(source, error.lineno + skipped_lines, error.offset + 1)
        problems.append(where.error(f"not valid XML: {expat.ErrorString(error.code)}", "correct it"))
    except _Refused:
        pass  # Reported where it was found.
    return reader.found


class _Refused(Exception):
    """The rest of the file is not read; the reason is already among the problems."""


@dataclass(slots=True)
class _Element:
    """An element whose end has not been reached. ``path``: what is above its devices, None outside of any cpu;
    ``holder``: whether it contains devices.
    """

    name: str
    path: tuple[str, ...] | None
    numa: int | None
    holder: bool
    device: tuple[PlaceOverride, Origin] | None = None


class _Reader:
    """Takes the parser's events; NCCL's element names are few, so a stack of elements is all there is."""

    def __init__(self, source: str, skipped_lines: int, problems: list[ConfigError]) -> None:
        self.found: list[tuple[PlaceOverride, Origin]] = []
        self._source = source
        self._skipped = skipped_lines
        self._problems = problems
        self._stack: list[_Element] = []
        self._cpus = 0
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.XmlDeclHandler = self._declaration
        self._parser.StartDoctypeDeclHandler = self._doctype

    def read(self, data: bytes) -> None:
        """Read everything; raises ``ExpatError`` or ``_Refused``."""
        self._parser.Parse(data, True)
        if not self.found and not self._problems:
            problem = "no <cpu> contains a <pci> device"
            self._problems.append(Origin(self._source).error(problem, "give a file that NCCL_TOPO_FILE accepts"))

    def _here(self, key: str = "") -> Origin:
        line, column = self._parser.CurrentLineNumber + self._skipped, self._parser.CurrentColumnNumber + 1
        return Origin(self._source, line, column, key)

    def _problem(self, key: str, problem: str, fix: str) -> None:
        self._problems.append(self._here(key).error(problem, fix))

    def _declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        """Refuse encodings that the parser would leave to Python's codecs, some of which do not encode text."""
        if encoding is not None and encoding.lower() not in _ENCODINGS:
            self._problem("", f"is encoded as {shown(encoding)}, which ostler does not read", "save it as UTF-8")
            raise _Refused

    def _doctype(self, name: str, system: str | None, public: str | None, internal: bool) -> None:
        self._problem("", "has a document type (<!DOCTYPE>), which ostler does not read", "remove it, and every entity")
        raise _Refused

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._stack) == MAX_DEPTH:
            self._problem("", f"nested deeper than {MAX_DEPTH} levels", "no machine is that deep")
            raise _Refused
        if not self._stack:
            if name != "system":
                self._problem("", f"is <{clipped(name)}>, not NCCL's topology", "the outermost element is <system>")
                raise _Refused
            self._stack.append(_Element(name, None, None, True))
            return
        parent = self._stack[-1]
        if name == "cpu" and parent.name == "system":
            self._stack.append(self._cpu(attributes))
        elif name == "pci" and parent.holder:
            self._stack.append(self._pci(parent, attributes))
        else:
            self._pass_over(name, parent)

    def _end(self, name: str) -> None:
        element = self._stack.pop()
        if element.device is not None:
            self.found.append(element.device)

    def _pass_over(self, name: str, parent: _Element) -> None:
        if parent.holder and name not in _PASSED_OVER:
            wanted = "<cpu>" if parent.name == "system" else "<pci>"
            self._problem(f"<{clipped(name)}>", f"is not known inside <{parent.name}>", f"allowed: {wanted}")
        self._stack.append(_Element(name, None, None, False))

    def _cpu(self, attributes: dict[str, str]) -> _Element:
        text = attributes.get("numaid")
        numa: int | None = None
        if text is None:
            self._problem("<cpu>", "has no numaid", "add numaid; -1 for none")
        elif not re.fullmatch(r"-1|[0-9]{1,4}", text) or int(text) > MAX_NUMA_NODE:
            self._problem("<cpu> numaid", f"is {shown(text)}", f"allowed: whole numbers from -1 to {MAX_NUMA_NODE}")
        elif int(text) >= 0:
            numa = int(text)
        number = self._cpus
        self._cpus += 1
        return _Element("cpu", (f"host-bridge-{number}",), numa, True)

    def _pci(self, parent: _Element, attributes: dict[str, str]) -> _Element:
        text = attributes.get("busid")
        address = None if text is None else parse_address(text)
        if parent.path is None:
            self._problem("<pci>", "is outside of a <cpu>", "put it inside the <cpu> that it is attached to")
        elif text is None:
            self._problem("<pci>", "has no busid", "add its PCI address, such as 0000:3b:00.0")
        elif address is None:
            fix = "write it as domain:bus:device.function, such as 0000:3b:00.0"
            self._problem("<pci> busid", f"is {shown(text)}, not a PCI address", fix)
        path = parent.path or ("",)
        if parent.device is not None:
            # Without a class, or with a wrong one: whatever holds others is a bridge.
            path, parent.device = below_switch(path, parent.device[0].address), None
            parent.path = path
        if attributes.get("class", "").startswith(_BRIDGE):
            return _Element("pci", below_switch(path, address or "unknown"), parent.numa, True)
        device = None
        if address is not None:
            device = PlaceOverride(address, path, parent.numa), self._here("<pci>")
        return _Element("pci", path, parent.numa, True, device)
