"""Small clusters with pods to place, as explain's states, and what an answer makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from kube.bodies import JsonObject
from scheduling.explain.question import Question
from scheduling.explain.state import Kind, State, name_of
from scheduling.fit.answer import FitAnswer
from scheduling.fit.wanted import PodSource, with_more
from tests.scheduling.allocator.worlds import case, worlds

Object = dict[str, Any]
NAMESPACE = "default"


def pod_for(name: str, claims: Sequence[JsonObject], *, templates: Iterable[str] = (), cpu: str = "") -> Object:
    """A pod that shares these claims and has one of its own from each template."""
    shared = [{"name": name_of(each), "resourceClaimName": name_of(each)} for each in claims]
    own = [{"name": each, "resourceClaimTemplateName": each} for each in templates]
    container: Object = {"name": "main", "image": "none"}
    if cpu:
        container["resources"] = {"requests": {"cpu": cpu}}
    spec = {"containers": [container], "resourceClaims": [*shared, *own]}
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def source(pod: str, count: int | None = 1) -> PodSource:
    """So many of a pod."""
    return PodSource(Question(Kind.POD, NAMESPACE, pod), count)


def on_node(body: Object, node: str) -> Object:
    """A slice of a generated world for another node, with a pool of that node's own."""
    spec = body["spec"]
    pool = {**spec["pool"], "name": f"{node}-{spec['pool']['name']}"}
    metadata = {**body["metadata"], "name": f"{node}-{body['metadata']['name']}"}
    return {**body, "metadata": metadata, "spec": {**spec, "nodeName": node, "pool": pool}}


def node(name: str, cpu: int = 0) -> Object:
    """A node; ``cpu``: of which it tells, 0 for one that does not."""
    made: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    return {**made, "status": {"allocatable": {"cpu": str(cpu)}}} if cpu else made


@st.composite
def clusters(draw: st.DrawFn) -> tuple[State, list[PodSource]]:
    """One to three nodes of generated devices, and up to six pods of up to three sorts."""
    drawn = draw(worlds())
    made = case(drawn)
    names = [f"node-{number}" for number in range(draw(st.integers(1, 3)))]
    nodes = [node(each, draw(st.sampled_from((0, 2, 3)))) for each in names]
    slices = [on_node(body, each) for each in names for body in made["slices"]]
    claims = [{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **each} for each in made["claims"]]
    claims += [_plain_claim("one", 1), _plain_claim("two", 2)]
    if draw(st.booleans()):
        network = {**made["slices"][0]["spec"], "allNodes": True}
        network.pop("nodeName", None)
        pool = {"name": "net", "generation": 1, "resourceSliceCount": 1}
        if "sharedCounters" not in network and not drawn.budget:
            slices.append({"metadata": {"name": "net"}, "spec": {**network, "pool": pool}})
    templates: list[Object] = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": f"t-{name_of(each)}", "namespace": NAMESPACE},
            "spec": {"spec": each["spec"]},
        }
        for each in claims
    ]
    pods: list[Object] = []
    sources: list[PodSource] = []
    for number in range(draw(st.integers(1, 3))):
        name = f"pod-{number}"
        shared = draw(st.one_of(st.just([]), st.just([]), st.lists(st.sampled_from(claims), max_size=1)))
        names_of_templates = st.sampled_from([name_of(each) for each in templates])
        own = draw(st.lists(names_of_templates, min_size=0 if shared else 1, max_size=2, unique=True))
        pods.append(pod_for(name, shared, templates=own, cpu=draw(st.sampled_from(("", "1", "500m")))))
        sources.append(source(name, draw(st.integers(1, 3))))
    state = State(
        origin="a test",
        slices=tuple(slices),
        claims=tuple(claims),
        classes=tuple(made["classes"]),
        nodes=tuple(nodes),
        pods=tuple(pods),
        templates=tuple(templates),
    )
    return state, sources


def _plain_claim(name: str, count: int) -> Object:
    """A claim for so many devices, whichever: one that often fits."""
    exactly = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}"},
        "spec": {"devices": {"requests": [{"name": "devices", "exactly": exactly}]}},
    }


def entered(state: State, answer: FitAnswer) -> State:
    """The state with the claims that an answer's pods have got, by what the answer says alone."""
    made: list[JsonObject] = []
    for each in answer.nodes:
        for pod in each.pods:
            for claim in pod.claims:
                body = state.find(Kind.CLAIM, claim.name, claim.namespace) or {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceClaim",
                    "metadata": {"name": claim.name, "namespace": claim.namespace},
                    "spec": {},
                }
                reserved: list[Any] = [{"resource": "pods", "name": pod.name.partition("/")[2]}]
                made.append({**body, "status": {"allocation": claim.allocation, "reservedFor": reserved}})
    return with_more(state, Kind.CLAIM, made)
