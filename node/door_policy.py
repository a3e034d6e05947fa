"""Through which doors this node offers its devices: configuration, the Node's label and annotation, and the API server.

People write a label on the Node for every rule, and an annotation for single resource names, so that a cluster with one
configuration for all nodes moves node by node, and resource by resource. Parsing is pure and total: an entry that
cannot be read is left out and reported, the rest counts, because a typing error in one entry must not move the others.

A rule that acts keeps everything but its door. One that says ``both`` acts as ``plugin`` unless the API server is known
to keep the taints of devices in slices: a server whose gate DRADeviceTaints is off drops them silently, and a device
that a plugin pod holds would still be given to claims.

The last answers are on disk (``node-doors.json``), so that an agent that starts without the API server continues as
before: the texts themselves, for a later version to read by its own rules, and the server's last answer about taints,
with the time at which it was known to be true, so that an agent that restarts need not ask again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path

from node.files import FileError, JsonValue, RecordDamaged, read_record, set_aside, write_record
from node.rules import PROFILE, Doors, Rule, explain_resource_name, matches_pattern
from node.values import Value, remembers, replace, value

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
    """``every``: the door of all rules, None if the Node says nothing; ``named``: those of single resource names."""

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
        """Parse both texts; returns their meaning and, for people, every part that has none."""
        problems: list[str] = []
        every = None
        if self.label is not None:
            every = _doors(self.label)
            if every is None:
                problems.append(
                    f"label {LABEL}: {_shown(self.label)} is not a door; write {_DOORS}, or remove the label "
                    "(it is as if it were not there)"
                )
        named: dict[str, Doors] = {}
        for entry in _entries(self.annotation or "", problems):
            _read(entry, named, problems)
        return NodeDoors(every, tuple(named.items())), tuple(problems)


def _entries(text: str, problems: list[str]) -> Iterator[str]:
    if len(text) > _LONGEST:
        problems.append(f"annotation {ANNOTATION}: has {len(text)} characters; only the first {_LONGEST} are read")
        # The entry at the cut does not count.
        text = text[:_LONGEST].rpartition(",")[0]
    return (entry.strip() for entry in text.split(",") if entry.strip())


def _read(entry: str, named: dict[str, Doors], problems: list[str]) -> None:
    name, equals, word = (part.strip() for part in entry.partition("="))
    doors = _doors(word)
    example = name.replace(PROFILE, "x")
    bad = explain_resource_name(example)
    if not equals:
        problem = f"is not an entry; write NAME=DOOR, such as nvidia.com/gpu={Doors.DRA}"
    elif doors is None:
        problem = f"{_shown(word)} is not a door; write {_DOORS}"
    elif bad is not None:
        # In the words of the author: the name, or the part after its slash.
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


class Taints(StrEnum):
    """How a server treats the taints of devices."""

    KEPT = "kept"
    DROPPED = "dropped"
    UNKNOWN = "unknown"


@value
class TaintSupport(Value):
    """``text``: how that is known, or why it is not, with what helps; ``server``: the release that it was asked of."""

    taints: Taints = Taints.UNKNOWN
    text: str = "the API server has not been asked yet whether it keeps device taints"
    server: str = ""

    @property
    def kept(self) -> bool:
        """Whether devices can be withdrawn by a taint, for certain."""
        return self.taints is Taints.KEPT


_CONFIGURED = "the configuration"


@value
class ActingDoor(Value):
    """The door of a rule, by its resource name, and why it is that one.

    ``wanted``: what was asked for last, by ``origin`` (the configuration, the label, the annotation); ``acts``: what
    counts; ``reason``: one sentence for people where ``acts`` is not what the configuration says, else empty.
    """

    resource: str
    wanted: Doors
    acts: Doors
    origin: str
    reason: str = ""


@value
class Acting(Value):
    """``rules`` in their order, ``doors`` one for each of them; ``problems``: entries on the node that fit no rule.

    ``uncounted``: why no partitions of GPUs are offered though rules say so, empty if they are.
    """

    rules: tuple[Rule, ...]
    doors: tuple[ActingDoor, ...]
    problems: tuple[str, ...] = ()
    uncounted: str = ""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why rules act otherwise than configured, each once."""
        return tuple(dict.fromkeys(each.reason for each in self.doors if each.reason))

    @property
    def held_back(self) -> tuple[ActingDoor, ...]:
        """Rules that do not act as somebody wants, because the server does not let them."""
        return tuple(each for each in self.doors if each.acts is not each.wanted)


def effective(rules: Iterable[Rule], choice: NodeDoors, support: TaintSupport) -> Acting:
    """The rules as they act, by what people wrote on the node and by what the server keeps."""
    return _effective(tuple(rules), choice, support)


