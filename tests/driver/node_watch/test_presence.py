"""Who is gone: never for lack of news, never a pod that is there, and in the end everybody who is not."""

from __future__ import annotations

import time
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from driver.node_watch.pods import (
    LOOK_AGAIN,
    MIRROR_WAIT,
    MOST_CLAIMS,
    NodePod,
    Presence,
    pod_of,
    stripped,
)
from kube.bodies import Json, JsonObject, object_at
from node.clocks import SystemClocks
from node.values import replace
from tests.making.clock import ManualClock
from tests.making.watched_node import MIRROR

HASH = "0123456789abcdef0123456789abcdef"


def uid(number: int) -> str:
    return str(UUID(int=number))


def pod(number: int, *, static: str = "", over: bool = False) -> NodePod:
    return NodePod(uid(number), "team", f"p{number}", static, over)


def synced(*pods: NodePod) -> tuple[Presence, ManualClock]:
    clock = ManualClock(100.0)
    presence = Presence(SystemClocks(monotonic=clock))
    presence.replaced(pods)
    return presence, clock


def test_a_list_that_was_begun_before_the_question_does_not_answer_it() -> None:
    presence, clock = synced()
    began = clock.now
    clock.now += 1
    assert not presence.gone(uid(1))
    assert not presence.listed(began, ())
    assert not presence.gone(uid(1))
    assert presence.list_at() == clock.now
    assert presence.listed(clock.now, ())
    assert presence.gone(uid(1))
    assert presence.list_at() is None


def test_a_pod_that_a_list_shows_and_the_watch_does_not_is_looked_for_again() -> None:
    presence, clock = synced()
    assert not presence.gone(uid(1))
    assert not presence.listed(clock.now, (pod(1),))
    assert not presence.gone(uid(1))
    assert presence.name_of(uid(1)) == "team/p1"
    # The watch begins anew from a list that does not have it: it may be an older one, which says nothing.
    presence.replaced(())
    assert not presence.gone(uid(1))
    assert presence.list_at() == clock.now + LOOK_AGAIN
    clock.now += LOOK_AGAIN
    assert presence.listed(clock.now, ())
    assert presence.gone(uid(1))
    assert presence.name_of(uid(1)) == "team/p1"


def test_what_the_watch_has_seen_deleted_does_not_come_back_by_an_older_list() -> None:
    presence, clock = synced(pod(1))
    presence.gone(uid(2))
    presence.deleted(pod(1))
    presence.listed(clock.now, (pod(1),))
    assert presence.gone(uid(1))
    assert presence.pods == ()


def test_a_static_pod_is_known_by_the_kubelets_uid() -> None:
    presence, _ = synced(pod(1, static=HASH))
    assert not presence.gone(HASH)
    assert presence.name_of(HASH) == presence.name_of(uid(1)) == "team/p1"
    presence.applied(pod(1, static=HASH, over=True))
    assert presence.gone(HASH)


def test_a_static_pod_whose_mirror_was_deleted_is_gone_only_when_the_kubelet_has_made_no_other() -> None:
    presence, clock = synced(pod(1, static=HASH))
    presence.deleted(pod(1, static=HASH))
    assert presence.gone(uid(1))
    assert not presence.gone(HASH)
    clock.now += MIRROR_WAIT - 1
    presence.listed(clock.now, ())
    assert not presence.gone(HASH)
    assert presence.list_at() == clock.now + 1
    clock.now += 1
    presence.listed(clock.now, ())
    assert presence.gone(HASH)
    assert presence.name_of(HASH) == "team/p1"
    # The same file is put back: the same UID at the kubelet, and another object.
    presence.applied(pod(2, static=HASH))
    assert not presence.gone(HASH)


def test_a_mirror_pod_made_anew_is_the_static_pod_still() -> None:
    presence, clock = synced(pod(1, static=HASH))
    presence.deleted(pod(1, static=HASH))
    presence.applied(pod(2, static=HASH))
    clock.now += 2 * MIRROR_WAIT
    presence.listed(clock.now, (pod(2, static=HASH),))
    assert not presence.gone(HASH)


def test_a_static_pod_without_a_mirror_is_never_gone() -> None:
    """The kubelet may have been kept from making one."""
    presence, clock = synced()
    assert not presence.gone(HASH)
    assert presence.list_at() is None
    presence.listed(clock.now, ())
    assert not presence.gone(HASH)


def test_nobody_makes_another_pod_gone_by_naming_it_as_a_mirrors() -> None:
    presence, clock = synced(pod(1))
    presence.applied(pod(2, static=uid(1), over=True))
    assert not presence.gone(uid(1))
    presence.deleted(pod(2, static=uid(1)))
    clock.now += 2 * MIRROR_WAIT
    presence.listed(clock.now, (pod(1),))
    assert not presence.gone(uid(1))


