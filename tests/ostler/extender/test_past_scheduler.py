"""Pods that the scheduler does not bind: which the extender binds past it, and which it never does."""

from __future__ import annotations

import pytest

from tests.making.extender import RunningExtender, gang
from tests.making.extender_cluster import Object, pod
from tests.waiting import until

CLAIMS = {"resourceClaims": [{"name": "nic", "resourceClaimName": "nic-0"}]}
VOLUME = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


def test_a_pod_that_the_scheduler_does_not_bind_is_bound_past_it_at_the_threshold(running: RunningExtender) -> None:
    late = pod("late")
    running.add(late)
    for _ in range(3):
        assert running.filter(late, "n0", "n1")["NodeNames"] == ["n0"]
    assert running.api.bindings == []
    assert running.filter(late, "n0", "n1")["NodeNames"] == ["n0"]
    until(lambda: running.api.bindings, "it is bound")
    running.settle()
    assert "already bound" in running.filter(late, "n0")["Error"]


def test_a_binding_past_the_scheduler_that_fails_is_told_on_the_pod(running: RunningExtender) -> None:
    running.api.refusals["pods/late/binding"] = (403, "no right to bind")
    late = pod("late")
    running.add(late)
    for _ in range(4):
        running.filter(late, "n0", "n1")
    until(lambda: running.api.events("ForceBindFailed"), "an event says so")
    (event,) = running.api.events("ForceBindFailed")
    assert event["message"].startswith(
        "The scheduler does not bind this pod to node n0; binding it past the scheduler failed: "
    )
    assert "no right to bind" in event["message"]


def test_a_placement_that_is_not_offered_any_more_is_bound_past_the_scheduler(running: RunningExtender) -> None:
    moved = pod("p")
    running.add(moved)
    assert running.filter(moved, "n0", "n1")["NodeNames"] == ["n0"]
    answer = running.filter(moved, "n1")
    assert answer["NodeNames"] is None
    reason = "the pod is placed on node n0, which the scheduler does not offer; the extender binds it"
    assert answer["FailedAndUnresolvableNodes"] == {"n1": reason}
    until(lambda: running.api.bindings, "it is bound")


def test_a_placement_on_a_node_that_vanished_is_bound_past_the_scheduler(running: RunningExtender) -> None:
    lost = pod("p")
    running.add(lost)
    running.filter(lost, "n0")
    running.api.delete("Node", "n0")
    running.settle()
    running.filter(lost, "n0")
    until(lambda: running.api.bindings, "it is bound")


@pytest.mark.parametrize(("more", "what"), [(CLAIMS, "resource claims (nic)"), (VOLUME, "unbound volumes (data)")])
def test_a_pod_that_only_the_scheduler_can_prepare_is_never_bound_past_it(
    running: RunningExtender, more: Object, what: str
) -> None:
    running.api.put(claim("data", bound=False))
    held = pod("p", pod_spec=more)
    running.add(held)
    for _ in range(5):
        assert running.filter(held, "n0", "n1")["NodeNames"] == ["n0"]
    until(lambda: running.api.events("ForceBindRefused"), "an event says so")
    (event,) = running.api.events("ForceBindRefused")
    assert event["message"] == (
        "The scheduler does not bind this pod to node n0, and the extender does not bind it past the scheduler "
        f"because it has {what}, which the scheduler must prepare first; see the scheduler's events on this pod"
    )
    involved = event["involvedObject"]
    assert (involved["kind"], involved["namespace"], involved["name"], involved["uid"]) == (
        "Pod",
        "default",
        "p",
        "uid-p",
    )
    assert running.api.bindings == []
    # Where its node is not offered it gets another one.
    assert running.filter(held, "n1")["NodeNames"] == ["n1"]
    assert running.bind(held, "n1") == ""


def test_a_pod_whose_volumes_are_bound_is_bound_past_the_scheduler(running: RunningExtender) -> None:
    running.api.put(claim("data", bound=True))
    late = pod("p", pod_spec=VOLUME)
    running.add(late)
    for _ in range(4):
        running.filter(late, "n0", "n1")
    until(lambda: running.api.bindings, "it is bound")


def test_a_gang_member_with_claims_waits_for_its_groups_node(running: RunningExtender) -> None:
    running.place(pod("g-0", spec=gang("g", 2)), "n0", "n1")
    member = pod("g-1", spec=gang("g", 2), pod_spec=CLAIMS)
    running.add(member)
    answer = running.filter(member, "n0")
    assert answer["FailedAndUnresolvableNodes"] == {
        "n0": "the pod's group has its cells on node n1, which the scheduler does not offer; the pod has resource "
        "claims or volumes, so the extender cannot bind it past the scheduler"
    }
    assert running.filter(member, "n1")["NodeNames"] == ["n1"]


def claim(name: str, *, bound: bool) -> Object:
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"volumeName": "pv"} if bound else {},
        "status": {"phase": "Bound" if bound else "Pending"},
    }
