"""All objects that an answer is made from, wherever they were read; how the API names their kinds; faults of the input.

Objects are plain dicts of the v1 API with the API server's defaults, as the allocator takes them; nobody changes them.
Invariants: no two objects of a kind have the same namespace and name; the order is the order in which they were read.

The state names what could not be read, so that an answer made from less than everything says so. ``whole`` holds the
kinds of which every object is here, so that "there is no such class" is not said of a class that was never asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kube.bodies import Json, JsonObject, object_at, text_at

GROUP = "resource.k8s.io"
CORE = ""


class Kind(StrEnum):
    """A kind, by the word in an object's ``kind``."""

    SLICE = "ResourceSlice"
    CLAIM = "ResourceClaim"
    CLASS = "DeviceClass"
    NODE = "Node"
    POD = "Pod"
    TEMPLATE = "ResourceClaimTemplate"
    TAINT_RULE = "DeviceTaintRule"


@dataclass(frozen=True, slots=True)
class KindFacts:
    """How the API names a kind: its group (empty for the core), the word in paths and in RBAC rules."""

    group: str
    plural: str
    namespaced: bool
    field: str
    """Where a ``State`` keeps the objects."""


FACTS = {
    Kind.SLICE: KindFacts(GROUP, "resourceslices", False, "slices"),
    Kind.CLAIM: KindFacts(GROUP, "resourceclaims", True, "claims"),
    Kind.CLASS: KindFacts(GROUP, "deviceclasses", False, "classes"),
    Kind.NODE: KindFacts(CORE, "nodes", False, "nodes"),
    Kind.POD: KindFacts(CORE, "pods", True, "pods"),
    Kind.TEMPLATE: KindFacts(GROUP, "resourceclaimtemplates", True, "templates"),
    Kind.TAINT_RULE: KindFacts(GROUP, "devicetaintrules", False, "taint_rules"),
}


def name_of(body: Json) -> str:
    """An object's name, empty where it has none."""
    return text_at(body, "metadata", "name")


def namespace_of(body: Json) -> str:
    """The namespace of an object of a namespaced kind; without one it is ``default``, as for kubectl."""
    return text_at(body, "metadata", "namespace") or "default"


def uid_of(body: Json) -> str:
    """An object's UID, empty where it has none."""
    return text_at(body, "metadata", "uid")


def kind_of(body: Json) -> Kind | None:
    """The kind of an object, None for one that decides nothing here."""
    try:
        return Kind(text_at(body, "kind"))
    except ValueError:
        return None


def key_of(kind: Kind, body: Json) -> tuple[str, str]:
    """The key of an object among those of its kind: namespace (empty for a kind without) and name."""
    return (namespace_of(body) if FACTS[kind].namespaced else "", name_of(body))


def objects_at(body: Json, *keys: str) -> tuple[JsonObject, ...]:
    """The objects in the list at a path of keys; what is no object there is left out."""
    found = object_at(body, *keys[:-1]).get(keys[-1])
    return tuple(item for item in found if isinstance(item, dict)) if isinstance(found, list) else ()


def texts_at(body: Json, *keys: str) -> tuple[str, ...]:
    """The texts in the list at a path of keys; what is no text there is left out."""
    found = object_at(body, *keys[:-1]).get(keys[-1])
    return tuple(item for item in found if isinstance(item, str)) if isinstance(found, list) else ()


Objects = tuple[JsonObject, ...]
Index = dict[tuple[str, str], JsonObject]


@dataclass(frozen=True, slots=True)
class MissingKind:
    """A kind that could not be read: ``problem`` is a sentence without its end, ``fix`` may be empty."""

    kind: Kind
    problem: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.problem}; {self.fix}" if self.fix else self.problem


