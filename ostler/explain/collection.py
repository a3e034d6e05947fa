"""Takes the objects out of documents: manifests, kubectl's lists, snapshots, workloads.

Objects are checked, named and converted to v1. Every fault of every document is found before anything is refused. A
well-formed object that does not concern devices becomes a note. What an API server would refuse beyond types is only a
warning: whoever asks why something does not work may ask with something that cannot work. Objects that have been in a
cluster are not judged again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import islice
from typing import cast

from kube.bodies import Json, JsonObject, object_at, one_line, text_at
from ostler.explain.shapes import misfits
from ostler.explain.workloads import (
    COMPUTE_DOMAIN,
    COMPUTE_DOMAIN_GROUP,
    WORKLOADS,
    WorkloadPods,
    domain_note,
    pod_of,
    template_of,
    wrong_counts,
)
from ostler.explain.yaml_objects import MAX_DEPTH, Document, FieldPath, line_of, object_on
from scheduling.api.excerpts import shown
from scheduling.api.validation.objects import VALIDATORS
from scheduling.api.versions import VersionError, to_v1, with_defaults
from scheduling.explain.state import (
    FACTS,
    GROUP,
    MOST,
    SHOWN,
    InputFault,
    Kind,
    MissingKind,
    State,
    key_of,
    kind_of,
    name_of,
    objects_at,
    texts_at,
    uid_of,
)

SNAPSHOT_GROUP = "ostler.dev"
SNAPSHOT_VERSION = f"{SNAPSHOT_GROUP}/v1alpha1"
SNAPSHOT_KIND = "Snapshot"
_SMALL = 4 << 20
"""Most bytes of a text that is read again for every fault; in a larger one only the first fault has its line."""
SENTENCE = 300
"""Characters of a note about a workload."""
_WORD = 60
"""Characters shown of a foreign word."""


@dataclass(frozen=True, slots=True)
class _Spot:
    """A place in a document of a text; ``subject``: the object there, for people."""

    source: str
    data: bytes
    document: Document
    path: FieldPath = ()
    subject: str = ""

    def below(self, *path: str | int) -> _Spot:
        return replace(self, path=(*self.path, *path))

    def of(self, subject: str) -> _Spot:
        return replace(self, subject=subject)

    def line(self) -> int:
        found = line_of(self.data, self.document.number, self.path) if self.path else 0
        return found or self.document.line


class ObjectCollection:
    """Collects objects, faults and notes from documents. ``namespace``: of objects that name none of their own."""

    def __init__(self, namespace: str = "") -> None:
        self._namespace = namespace
        self.faults: list[InputFault] = []
        self.places: dict[tuple[Kind, str, str], str] = {}
        """Where objects are, by kind, namespace and name."""
        self.workloads: dict[tuple[str, str], WorkloadPods] = {}
        self._objects: dict[Kind, dict[tuple[str, str], JsonObject]] = {kind: {} for kind in Kind}
        self._notes: list[str] = []
        self._warnings: list[str] = []
        self._others: Counter[str] = Counter()
        self._snapshot = State()

    def add(self, source: str, data: bytes, document: Document) -> None:
        """Take every object out of a document."""
        spot, body = _Spot(source, data, document), document.body
        if isinstance(body, list):
            for number, item in enumerate(body):
                self._take(spot.below(number), item)
        else:
            self._take(spot, body)
        for path in document.pruned[:MOST]:
            self._warn_of_pruned(spot, path)

    def state(self, origin: str) -> State:
        """All objects, with what a snapshot says about itself."""
        objects = {FACTS[kind].field: tuple(found.values()) for kind, found in self._objects.items()}
        return replace(self._snapshot, origin=origin, **objects)  # type: ignore[arg-type]  # only fields of objects

    def notes(self) -> tuple[str, ...]:
        """Notes about parts that were left out or read as something else, or that an API server refuses."""
        found = list(self._notes)
        if self._others:
            kinds = ", ".join(f"{name} ({count})" for name, count in self._others.most_common(10))
            found.append(f"left out, since no allocation depends on them: {kinds}")
        found += self._warnings[:SHOWN]
        if len(self._warnings) > SHOWN:
            found.append(f"and {len(self._warnings) - SHOWN} more warnings")
        return tuple(found)

    def _take(self, spot: _Spot, body: Json) -> None:
        if len(self.faults) >= MOST:
            return
        if not isinstance(body, dict):
            self._fault(spot, "", "is not an object", "write apiVersion, kind, metadata and spec")
            return
        word, version = text_at(body, "kind"), text_at(body, "apiVersion")
        if not word or not version:
            lacks = "kind" if version else "apiVersion" if word else "apiVersion and kind"
            subject = one_line(f"{word} {name_of(body)}", _WORD)
            problem = "is missing" if body.get(lacks) in (None, "") else "must be a string"
            self._fault(spot.of(subject).below(lacks), lacks, problem, "write it as 'kubectl get -o yaml' does")
        elif word == SNAPSHOT_KIND and version.startswith(f"{SNAPSHOT_GROUP}/"):
            self._take_snapshot(spot.of(SNAPSHOT_KIND), body, version)
        elif word.endswith("List"):
            self._take_items(spot.of(one_line(word, _WORD)), body, word.removesuffix("List"))
        elif word in WORKLOADS and version == WORKLOADS[word].version:
            self._take_workload(spot, body)
        elif word == COMPUTE_DOMAIN and version.startswith(f"{COMPUTE_DOMAIN_GROUP}/"):
            self._take_compute_domain(spot, body)
        elif (kind := kind_of(body)) is None or version.rpartition("/")[0] != FACTS[kind].group:
            self._others[one_line(word, _WORD)] += 1
        else:
            self._take_object(spot, kind, body)

    def _take_items(self, spot: _Spot, body: JsonObject, kind: str) -> None:
        items = body.get("items")
        if items is None:
            return
        if not isinstance(items, list):
            self._fault(spot.below("items"), "items", "must be a list", "write each item after '- '")
            return
        for number, item in enumerate(items):
            # The API server leaves both out in lists of one kind.
            whole = (
                {"apiVersion": body["apiVersion"], "kind": kind, **item} if kind and isinstance(item, dict) else item
            )
            self._take(spot.of("").below("items", number), whole)

    def _take_snapshot(self, spot: _Spot, body: JsonObject, version: str) -> None:
        if version != SNAPSHOT_VERSION:
            problem = f"is {one_line(version, _WORD)!r}, which this version cannot read"
            self._fault(spot.below("apiVersion"), "apiVersion", problem, "use the ostler that wrote it, or a newer one")
            return
        known = {kind.value for kind in Kind}
        missing = [one for one in objects_at(body, "missing") if text_at(one, "kind") in known]
        self._snapshot = State(
            server_version=text_at(body, "serverVersion"),
            truncated=texts_at(body, "truncated"),
            missing=tuple(
                MissingKind(Kind(text_at(one, "kind")), text_at(one, "problem"), text_at(one, "fix")) for one in missing
            ),
            whole=frozenset(Kind(word) for word in texts_at(body, "whole") if word in known),
        )
        self._take_items(spot, body, "")

    def _take_workload(self, spot: _Spot, body: JsonObject) -> None:
        pod = pod_of(body)
        subject = one_line(f"{text_at(body, 'kind')} {name_of(body)}", _WORD)
        if pod is None:
            self._fault(spot.of(subject), "spec", "has no pod template", "write it with its template")
            return
        for path, count in wrong_counts(body):
            fix = "write a whole number of 0 or more, without quotes"
            self._fault(spot.of(subject).below(*path), dotted(path), f"is {shown(count)}, no number of pods", fix)
        placed = self._placed(Kind.POD, _named(pod))
        key = key_of(Kind.POD, placed)
        known, earlier = self._objects[Kind.POD].get(key), self.workloads.get(key)
        if earlier is not None and earlier.body != body and earlier.body["kind"] == body["kind"]:
            self._fault(spot.of(subject), "", "is given twice with different contents", "keep one of the two")
            return
        if known is not None and (known != placed or (earlier is not None and earlier.body != body)):
            # A Deployment and a Job may have the same name, and a pod as well.
            other = f"{name_of(placed)}-{text_at(body, 'kind').lower()}"
            self._notes.append(
                f"{subject}: its pod is called {other} here, since the files have another {name_of(placed)}"
            )
            pod = {**pod, "metadata": {**object_at(pod, "metadata"), "name": other}}
        self.workloads[key_of(Kind.POD, self._placed(Kind.POD, _named(pod)))] = WorkloadPods(body)
        self._take_object(spot, Kind.POD, pod)

    def _take_compute_domain(self, spot: _Spot, body: JsonObject) -> None:
        template = template_of(body)
        if template is None:
            self._others[COMPUTE_DOMAIN] += 1
            return
        self._notes.append(one_line(domain_note(body, name_of(template)), SENTENCE))
        self._take_object(spot, Kind.TEMPLATE, template)

    def _take_object(self, spot: _Spot, kind: Kind, body: JsonObject) -> None:
        name = name_of(body) or text_at(body, "metadata", "generateName")
        here = spot.of(one_line(f"{kind} {name}", _WORD))
        try:
            plain = _plain(kind, body)
        except VersionError as error:
            problem = f"{one_line(error.version, _WORD)!r} is not a version of this kind"
            self._fault(here.below("apiVersion"), "apiVersion", problem, error.possible)
            return
        found = list(islice(misfits(kind, plain), SHOWN))
        for misfit in found:
            self._fault(here.below(*misfit.path), dotted(misfit.path), misfit.problem, misfit.fix)
        if not found:
            self._warn(here, kind, plain)
            self._keep(here, kind, self._placed(kind, _named(_complete(kind, plain))))

    def _placed(self, kind: Kind, body: JsonObject) -> JsonObject:
        metadata = object_at(body, "metadata")
        if not self._namespace or not FACTS[kind].namespaced or metadata.get("namespace"):
            return body
        return {**body, "metadata": {**metadata, "namespace": self._namespace}}

    def _keep(self, spot: _Spot, kind: Kind, body: JsonObject) -> None:
        key = key_of(kind, body)
        if not key[1]:
            self._fault(spot, "metadata.name", "is missing", "give the object a name")
            return
        known = self._objects[kind].setdefault(key, body)
        line = spot.document.line if not spot.path else 0
        place = f"{spot.source}:{line}" if line else spot.source
        first = self.places.setdefault((kind, *key), place)
        if known != body:
            self._fault(spot, "", f"is given twice with different contents, first in {first}", "keep one of the two")

    def _warn(self, spot: _Spot, kind: Kind, body: JsonObject) -> None:
        if kind.value not in VALIDATORS or uid_of(body) or len(self._warnings) > MOST:
            return
        # A namespace's labels, which are not read, say whether it permits admin access.
        more = {"admin_namespace": True} if FACTS[kind].namespaced else {}
        causes = VALIDATORS[kind.value](body, **more)
        line = f":{spot.document.line}" if not spot.path else ""
        where = f"{spot.source}{line}: {spot.subject}"
        self._warnings += [f"{where}: an API server would refuse it: {one_line(str(cause), 300)}" for cause in causes]

    def _warn_of_pruned(self, spot: _Spot, path: FieldPath) -> None:
        found = object_on(spot.document.body, path)
        if found is not None:
            body, inner = found
            subject = one_line(f"{text_at(body, 'kind')} {name_of(body)}", _WORD)
            field = one_line(dotted(inner), _WORD)
            problem = f"nested deeper than {MAX_DEPTH} levels; what is deeper is left out"
            self._warnings.append(f"{spot.source}: {subject} {field}: {problem}")

    def _fault(self, spot: _Spot, field: str, problem: str, fix: str) -> None:
        # A line costs another reading of the text, and of many faults only the first are shown.
        line = spot.line() if len(self.faults) < (SHOWN if len(spot.data) <= _SMALL else 1) else 0
        self.faults.append(InputFault(spot.source, problem, fix, line, spot.subject.strip(), field))


def _plain(kind: Kind, body: JsonObject) -> JsonObject:
    """The object as v1 of its API group; raises ``VersionError``."""
    if FACTS[kind].group == GROUP:
        return cast("JsonObject", to_v1(body))
    if body["apiVersion"] != "v1":
        raise VersionError(kind, str(body["apiVersion"]), "write v1")
    return body


def _complete(kind: Kind, body: JsonObject) -> JsonObject:
    """The object with the API server's defaults."""
    return cast("JsonObject", with_defaults(body)) if FACTS[kind].group == GROUP else body


def _named(body: JsonObject) -> JsonObject:
    """The object with a name: if the API server would generate it, the beginning of the name."""
    prefix = text_at(body, "metadata", "generateName").rstrip("-.")
    if name_of(body) or not prefix:
        return body
    return {**body, "metadata": {**object_at(body, "metadata"), "name": prefix}}


def dotted(path: FieldPath) -> str:
    """A path as people write it: ``spec.devices[3].name``; keys with dots or slashes in brackets."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.replace("_", "").replace("-", "").isalnum():
            text += f".{part}" if text else part
        else:
            text += f"[{one_line(part, _WORD)}]"
    return text
