"""Who the agent is to the API server: the node itself, as with the unit of systemd, or an account with a token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml

from deploy.generate import NAMESPACE
from tests.cluster.dra.claims import (
    CLAIMS,
    GPU_CLASS,
    NIC_CLASS,
    SLICES,
    Claims,
    allocated,
    claim,
    devices,
    nic_entries,
    request,
    template,
    user,
)
from tests.cluster.dra.conftest import GPUS, RunDriver
from tests.cluster.rig.api import MERGE, ApiRefused, Object, RigApi, RigCredentials
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.pods import RigPods, simple
from tests.cluster.rig.processes import wait_until
from tests.deploy.chart.rendering import of_kind, only, render

RECORDING, DEVICES = "h100-sxm-8", 18
NICS: Object = {"name": "ostler.dev/nic", "door": "dra", "devices": {"kind": ["nic", "rdma"]}}
PAIR = devices(request(GPU_CLASS), request(NIC_CLASS, "nic"))
ACCOUNT = "ostler"


def refused(api: RigApi, method: str, path: str, body: Object | None = None) -> str:
    """Why the API server refuses a call; fails the test when it does not."""
    with pytest.raises(ApiRefused) as caught:
        api.request(method, path, body, MERGE)
    return str(caught.value)


def test_the_nodes_own_identity_is_enough_for_everything_but_the_status_of_nics(
    cluster: RigCluster, node: RigNode, claims: Claims, pods: RigPods, run_driver: RunDriver
) -> None:
    """As the unit of systemd runs: with the kubelet's kubeconfig, which is what all tests of this folder use."""
    folder = cluster.authority.folder
    itself = cluster.api_as(RigCredentials(folder / f"{node.name}.crt", folder / f"{node.name}.key"))
    who = itself.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", REVIEW)["status"]["userInfo"]
    assert who["username"] == f"system:node:{node.name}"
    agent = run_driver(RECORDING, GPUS, NICS)
    claims.wait_slices(DEVICES)
    claims.create(template("pair", PAIR))
    claims.create(claim("unrelated"))
    found = pods.run(user("user", own="pair"))
    name = found["status"]["resourceClaimStatuses"][0]["resourceClaimName"]

    # Slices by the name of the node alone; claims one by one, of its own pods alone; their status not at all.
    assert len(itself.items(f"{SLICES}?fieldSelector=spec.nodeName={node.name}")) == 1
    assert "nodeName" in refused(itself, "GET", SLICES)
    assert itself.get(f"{CLAIMS}/{name}")["metadata"]["name"] == name
    assert "no relationship found" in refused(itself, "GET", f"{CLAIMS}/unrelated")
    assert "cannot list" in refused(itself, "GET", CLAIMS)
    assert "cannot patch" in refused(itself, "PATCH", f"{CLAIMS}/{name}/status", {"status": {}})

    (shown,) = agent.ask("claims")["claims"]
    assert (shown["state"], len(shown["devices"])) == ("prepared", 2)
    wait_until("it says what it may not", lambda: "resourceclaims/status" in agent.process.output)
    assert nic_entries(claims.get(name)) == []


REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


@dataclass(frozen=True, slots=True)
class _Account:
    """An account with the rights of the chart's; its tokens live as long as the pods that they are for."""

    cluster: RigCluster
    node: RigNode
    pods: RigPods

    def kubeconfig(self) -> str:
        """A kubeconfig on the node with a token file; its path there."""
        etc = self.node.folder / "etc-ostler"
        document = self.cluster.authority.document({"tokenFile": "/etc/ostler/token"})
        (etc / "account.kubeconfig").write_text(document)
        return "/etc/ostler/account.kubeconfig"

    def token_of(self, pod: str) -> str:
        """A token that is worth nothing once that pod is gone."""
        uid = self.pods.run(simple(pod, serviceAccountName=ACCOUNT))["metadata"]["uid"]
        bound = {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid}
        asked = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"boundObjectRef": bound, "expirationSeconds": 600},
        }
        path = f"/api/v1/namespaces/default/serviceaccounts/{ACCOUNT}/token"
        return str(self.cluster.api.create(path, asked)["status"]["token"])

    def use(self, token: str) -> None:
        """Put a token where the kubeconfig says, as the kubelet does it: the file is replaced."""
        path = self.node.folder / "etc-ostler" / "token"
        fresh = path.with_name("token.new")
        fresh.write_text(token)
        fresh.rename(path)

    def valid(self, token: str) -> bool:
        """Whether the API server takes a token."""
        asked = self.cluster.api_as(RigCredentials(token=token))
        try:
            asked.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", REVIEW)
        except ApiRefused as refusal:
            if refusal.status == 401:
                return False
            raise
        return True


@pytest.fixture
def account(cluster: RigCluster, node: RigNode, pods: RigPods) -> Iterator[_Account]:
    """Account, role, binding and policies of the chart, in the namespace of the tests."""
    documents = render({"dra": {"enabled": True}})
    kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", POLICY, f"{POLICY}Binding")
    chosen = [document for kind in kinds for document in of_kind(documents, kind)]
    assert only(documents, "ServiceAccount")["metadata"]["name"] == ACCOUNT
    text = yaml.safe_dump_all(chosen).replace(NAMESPACE, "default")
    cluster.kubectl("apply", "-f", "-", text=text)
    yield _Account(cluster, node, pods)
    cluster.kubectl("delete", "--ignore-not-found", "-f", "-", text=text)


POLICY = "ValidatingAdmissionPolicy"


def test_a_rotated_token_is_used_though_the_old_one_was_refused_before(
    api: RigApi, claims: Claims, pods: RigPods, account: _Account, run_driver: RunDriver
) -> None:
    first = account.token_of("first-holder")
    account.use(first)
    kubernetes = {"kubeconfig": account.kubeconfig(), "events": "off"}
    agent = run_driver(RECORDING, GPUS, NICS, kubernetes=kubernetes)
    claims.wait_slices(DEVICES)
    claims.create(template("pair", PAIR))
    found = pods.run(user("before", own="pair"))
    wait_until("the status tells of the NIC", lambda: bool(nic_entries(claims.of_pod(found))))
    process = agent.process.pid

    pods.delete("first-holder")
    wait_until("the token is worth nothing", lambda: not account.valid(first))
    pods.create(user("after", own="pair"))
    pods.wait_event("after", "FailedPrepareDynamicResources", "Unauthorized")
    assert len(agent.ask("claims")["claims"]) >= 1

    account.use(account.token_of("second-holder"))
    after = pods.wait_phase("after", "Running")
    wait_until("the status tells of that NIC, too", lambda: bool(nic_entries(claims.of_pod(after))))
    (stored,) = claims.slices()
    api.delete(f"{SLICES}/{stored['metadata']['name']}")
    wait_until("the watch goes on", lambda: [one["metadata"]["uid"] for one in claims.slices()] != [])
    claims.wait_slices(DEVICES)
    assert agent.process.pid == process
    assert len(set(allocated(claims.of_pod(found)) + allocated(claims.of_pod(after)))) == 4
