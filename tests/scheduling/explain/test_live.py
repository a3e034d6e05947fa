"""Reading a cluster over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube.bodies import JsonObject
from kube.errors import ConfigurationError, ServerFault
from ostler.cli.main import main
from ostler.explain.access import AccessChoice, find_access
from ostler.explain.live import PAGE, ClusterScope, read_cluster
from scheduling.explain.state import DevicesNotServed, ExplainError, Kind, State, name_of
from tests.kube.conftest import client_of
from tests.kube.server import StubApiServer, refused
from tests.scheduling.explain.cluster import MadeCluster, paths, serving, status
from tests.scheduling.explain.objects import (
    allocated,
    claim,
    device_class,
    node,
    pod,
    resource_slice,
    taint_rule,
    template,
)

HOLDER = pod("holder", "other", nodeName="node-1")
CLAIM = allocated(claim("held", "other"), ("node-1", "gpu-0"), pods=("holder",))
OBJECTS = (
    device_class("gpu"), resource_slice("s", "node-1", "gpu-0"), taint_rule("t"), node("node-1"), CLAIM, HOLDER,
    claim("mine"), template("mine"), template("theirs", "other"), pod("idle"),
    status(pod("train", resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}]), phase="Pending"),
)  # fmt: skip


@pytest.fixture
def cluster() -> MadeCluster:
    return MadeCluster(*OBJECTS)


@pytest.fixture
def server(cluster: MadeCluster) -> Iterator[StubApiServer]:
    with serving(cluster) as made:
        yield made


def read(server: StubApiServer, wanted: ClusterScope | None = None, said: list[str] | None = None) -> State:
    client = client_of(server)
    try:
        return read_cluster(
            client, server.url, wanted or ClusterScope("team"), (said if said is not None else []).append
        )
    finally:
        client.close()


def names(state: State, kind: Kind) -> list[str]:
    return [name_of(body) for body in state.of(kind)]


def test_all_that_an_answer_takes_is_read_and_named(server: StubApiServer) -> None:
    state = read(server, ClusterScope("team", pods=("train",)))
    assert (state.server_version, state.origin) == ("v1.37.0", server.url)
    assert (names(state, Kind.CLASS), names(state, Kind.SLICE), names(state, Kind.NODE)) == (["gpu"], ["s"], ["node-1"])
    assert (names(state, Kind.TAINT_RULE), names(state, Kind.TEMPLATE)) == (["t"], ["mine"])
    assert names(state, Kind.CLAIM) == ["held", "mine"]
    assert {(body["apiVersion"], body["kind"]) for body in state.slices} == {("resource.k8s.io/v1", "ResourceSlice")}
    assert state.nodes[0]["apiVersion"] == "v1"
    assert state.whole == {Kind.CLASS, Kind.SLICE, Kind.NODE, Kind.TAINT_RULE, Kind.CLAIM}
    assert (state.missing, state.truncated) == ((), ())


def test_only_pods_asked_about_are_read(server: StubApiServer) -> None:
    state = read(server, ClusterScope("team", pods=("train",)))
    assert names(state, Kind.POD) == ["train"]
    assert "/api/v1/pods" not in paths(server)
    assert not [path for path in paths(server) if path.endswith("/team/pods")]


def test_for_a_claim_the_pods_that_wait_for_it_are_read(server: StubApiServer) -> None:
    state = read(server, ClusterScope("team", claims=("mine",)))
    assert names(state, Kind.POD) == ["train"]


def test_a_pod_that_is_not_there_is_no_error_here(server: StubApiServer) -> None:
    assert read(server, ClusterScope("team", pods=("gone",))).find(Kind.POD, "gone", "team") is None


def test_a_snapshot_reads_all_pods_with_claims(server: StubApiServer) -> None:
    state = read(server, ClusterScope(everything=True))
    assert names(state, Kind.POD) == ["train"]
    assert names(state, Kind.TEMPLATE) == ["mine", "theirs"]
    assert Kind.POD in state.whole


def test_a_snapshot_has_the_pods_that_take_devices_of_a_plugin_as_well(
    cluster: MadeCluster, server: StubApiServer
) -> None:
    for name, phase in (("busy", "Running"), ("over", "Succeeded")):
        body: Any = pod(name, nodeName="node-1")
        body["spec"]["containers"][0]["resources"] = {"limits": {"example.com/gpu": "1"}}
        cluster.objects.append({**body, "status": {"phase": phase}})
    before = names(read(server, ClusterScope(everything=True)), Kind.POD)
    assert ("busy" in before, "over" in before) == (True, False)
    assert "over" in names(read(server, ClusterScope(everything=True, running=True)), Kind.POD)


def test_lists_are_read_in_pages_and_progress_is_told(cluster: MadeCluster, server: StubApiServer) -> None:
    cluster.objects += [node(f"more-{number}") for number in range(PAGE + 10)]
    said: list[str] = []
    assert len(read(server, said=said).nodes) == PAGE + 11
    assert ["reading nodes", f"reading nodes ({PAGE} so far)"] == [line for line in said if "nodes" in line]


def test_a_list_that_expires_meanwhile_is_read_at_once(cluster: MadeCluster, server: StubApiServer) -> None:
    cluster.objects += [node(f"more-{number}") for number in range(PAGE + 10)]
    cluster.expired = True
    assert len(read(server).nodes) == PAGE + 11


def test_the_newest_served_version_is_read_and_becomes_v1(cluster: MadeCluster, server: StubApiServer) -> None:
    plurals = cluster.versions.pop("v1")
    cluster.versions = {
        "v1alpha3": ["devicetaintrules"],
        "v1beta1": [name for name in plurals if name != "devicetaintrules"],
    }
    beta: JsonObject = {"deviceClassName": "gpu", "name": "r", "allocationMode": "ExactCount", "count": 1}
    cluster.objects = [{**claim("c"), "spec": {"devices": {"requests": [beta]}}}, taint_rule("t")]
    state = read(server)
    assert state.claims[0]["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1  # type: ignore[index, call-overload]
    assert state.taint_rules[0]["apiVersion"] == "resource.k8s.io/v1"
    assert "/apis/resource.k8s.io/v1alpha3/devicetaintrules" in paths(server)


def test_a_kind_that_is_not_served_has_no_objects(cluster: MadeCluster, server: StubApiServer) -> None:
    cluster.versions["v1"].remove("devicetaintrules")
    state = read(server)
    assert (state.taint_rules, state.missing) == ((), ())
    assert Kind.TAINT_RULE in state.whole


def test_a_cluster_without_the_device_api_is_told_what_it_lacks(cluster: MadeCluster, server: StubApiServer) -> None:
    cluster.versions = {}
    with pytest.raises(DevicesNotServed) as caught:
        read(server)
    assert str(caught.value) == (
        f"{server.url} (v1.37.0) does not serve the API group resource.k8s.io: dynamic resource allocation (DRA) is on "
        "since Kubernetes 1.34; 1.32 and 1.33 have it with the feature gate DynamicResourceAllocation and "
        "--runtime-config=resource.k8s.io/v1beta1=true"
    )


def test_a_cluster_with_the_old_device_api_alone_is_told_so(cluster: MadeCluster, server: StubApiServer) -> None:
    cluster.versions = {"v1alpha3": cluster.versions["v1"]}
    with pytest.raises(
        DevicesNotServed, match="serves no resourceslices, resourceclaims, deviceclasses in a known version"
    ):
        read(server)


def test_forbidden_kinds_are_notes_with_the_missing_right(cluster: MadeCluster, server: StubApiServer) -> None:
    cluster.forbidden = {"nodes"}
    lack = read(server).lacks(Kind.NODE)
    assert str(lack) == (
        'nodes cannot be read: User "ann" cannot read "nodes"; '
        'grant your account the verb list on nodes of the API group "" with a ClusterRole'
    )


def test_forbidden_pods_are_notes_too(cluster: MadeCluster, server: StubApiServer) -> None:
    cluster.forbidden = {"pods"}
    state = read(server, ClusterScope("team", pods=("train",)))
    assert "the verb get on pods" in str(state.lacks(Kind.POD))
    assert "with a Role" in str(state.lacks(Kind.POD))
    assert state.truncated == ()


def test_without_the_right_to_all_claims_those_of_the_namespace_are_read(
    cluster: MadeCluster, server: StubApiServer
) -> None:
    cluster.forbidden = {"/apis/resource.k8s.io/v1/resourceclaims"}
    state = read(server)
    assert names(state, Kind.CLAIM) == ["mine"]
    assert state.missing == ()
    assert state.truncated[0].startswith(
        "claims outside namespace team could not be read, so devices that they hold look free: resourceclaims cannot "
    )


def test_a_server_that_fails_is_an_error(server: StubApiServer) -> None:
    server.respond = lambda _: refused(503, "ServiceUnavailable", "etcd is away")
    with pytest.raises(ServerFault, match="etcd is away"):
        read(server)


def test_managed_fields_and_images_are_dropped(cluster: MadeCluster, server: StubApiServer) -> None:
    big = status(node("big"), images=[{"names": ["x"]}], conditions=[], allocatable={"cpu": "1"})
    big["metadata"] = {"name": "big", "managedFields": [{"manager": "x"}]}
    cluster.objects = [big]
    (body,) = read(server).nodes
    assert body["metadata"] == {"name": "big"}
    assert body["status"] == {"conditions": [], "allocatable": {"cpu": "1"}}


def kubeconfig(path: Path, server: str = "http://127.0.0.1:1", namespace: str = "") -> Path:
    contexts = [{"name": name, "context": {"cluster": name, "namespace": namespace}} for name in ("a", "b")]
    clusters = [{"name": name, "cluster": {"server": f"{server}/{name}"}} for name in ("a", "b")]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"current-context": "a", "contexts": contexts, "clusters": clusters}))
    return path


def test_options_name_the_cluster_as_kubectl_does(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "one", namespace="team")
    home = kubeconfig(tmp_path / ".kube/config", "http://127.0.0.1:2")
    assert find_access(AccessChoice(path), {}).server.endswith(":1/a")
    assert find_access(AccessChoice(path, "b"), {}).server.endswith(":1/b")
    assert find_access(AccessChoice(path), {}).namespace == "team"
    assert find_access(
        AccessChoice(), {"KUBECONFIG": f"{tmp_path}/none:{path}", "HOME": str(tmp_path)}
    ).origin.startswith(str(path))
    assert find_access(AccessChoice(), {"HOME": str(tmp_path)}).origin.startswith(str(home))


def test_a_variable_that_names_no_file_is_not_passed_over(tmp_path: Path) -> None:
    kubeconfig(tmp_path / ".kube/config")
    with pytest.raises(ConfigurationError, match="No such file"):
        find_access(AccessChoice(), {"KUBECONFIG": str(tmp_path / "none"), "HOME": str(tmp_path)})


def test_without_any_cluster_it_is_said_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(
        ExplainError, match=r"no cluster is known: .* --kubeconfig or \$KUBECONFIG, or files with --from"
    ):
        find_access(AccessChoice(), {"HOME": str(tmp_path)}, tmp_path)


def test_in_a_pod_the_account_and_its_namespace_are_taken(account: Path) -> None:
    (account / "namespace").write_text("team\n")
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443", "HOME": "/nonexistent"}
    access = find_access(AccessChoice(), environment, account)
    assert (access.server, access.namespace) == ("https://10.0.0.1:443", "team")


@pytest.mark.parametrize(
    ("asked", "pods"),
    [
        ("pod/train", ["/api/v1/namespaces/team/pods/train"]),
        ("claim/mine", ["/api/v1/namespaces/team/pods"]),
        ("template/mine", []),
    ],
)
def test_only_the_pods_that_the_question_needs_are_read(
    asked: str, pods: list[str], server: StubApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = kubeconfig(tmp_path / "config", server.url)
    config.write_text(config.read_text().replace(f"{server.url}/a", server.url))
    assert main(["explain", asked, "-n", "team", "--kubeconfig", str(config)]) in (0, 1), capsys.readouterr().err
    assert [path for path in paths(server) if "/pods" in path] == pods
