"""The common part of formats that Go reads: keys in any case, and nulls.

As in Go's ``encoding/json``, a key means the field of exactly that name, else the one that differs only in case; null
leaves a field as it is; of two keys for one field the last counts. A program that turns YAML into JSON first sorts the
keys, so there the last is the one that sorts last. A value without effect becomes a note.

Go merges two objects for one field key by key. Nobody means that, so it is an error here. So are keys that no field
has: Go overlooks them, and a misspelt one would go unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from ostler.config.document import Mapping, MappingEntry, Meaning, Node, RefusedNode, ScalarNode
from ostler.config.errors import ConfigError, Note, NoteKind, Origin
from ostler.config.scalars import JsonObject, ScalarType, Unusable
from ostler.config.section import AnyField, ConfigList, Section, Values, section_of


class Anything:
    """A value that is ignored; it reads only whether it is null."""

    def read(self, node: Node, at: Origin, problems: list[ConfigError]) -> bool:
        """See ``ValueType``."""
        del at, problems  # nothing can be wrong with it
        if isinstance(node, RefusedNode):
            raise Unusable
        return _is_null(node)

    def from_text(self, text: str) -> bool:
        """See ``ValueType``."""
        return not text

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {}

    example = "null"
    accepts = "anything"


class GoSection(Section):
    """A section whose keys Go reads. ``by_sorted_keys``: the program sorts them first."""

    def __init__(self, *fields: AnyField, by_sorted_keys: bool = False) -> None:
        super().__init__(*fields)
        self._by_sorted_keys = by_sorted_keys
        self._by_folded = {fold(field.key): field for field in reversed(fields)}

    def known(self, key: str) -> AnyField | None:
        """See ``Section``."""
        return super().known(key) or self._by_folded.get(fold(key))

    def counted(self, node: Mapping, values: Values, problems: list[ConfigError]) -> Iterator[MappingEntry]:
        """See ``Section``: without nulls, and without those that a later key replaces."""
        entries = [entry for entry in node.entries if not self._is_absent(entry, values)]
        last: dict[int, MappingEntry] = {}
        for entry in sorted(entries, key=attrgetter("key")) if self._by_sorted_keys else entries:
            last[id(self.known(entry.key))] = entry
        for entry in entries:
            field = self.known(entry.key)
            winner = last[id(field)]
            if field is None or winner is entry:
                yield entry
            elif section_of(field) is not None:
                problem = f"is given twice, as {winner.key} in line {winner.line}"
                problems.append(values.place_of(entry).error(problem, "merge the two"))
                values.broken = True
            else:
                effective = f"{winner.key} in line {winner.line}"
                text = f"has no effect in the plugin either: {effective} means the same and takes precedence"
                values.notes.append(Note(NoteKind.IDLE, values.place_of(entry), text))

    def _is_absent(self, entry: MappingEntry, values: Values) -> bool:
        field = self.known(entry.key)
        if field is None or field.required or not _is_null(entry.value):
            return False
        kind: object = field.type
        if not isinstance(kind, ScalarType | ConfigList):
            return False
        values.notes.append(Note(NoteKind.IGNORED, values.place_of(entry), "is ignored: it is null"))
        return True


def fold(key: str) -> str:
    """A key folded character by character as Go does it: no character becomes two."""
    if key.isascii():
        return key.lower()
    return "".join(folded if len(folded := each.casefold()) == 1 else each for each in key)


def entry_of(tree: Mapping, key: str) -> MappingEntry | None:
    """The entry whose key Go takes for ``key``."""
    folded = fold(key)
    return tree.entry(key) or next((entry for entry in tree.entries if fold(entry.key) == folded), None)


def notes_of(values: Values) -> Iterator[Note]:
    """The notes on single keys, at any depth, from reading the values."""
    yield from values.notes
    for _, given in values:
        inner = given.value if isinstance(given.value, tuple) else (given.value,)
        for value in inner:
            if isinstance(value, Values):
                yield from notes_of(value)


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.meaning is Meaning.NULL