@dataclass(frozen=True, slots=True)
class State:
    """``origin``: where the objects are from, for people. ``server_version``: such as ``v1.37.0``, "" where unknown.

    ``truncated``: kinds of which only some objects were read though more were wanted, each with a sentence.
    ``missing``: kinds of which none could be read.
    """

    origin: str = ""
    server_version: str = ""
    slices: Objects = ()
    claims: Objects = ()
    classes: Objects = ()
    nodes: Objects = ()
    pods: Objects = ()
    templates: Objects = ()
    taint_rules: Objects = ()
    truncated: tuple[str, ...] = ()
    missing: tuple[MissingKind, ...] = ()
    whole: frozenset[Kind] = frozenset()
    _indices: dict[Kind, Index] = field(default_factory=dict, init=False, repr=False, compare=False)

    def of(self, kind: Kind) -> Objects:
        """All objects of a kind."""
        found: Objects = getattr(self, FACTS[kind].field)
        return found

    def find(self, kind: Kind, name: str, namespace: str = "") -> JsonObject | None:
        """One object; ``namespace`` is ignored for a kind without namespaces, and "" is ``default``."""
        index = self._indices.get(kind)
        if index is None:
            # Filled when it is first asked for; two threads would only do the same work twice.
            index = self._indices[kind] = {key_of(kind, body): body for body in self.of(kind)}
        return index.get(((namespace or "default") if FACTS[kind].namespaced else "", name))

    def lacks(self, kind: Kind) -> MissingKind | None:
        """Why there are no objects of a kind, None if they could be read."""
        return next((missing for missing in self.missing if missing.kind is kind), None)

    def with_objects(self, kind: Kind, objects: Objects) -> State:
        """This state with other objects of a kind."""
        return replace(self, **{FACTS[kind].field: objects})  # type: ignore[arg-type]  # only fields of objects


def merge(base: State, over: State) -> State:
    """Both states together; of two objects with the same name the one of ``over`` is taken, in the place of the other.

    A kind that ``base`` lacks is no longer missing where ``over`` has objects of it.
    """
    kinds = {FACTS[kind].field: _merged(kind, base.of(kind), over.of(kind)) for kind in Kind}
    return State(
        origin=" with ".join(dict.fromkeys(name for name in (base.origin, over.origin) if name)),
        server_version=base.server_version or over.server_version,
        truncated=tuple(dict.fromkeys((*base.truncated, *over.truncated))),
        missing=tuple(dict.fromkeys((*(m for m in base.missing if not over.of(m.kind)), *over.missing))),
        whole=base.whole | over.whole,
        **kinds,
    )


def _merged(kind: Kind, base: Objects, over: Objects) -> Objects:
    found: Index = {key_of(kind, body): body for body in base}
    found.update({key_of(kind, body): body for body in over})
    return tuple(found.values())


SHOWN = 20
"""Faults of one command that are shown; more of them usually have one cause."""
MOST = 1000
"""Faults that are looked for; after that many, the rest of the input is not read."""


@dataclass(frozen=True, slots=True)
class InputFault:
    """One thing wrong in a file: ``line`` 0 where it is not known, ``subject`` such as ``ResourceSlice node-1-gpu``."""

    source: str
    problem: str
    fix: str
    line: int = 0
    subject: str = ""
    field: str = ""

    def __str__(self) -> str:
        where = f"{self.source}:{self.line}" if self.line else self.source
        what = " ".join(word for word in (self.subject, self.field) if word)
        return f"{where}: {what + ': ' if what else ''}{self.problem}; {self.fix}"


class ExplainError(Exception):
    """An answer cannot be given; the message says why and what helps."""


class BadInput(ExplainError):
    """Files that cannot be used, with every fault that was found in them."""

    def __init__(self, faults: Sequence[InputFault]) -> None:
        lines = [str(fault) for fault in faults[:SHOWN]]
        if len(faults) > SHOWN:
            least = "at least " if len(faults) >= MOST else ""
            lines.append(f"and {least}{len(faults) - SHOWN} more")
        super().__init__("\n".join(lines))
        self.faults = tuple(faults)


class DevicesNotServed(ExplainError):
    """The cluster has no API for devices."""


class BadQuestion(ExplainError):
    """The object of the question cannot be found, or the question is unclear."""
