"""A pod as the extender knows it: what it asks for, where it is, and what speaks against binding it unprepared.

Users decide how large their objects are. So only the named fields of an object are read, annotations become values as
soon as the object arrives, and no text of them is kept: neither while a long list arrives nor later. What is kept of a
pod has a bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from sys import intern

from kube.bodies import Json, JsonObject, count_of, object_at, text_at
from kube.json_stream import Fields
from ostler.extender.wire import MOST_NAME, PodIdentity
from plugin.record_annotations import ALLOCATED, DEVICE_NUMBERS, ids_in, numbers_in
from scheduling.cells import pod as contract
from scheduling.cells.decision import CellsUserError
from scheduling.cells.pod import BindInfo, PodSchedulingSpec

MOST_SPEC = 16 << 10
"""Characters of an annotation with a scheduling spec or group; those of real gangs have a few hundred."""
MOST_SIZES = 32
"""Different sizes of the pods of a gang."""
MOST_GANG_NAME = 512
"""Characters of a gang's name; namespace and name of a pod have 317."""
MOST_VOLUMES = 16
"""Volumes, and claims, that are known by name; the extender binds no pod with more past the scheduler."""
MOST_READING = 10.0
"""Seconds of the processor for the annotations of one namespace's pods."""
_FORGIVEN = 0.05
"""Seconds of these that are forgiven each second."""
_OWN_GANG = "\0/\0"
"""In place of the gang's name that a pod without one gets of its own name."""
_SAME_SPECS = 64
"""Texts of scheduling specs that are remembered while pods are read: the pods of a gang have the same."""
MOST_GIVEN = 1024
"""Characters of the annotation with a pod's devices that are kept; UUIDs of 24 GPUs."""
_ANNOTATIONS = (
    contract.ANNOTATION_SPEC,
    contract.ANNOTATION_GROUP,
    contract.ANNOTATION_BIND_INFO,
    DEVICE_NUMBERS,
    ALLOCATED,
)
CONTAINER_FIELDS: Fields = {"resources": {"limits": {contract.RESOURCE_ENABLE: True}}}
FIELDS: Fields = {
    "metadata": {
        "namespace": True,
        "name": True,
        "uid": True,
        "resourceVersion": True,
        "creationTimestamp": True,
        "annotations": dict.fromkeys(_ANNOTATIONS, True),
    },
    "spec": {
        "nodeName": True,
        "containers": CONTAINER_FIELDS,
        "initContainers": CONTAINER_FIELDS,
        "resourceClaims": {"name": True},
        "volumes": {"name": True, "persistentVolumeClaim": {"claimName": True}, "ephemeral": {}},
    },
    "status": {"phase": True, "extendedResourceClaimStatus": {"resourceClaimName": True}},
}
NODE_FIELDS: Fields = {
    "metadata": {"name": True, "uid": True, "resourceVersion": True},
    "spec": {"unschedulable": True},
    "status": {"conditions": {"type": True, "status": True}},
}
_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class GivenDevices:
    """The devices by the agent of a bound pod's node: ``ids`` that the kubelet gave it, joined by commas, empty before
    that.

    ``numbers``: those that the scheduler recorded, or that the agent put in their place.
    """

    ids: str = ""
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PodFacts:
    """``node``: empty while the pod is not bound. ``is_over``: it has succeeded or failed.

    ``is_read``: False if only the metadata could be read. ``claims``: its resource claims. ``volumes``: the
    PersistentVolumeClaims that it uses. ``has_more``: it has more claims or volumes than are named here.
    ``created``: as written. ``given``: the devices that the kubelet gave it, by the node's agent.
    """

    identity: PodIdentity
    node: str
    is_enabled: bool
    is_over: bool
    claims: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    has_more: bool = False
    created: str = ""
    is_read: bool = True
    given: GivenDevices = GivenDevices()

    @property
    def uid(self) -> str:
        """Its identity."""
        return self.identity.uid

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.identity.namespace}/{self.identity.name}"

    @property
    def needs_preparation(self) -> bool:
        """Whether the scheduler itself must bind it: it allocates claims and volumes before it binds."""
        return bool(self.claims or self.volumes or self.has_more)


