"""The account of the agents, tried with its own token: it can do what the agent does and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from deploy.generate import NAMESPACE
from tests.cluster.chart.account import (
    BY_NODE_CALLS,
    CALLS,
    DRA_CALLS,
    DRIVER,
    HELD_PODS,
    NO_DRA,
    NO_NODE_STATUS,
    NODE_STATUS_CALLS,
    NUMBERS,
    OWN,
    PODS,
    SLICES,
    STATUS,
    UNBOUND,
    UNBOUND_DRA,
    UNBOUND_NODE_STATUS,
    evict_calls,
    held_objects,
)
from tests.cluster.chart.calls import BY_POLICY, AccountCall, outcomes, rights_of, wrong
from tests.cluster.chart.release import Release
from tests.cluster.chart.slice_calls import HELD, slice_calls, unbound_slice_calls
from tests.cluster.rig.api import MERGE, Object, RigApi
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.processes import wait_until
from tests.deploy.chart.rights import ALWAYS, BY_NAME, BY_NODE, DRA, EVENTS, NODE_STATUS

pytestmark = pytest.mark.timeout(1200)  # the first test may have to build the image


@pytest.fixture
def objects(cluster: RigCluster) -> Iterator[None]:
    """What calls are about."""
    api = cluster.api
    held = [*held_objects(), *((SLICES, body) for body in HELD.values())]
    for collection, body in held:
        api.create(collection, body)
        if "status" in body:
            api.request("PATCH", f"{collection}/{body['metadata']['name']}/status", {"status": body["status"]}, MERGE)
    yield
    for collection, body in held:
        api.delete(f"{collection}/{body['metadata']['name']}")


def token_for(api: RigApi, account: str) -> str:
    """A token of an account that is bound to no pod."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
    return str(api.create(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"})["status"]["token"])


def wrong_with_numbers(agents: RigApi, api: RigApi) -> dict[str, str]:
    """Calls about the Node's numbers with a wrong outcome, each asked while the Node had the numbers of the table.

    The kubelet reports its own numbers now and then, also of resources that an earlier test's plugins served.
    """
    found: dict[str, str] = {}
    for call in NODE_STATUS_CALLS:

        def is_asked(call: AccountCall = call) -> bool:
            before = api.request("PATCH", STATUS, NUMBERS, MERGE)
            outcome = outcomes(agents, [call])
            if api.get(STATUS)["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]:
                return False
            found.update(outcome)
            return True

        wait_until(f"{call} is asked between two reports of the kubelet", is_asked)
    return found


def published(api: RigApi) -> Object:
    """The slice that the agent has published; it is there without devices, too."""
    path = f"{SLICES}?fieldSelector=spec.driver={DRIVER},spec.nodeName={OWN}"
    wait_until("the agent has published a slice", lambda: len(api.items(path)) == 1)
    return api.items(path)[0]


def wait_policies(api: RigApi, calls: Sequence[AccountCall], prepare: Callable[[], object] = lambda: None) -> None:
    """The API server reads new policies a second or two after they were made; ``prepare`` comes before each look."""
    for path in {call.path for call in calls if call.answer == BY_POLICY}:
        first = next(call for call in calls if call.answer == BY_POLICY and call.path == path)

        def is_refused(first: AccountCall = first) -> bool:
            prepare()
            return first.outcome(api) == BY_POLICY

        wait_until("the policies are in force", is_refused)


@pytest.mark.usefixtures("objects")
def test_the_account_can_do_what_the_agent_does_and_nothing_else(
    release: Release, api: RigApi, node: RigNode, cluster: RigCluster
) -> None:
    assert node.name == OWN
    release.install()
    agents = release.api_as(release.token(node))
    unbound, anybody = (release.api_as(token_for(api, account)) for account in ("ostler", "default"))
    calls = [*CALLS, *NO_DRA, *NO_NODE_STATUS]
    wait_policies(agents, calls)
    assert wrong(agents, calls) == {}
    assert wrong(unbound, UNBOUND) == {}
    # Every account may ask who it is; what this one may besides is the table.
    assert rights_of(agents) - rights_of(anybody) == ALWAYS | EVENTS

    release.upgrade(values={"dra": {"enabled": True, "doorByNode": True}})
    # The token of before went with its pod.
    agents = release.api_as(release.token(node))
    mine = published(api)
    calls = [*CALLS, *DRA_CALLS, *BY_NODE_CALLS, *slice_calls(mine), *NO_NODE_STATUS]
    wait_policies(agents, calls)
    assert wrong(agents, calls) == {}
    assert wrong(unbound, [*UNBOUND, *UNBOUND_DRA, *unbound_slice_calls(mine)]) == {}
    assert rights_of(agents) - rights_of(anybody) == ALWAYS | EVENTS | DRA | BY_NODE

    release.upgrade(values={"dra": {"enabled": True, "evictByName": True}})
    agents = release.api_as(release.token(node))
    for body in HELD_PODS:
        # On the own node the kubelet waits for ever: there is no such image, and no such claim.
        api.create(PODS, body)
        api.request("PATCH", f"{PODS}/{body['metadata']['name']}/status", {"status": body["status"]}, MERGE)
    evictions = evict_calls(cluster.version)
    wait_policies(agents, evictions)
    assert wrong(agents, [*DRA_CALLS, *evictions]) == {}
    assert rights_of(agents) - rights_of(anybody) == ALWAYS | EVENTS | DRA | BY_NAME
    for body in HELD_PODS:
        api.delete(f"{PODS}/{body['metadata']['name']}", grace=0)

    release.upgrade(values={"patchAllocatable": {"enabled": True}})
    agents = release.api_as(release.token(node))
    # Again and again, and asked about first: the kubelet reports its own numbers now and then.
    wait_policies(agents, NODE_STATUS_CALLS, lambda: api.request("PATCH", STATUS, NUMBERS, MERGE))
    assert wrong_with_numbers(agents, api) == {}
    assert wrong(agents, [*CALLS, *NO_DRA]) == {}
    assert wrong(unbound, [*UNBOUND, *UNBOUND_NODE_STATUS]) == {}
    assert rights_of(agents) - rights_of(anybody) == ALWAYS | EVENTS | NODE_STATUS

    release.upgrade(values={"events": {"enabled": False}})
    assert rights_of(unbound) == rights_of(anybody)
    with pytest.raises(OSError, match="No such file"):
        release.token(node)
    assert release.ask("status")["ready"] is True
