"""The tables of the configuration's pages, made from the formats' own descriptions.

``python -m ostler.config.reference`` writes them into the pages, ``--check`` says whether they are what the pages have.
A page holds its prose; each table stands between two lines that name it::

    <!-- table: keys -->
    <!-- end -->

so that people write the words and the program the facts. Everything but ``main`` is a pure function.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from ostler.config import nvidia, option_fields, schema, sriov, topology
from ostler.config.conversion import written
from ostler.config.overrides import OVERRIDES
from ostler.config.scalars import Choice
from ostler.config.section import AnyField, ConfigList, Section, section_of

PAGES = (
    Path("docs/configuration.md"),
    Path("docs/migrating-from-nvidia-device-plugin.md"),
    Path("docs/migrating-from-sriov-device-plugin.md"),
)
"""Pages with such tables, from the repository's root."""

_TABLE = re.compile(r"(<!-- table: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

Row = tuple[str, ...]


def page(text: str) -> str:
    """The page with every table generated again; raises ``KeyError`` for an unknown table."""
    return _TABLE.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}", text)


def keys() -> str:
    """Our own format: a heading and a table for every section."""
    blocks = ["### The document", "", _keys_table(schema.ROOT)]
    for path, field in _sections(schema.ROOT):
        blocks += ["", f"### `{path}`", "", field.help, "", _keys_table(_section(field), repeated=path == "resources")]
    return "\n".join(blocks)


def flags() -> str:
    """Settings that flags and environment variables may give."""
    rows = [(f"`{one.flag}`", f"`{one.variable}`", f"`{one.key}`") for one in OVERRIDES]
    return _table(("Flag", "Variable", "Key"), rows)


def of_plugin(correspondence: Iterable[tuple[str, str]]) -> str:
    """The format of another plugin: each of its keys, and its meaning here."""
    return _table(("Key of the plugin", "In ostler"), [(f"`{key}`", became) for key, became in correspondence])


def of_topology() -> str:
    """Our format of topology files: the document, a host bridge, a switch."""
    bridge = _section(topology.HOST_BRIDGES)
    switch = _section(topology.SWITCHES)
    parts = [("", topology.ROOT), ("hostBridges[].", bridge), ("hostBridges[].switches[].", switch)]
    rows = [(f"`{path}{field.key}`", _takes(field), field.help) for path, part in parts for field in part.fields]
    return _table(("Key", "Takes", "Meaning"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "keys": keys,
    "flags": flags,
    "nvidia": lambda: of_plugin(nvidia.correspondence()),
    "sriov": lambda: of_plugin(sriov.correspondence()),
    "topology": of_topology,
}
"""The tables, by their names in pages."""


def _section(field: AnyField) -> Section:
    """The section that a field is, or is a list of; raises ``TypeError`` for any other field."""
    found = section_of(field)
    if found is None:
        raise TypeError(f"{field.key} is not a section")
    return found


def _sections(section: Section, path: str = "") -> Iterator[tuple[str, AnyField]]:
    """Every section below, by its path; options that resources repeat only where they are described."""
    for field in section.fields:
        if section_of(field) is None or (path == "resources." and field in option_fields.OPTIONS):
            continue
        inner = f"{path}{field.key}"
        yield inner, field
        yield from _sections(_section(field), f"{inner}.")


def _keys_table(section: Section, *, repeated: bool = False) -> str:
    rows: list[Row] = []
    for field in section.fields:
        if repeated and field in option_fields.OPTIONS:
            continue
        rows.append((f"`{field.key}`", _takes(field), _default(field), field.help, _example(field)))
    if repeated:
        rows.append(
            ("every key of [`defaults`](#defaults)", "", "as above", "Overrides the default for this resource.", "")
        )
    return _table(("Key", "Takes", "Default", "Meaning", "Example"), rows)


def _takes(field: AnyField) -> str:
    if section_of(field) is not None:
        return "a list of mappings" if isinstance(field.type, ConfigList) else "a mapping"
    kind: object = field.type
    item = kind.item if isinstance(kind, ConfigList) else kind
    words = field.type.accepts
    if isinstance(item, Choice):
        words = words.replace(item.accepts, ", ".join(f"`{word}`" for word in item.words))
    return words


def _default(field: AnyField) -> str:
    if field.required:
        return "required"
    default = field.default
    if section_of(field) is not None or default in (None, "", ()):
        return ""
    if isinstance(default, tuple):
        return f"`[{', '.join(written(item) for item in default)}]`"
    return f"`{written(default)}`"


def _example(field: AnyField) -> str:
    return f"`{field.key}: {field.type.example}`" if section_of(field) is None else ""


def _table(head: Row, rows: Sequence[Row]) -> str:
    lines = [_line(head), _line(tuple("---" for _ in head)), *(_line(row) for row in rows)]
    return "\n".join(lines)


def _line(cells: Row) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def main(argv: list[str] | None = None) -> int:
    """Write the tables into the pages, or with ``--check`` compare them; the exit code is 1 where one differs."""
    parser = argparse.ArgumentParser(prog="ostler.config.reference", description="Tables of the configuration pages.")
    parser.add_argument("--check", action="store_true", help="compare with the pages instead of writing them")
    parser.add_argument("files", type=Path, nargs="*", help="pages (default: those in docs/ that have such tables)")
    arguments = parser.parse_args(argv)
    stale = [file for file in arguments.files or PAGES if _is_stale(file, write=not arguments.check)]
    for file in stale:
        text = "is not what the formats say; run 'python -m ostler.config.reference'" if arguments.check else "written"
        sys.stdout.write(f"{file}: {text}\n")
    return 1 if stale and arguments.check else 0


def _is_stale(file: Path, *, write: bool) -> bool:
    text = file.read_text()
    made = page(text)
    if write and made != text:
        file.write_text(made)
    return made != text


if __name__ == "__main__":
    sys.exit(main())