@dataclass(frozen=True, slots=True)
class PodTexts:
    """The content of a pod's annotations; a part that is None has a fault, or was not wanted.

    ``spec``: its request. ``record``: its place, if it is bound.
    """

    spec: PodSchedulingSpec | None = None
    fault: str = ""
    record: BindInfo | None = None
    record_fault: str = ""


class ReadPod(dict[str, Json]):
    """A pod on its way from the API server to the tracker, in place of its object: values alone."""

    __slots__ = ("facts", "texts")

    def __init__(self, facts: PodFacts, texts: PodTexts = PodTexts()) -> None:
        # Whoever reads lists drops what is empty.
        super().__init__(uid=facts.uid)
        self.facts = facts
        self.texts = texts


class ReadingTime:
    """How long the annotations of a namespace's pods may take to be read; for one thread.

    Others wait while they are read, above all at a start. Those of 5,000 pods take about a second.
    """

    def __init__(
        self, cpu: Callable[[], float] = time.thread_time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._cpu = cpu
        self._monotonic = monotonic
        self._spent: dict[str, tuple[float, float]] = {}
        """By namespace: seconds, and when."""

    def why_not(self, namespace: str) -> str:
        """Why nothing of a namespace is read now, empty if it is."""
        if self._left_of(namespace) < MOST_READING:
            return ""
        return (
            f"the annotations of the pods of namespace {namespace} take more than {MOST_READING:g} s to read, and no "
            "more of them are read for now; delete pods with strange annotations, and change or create this one again"
        )

    @contextmanager
    def taken(self, namespace: str) -> Iterator[None]:
        """Count the time that is spent inside."""
        began = self._cpu()
        try:
            yield
        finally:
            spent = self._left_of(namespace) + self._cpu() - began
            self._spent[namespace] = spent, self._monotonic()

    def _left_of(self, namespace: str) -> float:
        """The rest of the time that was spent: it is forgiven little by little."""
        spent, at = self._spent.get(namespace, (0.0, 0.0))
        return max(0.0, spent - _FORGIVEN * (self._monotonic() - at))


class PodReader:
    """Reads pods; for one thread. ``is_bound``: whether a pod's annotations are known already, by its UID.

    What a bound pod has never changes. So its annotations are read once, however often its status changes.
    """

    def __init__(self, is_bound: Callable[[str], bool], time: ReadingTime | None = None) -> None:
        self._is_bound = is_bound
        self._time = time or ReadingTime()
        self._read = lru_cache(_SAME_SPECS)(_spec_of)

    def read(self, body: JsonObject) -> JsonObject:
        """The part of a Pod to keep: a ``ReadPod``, or nothing if it wants no cells."""
        facts = facts_of(body)
        if facts.is_over or not facts.is_read:
            return ReadPod(facts) if facts.is_enabled or not facts.is_read else {}
        if not facts.is_enabled:
            return {}
        if facts.node and self._is_bound(facts.uid):
            return ReadPod(facts)
        namespace = facts.identity.namespace
        if fault := self._time.why_not(namespace):
            return ReadPod(facts, PodTexts(fault=fault, record_fault=fault))
        with self._time.taken(namespace):
            return ReadPod(facts, self._texts(object_at(body, "metadata", "annotations"), facts))

    def _texts(self, annotations: JsonObject, facts: PodFacts) -> PodTexts:
        spec, fault = self._asked(annotations, facts.key)
        # A record that somebody wrote before the pod is bound says nothing, and may be large.
        return PodTexts(spec, fault, *_record_of(annotations)) if facts.node else PodTexts(spec, fault)

    def _asked(self, annotations: JsonObject, key: str) -> tuple[PodSchedulingSpec | None, str]:
        texts = []
        for name in (contract.ANNOTATION_SPEC, contract.ANNOTATION_GROUP):
            text = text_at(annotations, name)
            if len(text) > MOST_SPEC:
                return None, f"the annotation {name} has {len(text)} characters; the limit is {MOST_SPEC}"
            texts.append(text)
        spec, fault = self._read(*texts)
        if spec is not None and spec.group.name == _OWN_GANG:
            spec = replace(spec, group=replace(spec.group, name=key))
        return spec, fault


def facts_of(body: JsonObject) -> PodFacts:
    """A Pod's facts."""
    metadata, spec = object_at(body, "metadata"), object_at(body, "spec")
    name = text_at(metadata, "name")
    claims, volumes = tuple(_claims(body, spec)), tuple(_volumes(spec, name))
    return PodFacts(
        PodIdentity(text_at(metadata, "uid"), intern(text_at(metadata, "namespace")), name),
        node=intern(text_at(spec, "nodeName")),
        is_enabled=wants_cells(spec),
        is_over=text_at(body, "status", "phase") in _OVER,
        claims=claims[:MOST_VOLUMES],
        volumes=volumes[:MOST_VOLUMES],
        has_more=max(len(claims), len(volumes)) > MOST_VOLUMES,
        created=text_at(metadata, "creationTimestamp"),
        is_read=bool(spec),
        given=_given(object_at(metadata, "annotations")) if text_at(spec, "nodeName") else GivenDevices(),
    )


def _given(annotations: JsonObject) -> GivenDevices:
    ids = text_at(annotations, ALLOCATED)
    numbers = numbers_in(text_at(annotations, DEVICE_NUMBERS))
    return GivenDevices(ids if len(ids) <= MOST_GIVEN and ids_in(ids) else "", numbers)


def is_ready_node(body: JsonObject) -> bool:
    """Whether a Node is Ready and not cordoned."""
    if object_at(body, "spec").get("unschedulable") is True:
        return False
    conditions = object_at(body, "status").get("conditions")
    return any(text_at(each, "type") == "Ready" and text_at(each, "status") == "True" for each in _list(conditions))


def wants_cells(spec: JsonObject) -> bool:
    """Whether a pod's spec opts in by a limit of a container."""
    return any(_is_enabled(each) for key in ("containers", "initContainers") for each in _list(spec.get(key)))


def _is_enabled(container: JsonObject) -> bool:
    limit = object_at(container, "resources", "limits").get(contract.RESOURCE_ENABLE)
    return (limit > 0) if isinstance(limit, int) else bool(isinstance(limit, str) and count_of(limit))


def _claims(body: JsonObject, spec: JsonObject) -> Iterator[str]:
    for each in _list(spec.get("resourceClaims")):
        yield text_at(each, "name")
    # A claim that the scheduler makes for an extended resource that is backed by DRA.
    if name := text_at(body, "status", "extendedResourceClaimStatus", "resourceClaimName"):
        yield name


def _volumes(spec: JsonObject, pod: str) -> Iterator[str]:
    for each in _list(spec.get("volumes")):
        if "ephemeral" in each:
            yield f"{pod}-{text_at(each, 'name')}"
        elif name := text_at(each, "persistentVolumeClaim", "claimName"):
            yield name


def _list(value: Json) -> Iterator[JsonObject]:
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict):
            yield each