def test_names_of_gone_pods_are_kept_within_bounds() -> None:
    presence, clock = synced()
    for number in range(1, 5001):
        presence.deleted(pod(number))
    assert presence.gone(uid(5000))
    assert presence.name_of(uid(1)) == ""
    # Asked for like one that was never seen.
    assert not presence.gone(uid(1))
    presence.listed(clock.now, ())
    assert presence.gone(uid(1))


def test_a_list_of_thousands_of_pods_does_not_hold_up_the_loop() -> None:
    presence, _ = synced()
    lists = [[pod(number) for number in range(begin, begin + 10_000)] for begin in (1, 5001, 1)]
    for pods in lists:
        began = time.thread_time()
        presence.replaced(pods)
        assert len(presence.pods) == 10_000
        assert presence.name_of(pods[7].uid)
        assert time.thread_time() - began < 0.2


def test_a_pods_object_is_cut_down_to_what_is_read_of_it() -> None:
    whole: JsonObject = {
        "metadata": {
            "name": "p",
            "namespace": "team",
            "uid": "u",
            "resourceVersion": "7",
            "annotations": {MIRROR: HASH, "big": "x" * 10_000},
            "managedFields": [{"fieldsV1": {"f:metadata": {}}}],
        },
        "spec": {"containers": [{"image": "i"}], "resourceClaims": [{"name": "a", "resourceClaimName": "plain"}, 7]},
        "status": {
            "phase": "Failed",
            "containerStatuses": [{"state": {"terminated": {}}, "image": "x" * 1000}],
            "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "made"}, {"name": "c"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "extended", "requestMappings": []},
        },
    }
    expected = NodePod("u", "team", "p", HASH, over=True)
    assert pod_of(whole) == pod_of(stripped(whole)) == expected
    assert len(str(stripped(whole))) < 600
    running: JsonObject = {**whole, "status": {**object_at(whole, "status"), "phase": "Running"}}
    expected = NodePod("u", "team", "p", HASH, claims=("plain", "made", "extended"), extended="extended")
    assert pod_of(running) == pod_of(stripped(running)) == expected
    assert len(str(stripped(running))) < 600
    leaving: JsonObject = {**running, "metadata": {**object_at(whole, "metadata"), "deletionTimestamp": "now"}}
    assert pod_of(leaving) == pod_of(stripped(leaving)) == replace(expected, ending=True)


def test_of_a_pod_that_names_thousands_of_claims_the_first_are_kept_and_the_others_counted() -> None:
    named: list[Json] = [{"name": f"c{n}", "resourceClaimName": f"claim-{n}"} for n in range(5000)]
    body: JsonObject = {"metadata": {"uid": "u"}, "spec": {"resourceClaims": named}}
    scheduled: list[Json] = [{"type": "PodScheduled", "status": "True"}]
    states: list[JsonObject] = [{"startTime": "2026-01-01T00:00:00Z"}, {"conditions": scheduled}]
    for state in states:
        whole: JsonObject = {**body, "status": state}
        pod = pod_of(whole)
        assert pod.claims == tuple(f"claim-{n}" for n in range(MOST_CLAIMS))
        assert pod.unlisted == 5000 - MOST_CLAIMS
        assert pod_of(stripped(whole)) == pod


def test_a_pod_that_nobody_but_its_author_bound_here_or_that_is_over_keeps_no_names() -> None:
    named: list[Json] = [{"name": f"c{n}", "resourceClaimName": f"claim-{n}"} for n in range(500)]
    unscheduled: list[Json] = [{"type": "PodScheduled", "status": "False"}]
    states: list[JsonObject] = [{}, {"phase": "Pending"}, {"conditions": unscheduled}]
    for state in states:
        body: JsonObject = {"metadata": {"uid": "u"}, "spec": {"resourceClaims": named}, "status": state}
        assert pod_of(stripped(body)) == pod_of(body) == NodePod("u", "", "")
    refused: JsonObject = {"phase": "Failed", "reason": "OutOfcpu", "startTime": "2026-01-01T00:00:00Z"}
    body = {"metadata": {"uid": "u"}, "spec": {"resourceClaims": named}, "status": refused}
    assert pod_of(body) == pod_of(stripped(body)) == NodePod("u", "", "", over=True)


def test_what_no_claim_can_be_called_is_not_kept() -> None:
    words = ["x" * 254, "x" * 1_000_000, "A", "a b", "-a", "a/b", "", "\n"]
    named: list[Json] = [{"name": "c", "resourceClaimName": word} for word in [*words, "a.b-c"]]
    pod = pod_of({"metadata": {"uid": "u"}, "spec": {"resourceClaims": named}, "status": {"startTime": "t"}})
    assert (pod.claims, pod.unlisted) == (("a.b-c",), 0)


