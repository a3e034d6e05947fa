"""All objects that an answer is made from, wherever they were read.

Objects are plain dicts of the v1 API with the API server's defaults, as ``driver`` takes them; nobody changes them.
Invariants: no two objects of a kind have the same namespace and name; the order is the order in which they were read.

What could not be read is part of the state: an answer made from less than everything says so. ``whole`` tells the
kinds of which every object is here, so that "there is no such class" is not said of a class that was never asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kube.bodies import JsonObject
from scheduling.explain.kinds import FACTS, Kind, key_of

Objects = tuple[JsonObject, ...]
Index = dict[tuple[str, str], JsonObject]


@dataclass(frozen=True, slots=True)
class Missing:
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
    missing: tuple[Missing, ...] = ()
    whole: frozenset[Kind] = frozenset()
    _indices: dict[Kind, Index] = field(default_factory=dict, init=False, repr=False, compare=False)

    def of(self, kind: Kind) -> Objects:
        """All objects of a kind."""
        found: Objects = getattr(self, FACTS[kind].field)
        return found

    def find(self, kind: Kind, name: str, namespace: str = "") -> JsonObject | None:
        """One object; ``namespace`` is not looked at for a kind without namespaces, and "" is ``default``."""
        index = self._indices.get(kind)
        if index is None:
            # Filled when it is first asked for; two threads would only do the same work twice.
            index = self._indices[kind] = {key_of(kind, body): body for body in self.of(kind)}
        return index.get(((namespace or "default") if FACTS[kind].namespaced else "", name))

    def claim(self, namespace: str, name: str) -> JsonObject | None:
        """A ResourceClaim."""
        return self.find(Kind.CLAIM, name, namespace)

    def pod(self, namespace: str, name: str) -> JsonObject | None:
        """A Pod."""
        return self.find(Kind.POD, name, namespace)

    def template(self, namespace: str, name: str) -> JsonObject | None:
        """A ResourceClaimTemplate."""
        return self.find(Kind.TEMPLATE, name, namespace)

    def device_class(self, name: str) -> JsonObject | None:
        """A DeviceClass."""
        return self.find(Kind.CLASS, name)

    def node(self, name: str) -> JsonObject | None:
        """A Node."""
        return self.find(Kind.NODE, name)

    def slice(self, name: str) -> JsonObject | None:
        """A ResourceSlice."""
        return self.find(Kind.SLICE, name)

    def lacks(self, kind: Kind) -> Missing | None:
        """Why there are no objects of a kind, None where they could be read."""
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
