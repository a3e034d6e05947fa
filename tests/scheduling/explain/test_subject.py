"""Which claims a question is about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kube.bodies import Json, JsonObject, object_at
from scheduling.explain.extended import CLAIM_NAME, class_of, extended_claim
from scheduling.explain.question import MOST, Question, parse_question, parse_questions, questions_about
from scheduling.explain.state import BadQuestion, Kind, MissingKind, State, name_of
from scheduling.explain.subject import ExplainSubject, subject_of
from tests.scheduling.explain.cluster import status
from tests.scheduling.explain.objects import allocated, claim, claim_spec, device_class, node, pod, template

POD = Question(Kind.POD, "team", "train")


def using(own: str = "gpu", **reference: Json) -> JsonObject:
    return {"name": own, **reference}


def asked(state: State, question: Question = POD) -> ExplainSubject:
    return subject_of(state, question)


def names(claims: tuple[JsonObject, ...]) -> list[str]:
    return [name_of(one) for one in claims]


@pytest.mark.parametrize(
    ("words", "question"),
    [
        (["pod", "train"], Question(Kind.POD, "ns", "train")),
        (["pod/train"], Question(Kind.POD, "ns", "train")),
        (["po/train"], Question(Kind.POD, "ns", "train")),
        (["Pods", "train"], Question(Kind.POD, "ns", "train")),
        (["claim/gpu"], Question(Kind.CLAIM, "ns", "gpu")),
        (["resourceclaims.resource.k8s.io", "gpu"], Question(Kind.CLAIM, "ns", "gpu")),
        (["resourceclaim.v1.resource.k8s.io/gpu"], Question(Kind.CLAIM, "ns", "gpu")),
        (["resourceclaimtemplate/gpu"], Question(Kind.TEMPLATE, "ns", "gpu")),
        (["claim", "ns/gpu"], Question(Kind.CLAIM, "ns", "gpu")),
        (["train"], Question(None, "ns", "train")),
    ],
)
def test_questions_are_understood_as_kubectl_people_type_them(words: list[str], question: Question) -> None:
    assert parse_question(words, "ns") == question


def test_a_namespace_may_stand_before_the_name() -> None:
    assert parse_question(["pod", "team/train"]) == POD
    assert parse_question(["pod", "train"]).namespace == "default"
    assert parse_question(["pod", "train"], default="mine").namespace == "mine"
    assert parse_question(["pod", "team/train"], default="mine") == POD


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "'' names nothing; give 'pod NAME', 'claim NAME' or 'template NAME'"),
        (["pod/"], "'pod/' names nothing"),
        (["pod"], "'pod' without a name"),
        (["node", "x"], "'node' is not a kind that waits for devices"),
        (["pod", "a", "b", "c"], "'pod a b c' names nothing"),
        (["pod", "b/x"], "'pod b/x' names another namespace than a; give one of them"),
    ],
)
def test_what_is_no_question_is_refused_with_its_words(words: list[str], message: str) -> None:
    with pytest.raises(BadQuestion) as caught:
        parse_question(words, "a")
    assert str(caught.value).startswith(message)


def test_of_a_file_the_one_pod_is_meant_and_else_the_claim_that_waits() -> None:
    held = allocated(claim("held"), ("n", "g"))
    assert questions_about(State(pods=(pod("train"),), claims=(claim("a"), claim("b")))) == (POD,)
    assert questions_about(State(claims=(held, claim("b")))) == (Question(Kind.CLAIM, "team", "b"),)
    assert questions_about(State(claims=(held,))) == (Question(Kind.CLAIM, "team", "held"),)
    assert questions_about(State(templates=(template("t"),))) == (Question(Kind.TEMPLATE, "team", "t"),)


def test_of_a_file_with_several_pods_all_are_meant_up_to_a_bound() -> None:
    pods = [pod(f"p-{number}") for number in range(MOST + 1)]
    assert [each.name for each in questions_about(State(pods=tuple(pods[:3])))] == ["p-0", "p-1", "p-2"]
    with pytest.raises(BadQuestion) as caught:
        questions_about(State("a.yaml", pods=tuple(pods)))
    assert str(caught.value) == (
        "a.yaml: 21 pods (p-0, p-1, p-2, p-3, p-4 ...); at most 20 can be explained at once; "
        "name some, such as 'pod p-0'"
    )
    with pytest.raises(BadQuestion, match=r"a\.yaml: it has no pod, claim or claim template"):
        questions_about(State("a.yaml"))


def test_several_objects_and_workloads_can_be_asked_about() -> None:
    asked = parse_questions(["deployment/web", "job/train", "po/a", "claim/b"], "team")
    assert [str(each) for each in asked] == [
        "Deployment team/web",
        "Job team/train",
        "pod team/a",
        "claim team/b",
    ]
    assert parse_questions(["pod", "train"], "team") == (POD,)
    assert parse_questions(["statefulset", "db"], "team")[0].workload == "StatefulSet"
    assert len(parse_questions(["pod/a", "pod/a"])) == 1
    with pytest.raises(BadQuestion, match="21 objects in one question; ask about at most 20"):
        parse_questions([f"pod/p-{number}" for number in range(MOST + 1)])
    with pytest.raises(BadQuestion, match="'job' without a name"):
        parse_questions(["job"])


def test_a_claim_alone_is_to_be_allocated_unless_it_is() -> None:
    state = State(claims=(claim("gpu"), allocated(claim("held"), ("n", "g"), pods=("p",))))
    assert names(asked(state, Question(Kind.CLAIM, "team", "gpu")).to_allocate) == ["gpu"]
    held = asked(state, Question(None, "team", "held"))
    assert (held.to_allocate, names(held.allocated), held.title) == ((), ["held"], "claim team/held")
    assert held.notes == ("it is reserved for p",)


def test_an_allocation_without_devices_is_an_allocation() -> None:
    empty = status(claim("gpu"), allocation={})
    assert names(asked(State(claims=(empty,)), Question(Kind.CLAIM, "team", "gpu")).allocated) == ["gpu"]


def test_who_uses_a_claim_is_told() -> None:
    user = pod("train", resourceClaims=[using(resourceClaimName="gpu")])
    (note,) = asked(State(claims=(claim("gpu"),), pods=(user,)), Question(Kind.CLAIM, "team", "gpu")).notes
    assert note.startswith("pod train uses it: 'ostler explain pod train -n team' also looks at ")


def test_a_pods_claims_come_in_its_order() -> None:
    references: list[Json] = [using("b", resourceClaimName="b"), using("a", resourceClaimTemplateName="t")]
    references.append(using("c", resourceClaimName="c"))
    state = State(
        pods=(pod("train", resourceClaims=references),),
        claims=(claim("b"), allocated(claim("c"), ("n", "g"))),
        templates=(template("t", count=3),),
    )
    subject = asked(state)
    assert (names(subject.to_allocate), names(subject.allocated)) == (["b", "train-a"], ["c"])
    assert (subject.missing, subject.notes) == ((), ())


def test_a_claim_from_a_template_is_what_the_controller_makes() -> None:
    made = pod("train", uid="u", resourceClaims=[using(resourceClaimTemplateName="t")])
    body = template("t", count=3)
    body["spec"] = {**object_at(body, "spec"), "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}
    subject = asked(State(pods=(made,), templates=(body,)))
    (one,) = subject.to_allocate
    assert one["spec"] == claim_spec(count=3)
    assert one["metadata"] == {
        "name": "train-gpu",
        "namespace": "team",
        "uid": "train-gpu-to-be-made",
        "labels": {"a": "b"},
        "annotations": {"c": "d", "resource.kubernetes.io/pod-claim-name": "gpu"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "train", "uid": "u", "controller": True}],
    }
    assert subject.notes[0].startswith(
        "the claim for gpu has not been created from template t yet; if this persists, check whether "
    )


def live_pod(**statuses: Json) -> JsonObject:
    made = pod("train", uid="u", resourceClaims=[using(resourceClaimTemplateName="t")])
    return status(made, resourceClaimStatuses=[{"name": "gpu", **statuses}])


def test_a_generated_claim_is_found_by_the_pods_status() -> None:
    owner: list[Json] = [{"kind": "Pod", "name": "train", "uid": "u"}]
    state = State(
        pods=(live_pod(resourceClaimName="train-gpu-x7"),), claims=(claim("train-gpu-x7", ownerReferences=owner),)
    )
    assert names(asked(state).to_allocate) == ["train-gpu-x7"]
    assert asked(state).missing == ()


def test_a_generated_claim_is_found_by_its_owner_before_the_status_names_it() -> None:
    owner: list[Json] = [{"kind": "Pod", "name": "train", "uid": "u"}]
    annotations: JsonObject = {"resource.kubernetes.io/pod-claim-name": "gpu"}
    made = pod("train", uid="u", resourceClaims=[using(resourceClaimTemplateName="t")])
    state = State(pods=(made,), claims=(claim("x7", ownerReferences=owner, annotations=annotations),))
    assert names(asked(state).to_allocate) == ["x7"]


def test_a_pod_that_needs_no_claim_has_none() -> None:
    assert asked(State(pods=(live_pod(),))).to_allocate == ()


def missing(subject: ExplainSubject) -> str:
    (sentence,) = subject.missing
    return sentence


def test_what_cannot_be_followed_is_a_sentence_with_its_fix() -> None:
    direct = pod("train", resourceClaims=[using(resourceClaimName="c")])
    made = pod("train", resourceClaims=[using(resourceClaimTemplateName="t")])
    assert missing(asked(State(pods=(direct,)))) == (
        "claim c (gpu in the pod) does not exist in namespace team; create it"
    )
    assert missing(asked(State(pods=(made,)))) == (
        "claim template t (gpu in the pod) does not exist in namespace team; create it"
    )
    assert missing(asked(State(pods=(live_pod(resourceClaimName="x"),)))).endswith(
        "it was made from a template and has been deleted; delete the pod, so that its owner creates both"
    )
    other: list[Json] = [{"kind": "Pod", "name": "train", "uid": "another"}]
    state = State(pods=(live_pod(resourceClaimName="x"),), claims=(claim("x", ownerReferences=other),))
    assert missing(asked(state)) == "claim x (gpu in the pod) was created for another pod; delete that claim"
    neither = pod("train", resourceClaims=[using()])
    assert missing(asked(State(pods=(neither,)))) == (
        "spec.resourceClaims gpu names neither a claim nor a template; "
        "give one of resourceClaimName and resourceClaimTemplateName"
    )


def test_what_may_not_be_read_is_not_said_to_be_absent() -> None:
    lacks = (MissingKind(Kind.CLAIM, "claims are forbidden", "ask"), MissingKind(Kind.POD, "pods are forbidden", "ask"))
    direct = pod("train", resourceClaims=[using(resourceClaimName="c")])
    assert missing(asked(State(pods=(direct,), missing=lacks))) == (
        "cannot look up claim c (gpu in the pod): claims are forbidden; ask"
    )
    with pytest.raises(BadQuestion, match="cannot look up pod team/train: pods are forbidden; ask"):
        asked(State(missing=lacks))


def test_what_keeps_a_pod_or_claim_apart_from_devices_is_said() -> None:
    held = pod("train", schedulingGates=[{"name": "quota"}], schedulerName="other", nodeName="n")
    subject = asked(State(pods=(held,)))
    assert missing(subject) == "the pod is held by its scheduling gates (quota); whoever set them must remove them"
    assert subject.notes == (
        "the pod uses the scheduler other, which may follow other rules",
        "the pod is on node n",
    )
    going = claim("gpu", deletionTimestamp="2026-01-01T00:00:00Z")
    sentence = missing(asked(State(claims=(going,)), Question(Kind.CLAIM, "team", "gpu")))
    assert sentence == "claim gpu is being deleted; wait until it is gone, or check its finalizers"


def test_a_claim_that_is_reserved_for_all_pods_it_can_have_is_said() -> None:
    full = allocated(claim("c"), ("n", "g"), pods=tuple(f"p{number}" for number in range(256)))
    state = State(claims=(full,), pods=(pod("train", resourceClaims=[using(resourceClaimName="c")]),))
    assert missing(asked(state)) == "claim c is reserved for 256 pods, and no more can share it; delete one of them"


def test_a_pod_without_claims_is_said_to_have_none() -> None:
    assert asked(State(pods=(pod("train"),))).notes == (
        "the pod asks for no claims, and for no extended resource that a device class provides",
    )


def test_nothing_of_that_name_says_where_there_is_one() -> None:
    state = State("the cluster", pods=(pod("train", "other"),))
    with pytest.raises(
        BadQuestion, match="there is no pod team/train in the cluster; it is in namespace other: pass it"
    ):
        asked(state)
    with pytest.raises(BadQuestion, match="there is neither a pod nor a claim team/x in the cluster; check name and"):
        asked(state, Question(None, "team", "x"))
    both = State(pods=(pod("x"),), claims=(claim("x"),))
    with pytest.raises(BadQuestion, match="both a pod and a claim are named team/x; say 'pod x' or"):
        asked(both, Question(None, "team", "x"))


def container(name: str, resources: JsonObject, *, limit: bool = False) -> JsonObject:
    return {"name": name, "resources": {"limits" if limit else "requests": resources}}


def asking(containers: list[Json], first: list[Json] | None = None) -> JsonObject:
    return pod("train", containers=containers, initContainers=first or [])


GPU, NIC = "example.com/gpu", "example.com/nic"
CLASSES = {GPU: device_class("gpu", extendedResourceName=GPU), NIC: device_class("nic", extendedResourceName=NIC)}


def requests_of(body: JsonObject | None) -> list[tuple[str, str, int]]:
    found = object_at(body, "spec", "devices").get("requests", [])
    return [(one["name"], one["exactly"]["deviceClassName"], one["exactly"]["count"]) for one in found]  # type: ignore[union-attr, index, call-overload, misc]


def test_extended_resources_become_requests_container_by_container() -> None:
    body = asking([container("a", {"cpu": "1", GPU: "2", NIC: 1}), container("b", {GPU: "1"}, limit=True)])
    assert requests_of(extended_claim(body, CLASSES, None)) == [
        ("container-0-request-1", "gpu", 2),
        ("container-0-request-2", "nic", 1),
        ("container-1-request-0", "gpu", 1),
    ]


def test_init_containers_use_the_devices_of_later_containers_again() -> None:
    first: list[Json] = [container("i", {GPU: "1"}), container("j", {GPU: "5"}), container("k", {GPU: "4"})]
    body = asking([container("a", {GPU: "2"})], first)
    assert requests_of(extended_claim(body, CLASSES, None)) == [
        ("container-1-request-0", "gpu", 3),
        ("container-3-request-0", "gpu", 2),
    ]


def test_a_sidecar_counts_like_a_container() -> None:
    sidecar = {**container("s", {GPU: "1"}), "restartPolicy": "Always"}
    body = asking([container("a", {GPU: "2"})], [sidecar])
    assert [count for *_, count in requests_of(extended_claim(body, CLASSES, None))] == [1, 2]


def test_on_a_node_with_a_device_plugin_the_claim_asks_for_the_rest() -> None:
    body = asking([container("a", {GPU: "2", NIC: "1"})])
    subject = asked(State(pods=(body,), classes=tuple(CLASSES.values())))
    assert names(subject.to_allocate) == [CLAIM_NAME]
    plugin = status(node("n"), allocatable={GPU: "8"})
    both = status(node("n"), allocatable={GPU: "8", NIC: "1"})
    none = status(node("n"), allocatable={GPU: "0"})
    assert [len(requests_of(one)) for on in (plugin, none) for one in subject.claims_on(on)] == [1, 2]
    assert subject.claims_on(both) == ()


def test_the_implicit_name_of_a_class_is_known() -> None:
    body = asking([container("a", {"deviceclass.resource.kubernetes.io/big": "1"})])
    subject = asked(State(pods=(body,), classes=(device_class("big"),)))
    assert requests_of(subject.to_allocate[0]) == [("container-0-request-0", "big", 1)]


def test_of_several_classes_the_newest_is_behind_a_resource() -> None:
    def made(name: str, day: int) -> JsonObject:
        body = device_class(name, extendedResourceName=GPU)
        return {**body, "metadata": {"name": name, "creationTimestamp": f"2026-01-0{day}T00:00:00Z"}}

    assert name_of(class_of(GPU, [made("b", 1), made("d", 2), made("c", 2)])) == "c"
    assert class_of(NIC, [made("b", 1)]) is None


def test_a_special_claim_that_has_its_devices_is_allocated() -> None:
    body = status(asking([container("a", {GPU: "1"})]), extendedResourceClaimStatus={"resourceClaimName": "x"})
    state = State(pods=(body,), classes=tuple(CLASSES.values()), claims=(allocated(claim("x"), ("n", "g")),))
    assert names(asked(state).allocated) == ["x"]
    left = replace(state, claims=(claim("x"),))
    assert asked(left).notes == ("claim x is left from an earlier attempt; the scheduler creates it again",)
    assert names(asked(left).to_allocate) == [CLAIM_NAME]