def test_what_is_no_pod_is_read_as_nothing() -> None:
    broken: list[JsonObject] = [
        {},
        {"metadata": [], "spec": 1, "status": "x"},
        {"spec": {"resourceClaims": "c"}, "status": {"containerStatuses": {}, "extendedResourceClaimStatus": []}},
    ]
    for body in broken:
        assert pod_of(stripped(body)) == pod_of(body) == NodePod("", "", "")
    presence, _ = synced(NodePod("", "", ""))
    assert presence.pods == ()


def test_nobody_keeps_another_pod_from_being_gone_by_a_pod_that_says_to_be_its_mirror() -> None:
    victim = pod(1)
    presence, _ = synced(victim, pod(2, static=uid(1)))
    assert presence.gone(uid(1)) is False
    presence.applied(pod(1, over=True))
    assert presence.gone(uid(1)) is True
    presence.deleted(victim)
    assert presence.gone(uid(1)) is True
    presence.applied(pod(3, static=uid(1)))
    assert presence.gone(uid(1)) is True
    presence.replaced([pod(3, static=uid(1))])
    assert presence.gone(uid(1)) is True


def test_of_a_mirror_pod_only_what_can_be_a_uid_is_kept() -> None:
    for text in ("x" * 262_144, "x" * 65, "a b", "\n", "a/b"):
        body: JsonObject = {"metadata": {"uid": "u", "annotations": {MIRROR: text}}}
        assert pod_of(stripped(body)) == pod_of(body) == NodePod("u", "", "")
        assert len(str(stripped(body))) < 200


Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["make", "delete", "end", "hear", "relist", "list", "answer", "ask"]), st.integers(0, 9)),
    max_size=80,
)


class _Server:
    """An API server whose watch lags, and whose lists reach us later than they were made."""

    def __init__(self) -> None:
        self.presence, self.clock = synced()
        self.pods: dict[int, NodePod] = {}
        self.made = 0
        self.history: list[tuple[str, NodePod]] = []
        self.heard = 0
        self.lists: list[tuple[float, tuple[NodePod, ...]]] = []

    def step(self, step: Step) -> None:
        self.clock.now += 1
        what, number = step
        there = sorted(self.pods)
        chosen = there[number % len(there)] if there else None
        match what:
            case "make":
                self.made += 1
                self._set(self.made, pod(self.made))
            case "delete" if chosen is not None:
                self.history.append(("deleted", self.pods.pop(chosen)))
            case "end" if chosen is not None:
                self._set(chosen, pod(chosen, over=True))
            case "hear" if self.heard < len(self.history):
                self._tell(*self.history[self.heard])
                self.heard += 1
            case "relist":
                # From anywhere between what was heard and now.
                self.heard = min(len(self.history), self.heard + number)
                self.presence.replaced(self._at(self.heard))
            case "list":
                self.lists.append((self.clock.now, tuple(self.pods.values())))
            case "answer" if self.lists:
                self.presence.listed(*self.lists.pop(0))
            case "ask":
                for asked in range(1, self.made + 1):
                    self.presence.gone(uid(asked))

    def _set(self, number: int, each: NodePod) -> None:
        self.pods[number] = each
        self.history.append(("applied", each))

    def _tell(self, kind: str, each: NodePod) -> None:
        if kind == "applied":
            self.presence.applied(each)
        else:
            self.presence.deleted(each)

    def _at(self, version: int) -> tuple[NodePod, ...]:
        there: dict[str, NodePod] = {}
        for kind, each in self.history[:version]:
            if kind == "applied":
                there[each.uid] = each
            else:
                del there[each.uid]
        return tuple(there.values())


@given(STEPS)
def test_whoever_is_there_is_never_gone_and_whoever_is_not_is_in_the_end(steps: list[Step]) -> None:
    server = _Server()
    for step in steps:
        server.step(step)
        for each in server.pods.values():
            assert each.over or not server.presence.gone(each.uid), step
    while server.heard < len(server.history):
        server.step(("hear", 0))
    server.lists.clear()
    server.clock.now += LOOK_AGAIN
    for last in ("ask", "list", "answer"):
        server.step((last, 0))
    there = {each.uid for each in server.pods.values() if not each.over}
    assert {each.uid for each in server.presence.pods} == there
    assert all(server.presence.gone(uid(n)) == (uid(n) not in there) for n in range(1, server.made + 1))


def test_a_pod_on_the_nodes_network_is_known_as_such() -> None:
    body: JsonObject = {"metadata": {"uid": uid(1), "name": "p1", "namespace": "team"}, "spec": {"hostNetwork": True}}
    assert pod_of(body).host_network
    assert pod_of(stripped(body)).host_network
    assert not pod_of(stripped({**body, "spec": {"hostNetwork": False}})).host_network
    assert not pod_of(stripped({**body, "spec": {}})).host_network