@remembers
def _effective(configured: tuple[Rule, ...], choice: NodeDoors, support: TaintSupport) -> Acting:
    doors = tuple(_acting(rule, choice, support) for rule in configured)
    acting = tuple(
        rule if rule.door is each.acts else replace(rule, door=each.acts)
        for rule, each in zip(configured, doors, strict=True)
    )
    return Acting(acting, doors, tuple(_unmatched(configured, choice)))


def _acting(rule: Rule, choice: NodeDoors, support: TaintSupport) -> ActingDoor:
    wanted, origin = choice.of(rule.resource) or (rule.door, _CONFIGURED)
    if wanted is Doors.BOTH and not support.kept:
        said = f"{origin} says {wanted}"
        reason = f"{rule.resource} is offered through the {Doors.PLUGIN} door alone, though {said}: {support.text}"
        return ActingDoor(rule.resource, wanted, Doors.PLUGIN, origin, reason)
    reason = ""
    if wanted is not rule.door:
        reason = f"{rule.resource} has door {wanted} by {origin}; {_CONFIGURED} says {rule.door}"
    return ActingDoor(rule.resource, wanted, wanted, origin, reason)


def _unmatched(rules: Sequence[Rule], choice: NodeDoors) -> Iterable[str]:
    known = {rule.resource for rule in rules}
    for name, doors in choice.named:
        if name in known:
            continue
        whole = next((each for each in sorted(known) if _is_profile_of(name, each)), "")
        if whole:
            fix = f"a rule has one door for all profiles; write {whole}={doors}"
        else:
            fix = f"use one of {', '.join(sorted(known)) or 'none: there are no rules'}"
        yield f"annotation {ANNOTATION}: no rule offers {name}; {fix} (the entry is ignored)"


def _is_profile_of(name: str, resource: str) -> bool:
    return PROFILE in resource and matches_pattern(resource.replace(PROFILE, "*"), name)


NAME = "node-doors.json"
SCHEMA = "node-doors/v1"
_LATEST = 1 << 53
"""Seconds that a float still counts one by one; JSON may hold any number."""


@value
class LastLook(Value):
    """``at``: Unix seconds when the server at the URL ``server`` last showed that the answers hold; 0 for never."""

    at: float = 0.0
    server: str = ""


@value
class KnownDoors(Value):
    """The Node's settings of doors, and what the server keeps.

    ``counters``: whether it keeps counter sets in slices of their own; None where it was never asked. ``look``: the
    last one at these answers of the server.
    """

    words: NodeWords = NodeWords()
    support: TaintSupport = TaintSupport()
    counters: bool | None = None
    look: LastLook = LastLook()


def load(state_dir: Path) -> tuple[KnownDoors, str]:
    """Load the remembered answers; also returns what is wrong with the file in words, empty for nothing. Never raises
    FileError.

    Without a usable file nothing is known, which is what a new node begins with.
    """
    path = state_dir / NAME
    try:
        data = read_record(path, SCHEMA)
        if data is None:
            return KnownDoors(), ""
        try:
            return _known(data), ""
        except ValueError as error:
            raise RecordDamaged(path, str(error), set_aside(path)) from error
    except FileError as error:
        return KnownDoors(), str(error)


def save(state_dir: Path, known: KnownDoors) -> None:
    """Write it to disk; blocking, raises WriteFailed."""
    data: JsonValue = {
        "label": known.words.label,
        "annotation": known.words.annotation,
        "taints": known.support.taints.value,
        "taintsText": known.support.text,
        "server": known.support.server,
        **({} if known.counters is None else {"counters": known.counters}),
        **({"lookedAt": known.look.at, "lookedAtServer": known.look.server} if known.look.at else {}),
    }
    write_record(state_dir / NAME, SCHEMA, data)


def _known(data: JsonValue) -> KnownDoors:
    """Raises ValueError."""
    if not isinstance(data, dict):
        raise ValueError("the record is not an object")  # noqa: TRY004 - one exception type for every kind of damage
    taints, text, server = (_optional_text(data, key) or "" for key in ("taints", "taintsText", "server"))
    if taints not in {each.value for each in Taints}:
        raise ValueError(f"taints is {taints!r}, not one of {', '.join(Taints)}")
    support = TaintSupport(Taints(taints), text, server)
    counters = data.get("counters")
    if counters is not None and not isinstance(counters, bool):
        raise ValueError("counters is not true or false")
    words = NodeWords(_optional_text(data, "label"), _optional_text(data, "annotation"))
    return KnownDoors(
        words, support, counters, LastLook(_time(data, "lookedAt"), _optional_text(data, "lookedAtServer") or "")
    )


def _time(data: dict[str, JsonValue], key: str) -> float:
    found = data.get(key, 0.0)
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 <= found <= _LATEST:
        raise ValueError(f"{key} is not a time in seconds")
    return float(found)


def _optional_text(data: dict[str, JsonValue], key: str) -> str | None:
    found = data.get(key)
    if found is None or isinstance(found, str):
        return found
    raise ValueError(f"{key} is not a string")
