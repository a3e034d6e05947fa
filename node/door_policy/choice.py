"""What people wrote on the node about its doors: a label for every rule, an annotation for single resource names.

So a cluster with one configuration for all nodes moves node by node, and resource by resource. Pure, and total: what
cannot be read is left out and told, the rest counts, because a typing error in one entry must not move the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from node.rules import PROFILE, Doors, explain_resource_name
from node.values import Value, value

LABEL = "ostler.dev/door"
"""Label of the Node: ``plugin``, ``dra`` or ``both``, for every rule."""
ANNOTATION = "ostler.dev/doors"
"""Annotation of the Node: ``nvidia.com/gpu=dra,intel.com/sriov=plugin``; it wins over the label."""

_LONGEST = 16 << 10
"""Characters of the annotation that are read."""
_SHOWN = 64
_DOORS = "plugin, dra or both"


@value
class NodeDoors(Value):
    """``every``: the door of all rules, None where nothing is said; ``named``: those of single resource names."""

    every: Doors | None = None
    named: tuple[tuple[str, Doors], ...] = ()

    def of(self, resource: str) -> tuple[Doors, str] | None:
        """The door of a rule's resource name, as the rule writes it, with where that is written; None: nowhere."""
        for name, doors in self.named:
            if name == resource:
                return doors, f"the annotation {ANNOTATION}"
        return (self.every, f"the label {LABEL}") if self.every is not None else None


@value
class NodeWords(Value):
    """Both texts as they stand on the node; None: it is not there."""

    label: str | None = None
    annotation: str | None = None

    def parsed(self) -> tuple[NodeDoors, tuple[str, ...]]:
        """What they mean, and for people every part that means nothing."""
        problems: list[str] = []
        every = None
        if self.label is not None:
            every = _doors(self.label)
            if every is None:
                problems.append(
                    f"label {LABEL}: {_shown(self.label)} is no door; write {_DOORS}, or remove the label "
                    "(it is as if it were not there)"
                )
        named: dict[str, Doors] = {}
        for entry in _entries(self.annotation or "", problems):
            _read(entry, named, problems)
        return NodeDoors(every, tuple(named.items())), tuple(problems)


def _entries(text: str, problems: list[str]) -> Iterator[str]:
    if len(text) > _LONGEST:
        problems.append(f"annotation {ANNOTATION}: has {len(text)} characters; only the first {_LONGEST} are read")
        # The entry that the cut goes through is none.
        text = text[:_LONGEST].rpartition(",")[0]
    return (entry.strip() for entry in text.split(",") if entry.strip())


def _read(entry: str, named: dict[str, Doors], problems: list[str]) -> None:
    name, equals, word = (part.strip() for part in entry.partition("="))
    doors = _doors(word)
    example = name.replace(PROFILE, "x")
    bad = explain_resource_name(example)
    if not equals:
        problem = f"is no entry; write NAME=DOOR, such as nvidia.com/gpu={Doors.DRA}"
    elif doors is None:
        problem = f"{_shown(word)} is no door; write {_DOORS}"
    elif bad is not None:
        # In the words of whoever wrote it: the name, or what stands behind its slash.
        for made, written in ((example, name), (example.rpartition("/")[2], name.rpartition("/")[2])):
            bad = bad.replace(repr(made), repr(written))
        problem = _cut(bad, 4 * _SHOWN)
    elif named.get(name, doors) is not doors:
        problem = f"gives {name} another door than the entry {name}={named[name]} before it, which counts; remove one"
    else:
        named[name] = doors
        return
    problems.append(f"annotation {ANNOTATION}: entry {_shown(entry)}: {problem} (the entry is ignored)")


def _doors(word: str) -> Doors | None:
    return next((doors for doors in Doors if doors.value == word), None)


def _shown(text: str) -> str:
    return repr(_cut(text, _SHOWN))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