def _spec_of(text: str, group: str) -> tuple[PodSchedulingSpec | None, str]:
    """The request of a pod, or why it cannot be used. Its gang is ``_OWN_GANG`` if it names none."""
    annotation = contract.ANNOTATION_SPEC
    try:
        spec = contract.read_pod_spec({annotation: text, contract.ANNOTATION_GROUP: group}, *_OWN_GANG.split("/"))
    except CellsUserError as error:
        return None, str(error)
    sizes = len(spec.group.members)
    if sizes > MOST_SIZES:
        problem = f"affinityGroup.members has {sizes} different leafCellNumbers; the limit is {MOST_SIZES}"
        return None, f"annotation {annotation}: {problem}"
    for key, value, most in (
        ("virtualCluster", spec.virtual_cluster, MOST_NAME),
        ("pinnedCellId", spec.pinned_cell_id, MOST_NAME),
        ("leafCellType", spec.leaf_cell_type, MOST_NAME),
        ("affinityGroup.name", spec.group.name, MOST_GANG_NAME),
    ):
        if len(value) > most:
            return None, f"annotation {annotation}: {key} has {len(value)} characters; the limit is {most}"
    return spec, ""


def _record_of(annotations: JsonObject) -> tuple[BindInfo | None, str]:
    """Where a bound pod is, or why that cannot be used."""
    text = text_at(annotations, contract.ANNOTATION_BIND_INFO)
    try:
        return contract.read_bind_info({contract.ANNOTATION_BIND_INFO: text}), ""
    except CellsUserError as error:
        return None, str(error)
