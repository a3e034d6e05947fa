"""The resource API: objects are v1 whatever is served, and an answer means what it says."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from driver.resource_api.client import ResourceApi
from kube.backoff import BackoffPolicy
from kube.bodies import Json, JsonObject, object_at, text_at
from kube.errors import BadAnswer, Invalid, NotFound, NotServed, ServerFault, WriteConflict
from kube.reflector import Reflector
from ostler.agent.api_server import RecentProofs
from sandbox.apiserver.server import ApiServer
from scheduling.explain.state import objects_at
from tests.kube.server import Asked, CannedAnswer, StubApiServer, refused
from tests.kube.watched import Notes
from tests.making.resource_api import claim_named, client_of, slice_named
from tests.waiting import until

VERSIONS = ("v1", "v1beta2", "v1beta1")
OF_NODE = {"fieldSelector": "spec.driver=ostler.dev,spec.nodeName=node-1"}


@pytest.mark.parametrize("version", VERSIONS)
def test_slices_are_v1_whatever_version_is_served(version: str) -> None:
    with ApiServer(versions=(version,)) as server:
        api = ResourceApi(client_of(server.url))
        created = api.create_slice(slice_named("s", "gpu-0"))
        assert created["apiVersion"] == "resource.k8s.io/v1"
        assert object_at(created, "spec")["devices"] == [{"name": "gpu-0", "attributes": {"index": {"int": 0}}}]
        (listed,) = api.list_slices(OF_NODE)
        assert (listed["kind"], listed["apiVersion"]) == ("ResourceSlice", "resource.k8s.io/v1")
        assert listed["spec"] == created["spec"]
        wanted: JsonObject = {**listed, "spec": {**object_at(listed, "spec"), "devices": [{"name": "gpu-1"}]}}
        replaced = api.replace_slice(wanted)
        assert object_at(replaced, "spec")["devices"] == [{"name": "gpu-1"}]
        uid, changed = (text_at(replaced, "metadata", key) for key in ("uid", "resourceVersion"))
        api.delete_slice("s", uid=uid, resource_version=changed)
        assert api.list_slices(OF_NODE) == ()
        assert {request.version for request in server.requests if request.resource == "resourceslices"} == {version}
        assert api.version() == version


@pytest.mark.parametrize("version", VERSIONS)
def test_a_claim_is_read_and_its_status_written_in_v1(version: str) -> None:
    with ApiServer(versions=(version,)) as server:
        server.store.create("resourceclaims", claim_named("c"))
        api = ResourceApi(client_of(server.url))
        claim = api.claim("team", "c")
        assert claim is not None
        (request,) = objects_at(claim, "spec", "devices", "requests")
        assert text_at(request, "exactly", "deviceClassName") == "gpu.ostler.dev"
        reserved: Json = [{"resource": "pods", "name": "p", "uid": "u"}]
        results: Json = [{"request": "gpu", "driver": "ostler.dev", "pool": "node-1", "device": "gpu-0"}]
        status: JsonObject = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
        written = api.replace_claim_status({**claim, "status": status})
        assert written["apiVersion"] == "resource.k8s.io/v1"
        assert object_at(written, "status")["reservedFor"] == reserved
        with pytest.raises(WriteConflict):
            api.replace_claim_status({**claim, "status": {}})


def test_the_version_is_decided_once(words: StubApiServer) -> None:
    Upgrading(words, "v1beta2")
    api = ResourceApi(client_of(words.url))
    for _ in range(3):
        api.list_slices()
        api.claim("team", "c")
        api.claim("team", "none")
    root = "/apis/resource.k8s.io"
    assert [asked.path for asked in words.asked][:2] == [root, f"{root}/v1beta2"]
    assert len(words.asked) == 2 + 9


def test_an_assumed_version_costs_no_discovery_until_the_server_has_another(words: StubApiServer) -> None:
    server = Upgrading(words, "v1")
    api = ResourceApi(client_of(words.url), assumed="v1")
    root = "/apis/resource.k8s.io"
    api.list_slices()
    assert [asked.path.partition("?")[0] for asked in words.asked] == [f"{root}/v1/resourceslices"]
    server.version = "v1beta2"
    (listed,) = api.list_slices()
    assert (text_at(listed, "metadata", "name"), listed["apiVersion"]) == ("v1beta2", "resource.k8s.io/v1")
    assert api.version() == "v1beta2"


@pytest.mark.parametrize("ask", [ResourceApi.list_slices, lambda api: api.create_slice(slice_named("s"))])
def test_a_server_without_the_assumed_version_is_asked_which_it_has(
    words: StubApiServer, ask: Callable[[ResourceApi], object]
) -> None:
    Upgrading(words, "v1beta1")
    api = ResourceApi(client_of(words.url), assumed="v1")
    ask(api)
    assert api.version() == "v1beta1"


def test_the_own_node_is_read_once_for_all_who_prove_it_at_the_same_time(server: ApiServer) -> None:
    server.store.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
    checked: list[str] = []

    def check(node: JsonObject) -> None:
        checked.append(text_at(node, "metadata", "name"))

    proofs = RecentProofs()
    for api in (ResourceApi(client_of(server.url), proofs=proofs) for _ in range(2)):
        assert text_at(api.own_node("node-1", check), "metadata", "uid")
    assert (len(server.requests.of("get", "nodes")), checked) == (1, ["node-1"])
    without = ResourceApi(client_of(server.url))
    for _ in range(2):
        without.own_node("node-1", check)
    assert len(server.requests.of("get", "nodes")) == 3


def test_the_newest_version_is_taken_that_has_slices_and_claims() -> None:
    with ApiServer(versions=("v1beta1", "v1", "v1beta2")) as server:
        assert ResourceApi(client_of(server.url)).version() == "v1"


def test_a_server_without_dra_is_told_with_what_turns_it_on() -> None:
    with ApiServer(versions=()) as server:
        with pytest.raises(NotServed) as caught:
            ResourceApi(client_of(server.url)).list_slices()
        assert str(caught.value) == (
            f"{server.url} does not serve resourceslices and resourceclaims in v1, v1beta2, v1beta1 of the API group "
            "resource.k8s.io; dynamic resource allocation (DRA) is on since Kubernetes 1.34; 1.32 and 1.33 have it "
            "with the feature gate DynamicResourceAllocation and --runtime-config=resource.k8s.io/v1beta1=true"
        )


def test_where_dra_comes_later_it_is_found(words: StubApiServer) -> None:
    server = Upgrading(words, "")
    api = ResourceApi(client_of(words.url))
    with pytest.raises(NotServed):
        api.list_slices()
    server.version = "v1"
    assert len(api.list_slices()) == 1


def test_a_slice_that_changed_meanwhile_is_neither_replaced_nor_deleted(api: ResourceApi) -> None:
    created = api.create_slice(slice_named("s", "gpu-0"))
    api.replace_slice({**created, "spec": {**object_at(created, "spec"), "devices": []}})
    with pytest.raises(WriteConflict):
        api.replace_slice(created)
    with pytest.raises(WriteConflict):
        api.delete_slice("s", resource_version=text_at(created, "metadata", "resourceVersion"))
    with pytest.raises(WriteConflict):
        api.delete_slice("s", uid="another")


def test_a_slice_that_is_there_already_and_one_against_the_rules_are_told_apart(api: ResourceApi) -> None:
    api.create_slice(slice_named("s"))
    with pytest.raises(WriteConflict) as caught:
        api.create_slice(slice_named("s"))
    assert caught.value.already_exists
    with pytest.raises(Invalid, match=r"spec\.devices"):
        api.create_slice(slice_named("t", "GPU 0"))


def test_what_is_not_there_is_not_found_without_another_look_at_the_version(
    server: ApiServer, api: ResourceApi
) -> None:
    api.version()
    before = len(server.requests)
    assert api.claim("team", "none") is None
    for ask in (lambda: api.delete_slice("none"), lambda: api.replace_slice(slice_named("none", version="1"))):
        with pytest.raises(NotFound):
            ask()
    with pytest.raises(NotFound):
        api.node("none")
    assert len(server.requests) == before + 4


def test_a_node_is_read(server: ApiServer, api: ResourceApi) -> None:
    server.store.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
    assert text_at(api.node("node-1"), "metadata", "uid")


class Upgrading:
    """Serves one version at a time, of which a test says which."""

    def __init__(self, server: StubApiServer, version: str) -> None:
        self.version = version
        self.claims = {"c"}
        server.respond = self.answer

    def answer(self, asked: Asked) -> CannedAnswer:
        path = asked.path.partition("?")[0]
        parts = path.strip("/").split("/")
        if parts == ["apis", "resource.k8s.io"]:
            return CannedAnswer.of({"versions": [{"version": self.version}]})
        if parts[2] != self.version:
            # What a server says of a version that it does not have, word by word.
            return CannedAnswer(404, b"404 page not found\n")
        if len(parts) == 3:
            return CannedAnswer.of({"resources": [{"name": "resourceslices"}, {"name": "resourceclaims"}]})
        if asked.method == "POST":
            return CannedAnswer.of(asked.body, 201)
        if parts[-2] == "resourceclaims":
            if parts[-1] not in self.claims:
                return refused(404, "NotFound", f'resourceclaims.resource.k8s.io "{parts[-1]}" not found')
            return CannedAnswer.of({"metadata": {"name": parts[-1]}})
        return CannedAnswer.of({"metadata": {"resourceVersion": "4"}, "items": [{"metadata": {"name": parts[2]}}]})


@pytest.mark.parametrize("new", ["v1beta2", "v1"])
def test_a_version_that_went_in_an_upgrade_is_replaced_by_the_one_that_is_served_now(
    words: StubApiServer, new: str
) -> None:
    server = Upgrading(words, "v1beta1")
    api = ResourceApi(client_of(words.url))
    assert len(api.list_slices()) == 1
    server.version = new
    (listed,) = api.list_slices()
    assert (text_at(listed, "metadata", "name"), listed["apiVersion"]) == (new, "resource.k8s.io/v1")
    server.version = "v1beta1"
    assert api.create_slice(slice_named("s"))["apiVersion"] == "resource.k8s.io/v1"
    assert words.asked[-1].body["apiVersion"] == "resource.k8s.io/v1beta1"


def test_a_list_that_is_not_found_in_the_version_that_is_served_is_asked_for_once(words: StubApiServer) -> None:
    server = Upgrading(words, "v1")
    api = ResourceApi(client_of(words.url))
    api.version()
    usual = words.respond
    words.respond = lambda asked: CannedAnswer(404, b"404 page not found\n") if "slices" in asked.path else usual(asked)
    with pytest.raises(NotFound):
        api.list_slices()
    assert server.version == "v1"
    assert len([asked for asked in words.asked if "slices" in asked.path]) == 1


def test_a_claim_is_not_gone_because_its_version_is(words: StubApiServer) -> None:
    server = Upgrading(words, "v1beta1")
    api = ResourceApi(client_of(words.url))
    assert api.claim("team", "c") is not None
    server.version = "v1"
    assert api.claim("team", "c") is not None
    server.claims.clear()
    assert api.claim("team", "c") is None


@pytest.mark.parametrize(
    "answer",
    [
        CannedAnswer(404, b"404 page not found\n"),
        refused(404, "NotFound", "the server could not find the requested resource"),
        refused(404, "NotFound", 'namespaces "c" is being looked for'),
    ],
)
def test_a_404_that_does_not_name_the_claim_is_an_error_and_no_proof(
    words: StubApiServer, answer: CannedAnswer
) -> None:
    server = Upgrading(words, "v1")
    api = ResourceApi(client_of(words.url))
    api.version()
    words.respond = lambda asked: answer if "resourceclaims" in asked.path else server.answer(asked)
    with pytest.raises(NotFound):
        api.claim("team", "c")


def test_where_discovery_is_not_for_us_the_newest_version_is_tried(words: StubApiServer) -> None:
    server = Upgrading(words, "v1")
    words.respond = lambda asked: (
        refused(403, "Forbidden", "no") if asked.path == "/apis/resource.k8s.io" else server.answer(asked)
    )
    assert len(ResourceApi(client_of(words.url)).list_slices()) == 1


def test_a_failed_look_for_the_version_is_not_remembered(words: StubApiServer) -> None:
    Upgrading(words, "v1")
    words.answers.extend((refused(503, "ServiceUnavailable", "starting"),) * 2)
    api = ResourceApi(client_of(words.url))
    with pytest.raises(ServerFault):
        api.version()
    assert api.version() == "v1"


def test_an_object_of_another_kind_is_a_bad_answer(words: StubApiServer) -> None:
    server = Upgrading(words, "v1")
    pod = CannedAnswer.of({"apiVersion": "v1", "kind": "Pod"})
    words.respond = lambda asked: pod if "resourceclaims" in asked.path else server.answer(asked)
    with pytest.raises(BadAnswer, match="the answer is not a ResourceClaim"):
        ResourceApi(client_of(words.url)).claim("team", "c")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_reflector_tells_of_slices_as_v1(version: str) -> None:
    with ApiServer(versions=(version,)) as server:
        api = ResourceApi(client_of(server.url))
        api.create_slice(slice_named("old", "gpu-0"))
        notes = Notes()
        reflector = Reflector(api.slices(OF_NODE), notes, random=lambda: 0.5)
        reflector.start()
        assert reflector.synced.wait(60)
        created = api.create_slice(slice_named("new", "gpu-1"))
        api.create_slice(slice_named("other", nodeName="node-2"))
        api.delete_slice("old")
        until(lambda: len(notes.heard) == 3)
        assert [text.partition(" @")[0] for text in notes.heard] == ["replaced old", "applied new", "deleted old"]
        assert [one["apiVersion"] for one in notes.objects] == ["resource.k8s.io/v1"] * 2
        assert notes.objects[1]["spec"] == created["spec"]
        assert reflector.stop(10)
        api.close()


def test_a_reflector_follows_an_upgrade(words: StubApiServer) -> None:
    server = Upgrading(words, "v1beta1")
    api = ResourceApi(client_of(words.url))
    notes = Notes()
    policy = BackoffPolicy(first=0.01, most=0.02)
    reflector = Reflector(api.slices(), notes, random=lambda: 0.5, policy=policy)
    assert reflector.status().failing == ""
    reflector.start()
    until(reflector.synced.is_set)
    server.version = "v1"
    until(lambda: "replaced v1 @4" in notes.heard)
    assert reflector.stop(10)


def test_paths_for_people_leave_the_version_open_until_it_is_known(api: ResourceApi) -> None:
    slices = api.slices()
    assert slices.path == "/apis/resource.k8s.io/*/resourceslices"
    slices.read_whole()
    assert slices.path == "/apis/resource.k8s.io/v1/resourceslices"


def test_of_a_claim_nothing_is_kept_of_which_its_author_may_write_any_number(words: StubApiServer) -> None:
    many = range(20_000)
    claim = json.dumps(
        {
            "metadata": {
                "name": "c",
                "uid": "u",
                "finalizers": [f"a/{n}" for n in many],
                "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": str(n)} for n in many],
            },
            "spec": {
                "devices": {
                    "requests": [{"name": "gpu", "exactly": {"capacity": {"requests": {f"c{n}": "1" for n in many}}}}],
                    "constraints": [{"matchAttribute": f"a.b/c{n}"} for n in many],
                }
            },
        }
    ).encode()
    serving = Upgrading(words, "v1").answer
    words.respond = lambda asked: CannedAnswer(body=claim) if asked.path.endswith("/c") else serving(asked)
    read = ResourceApi(client_of(words.url)).claim("team", "c")
    assert read is not None
    assert (read["metadata"], read["spec"]) == (
        {"name": "c", "uid": "u"},
        {"devices": {"requests": [{"name": "gpu", "exactly": {}}]}},
    )


@pytest.mark.parametrize("levels", [1500, 100_000])
def test_of_a_claim_what_users_write_into_it_is_not_read_and_its_parameters_to_a_bounded_depth(
    words: StubApiServer, levels: int
) -> None:
    parameters = b'{"a":' * levels + b"1" + b"}" * levels
    config = b'[{"opaque":{"driver":"ostler.dev","parameters":%b}}]' % parameters
    claim = (
        b'{"metadata":{"name":"c","uid":"u","labels":{"a":"b"},"annotations":{"a":"%b",'
        b'"resource.kubernetes.io/pod-claim-name":"gpu"}},"spec":{"devices":{"config":%b,"requests":[{"name":"gpu",'
        b'"exactly":{"deviceClassName":"x","selectors":[{"cel":{"expression":"%b"}}]}}]}},'
        b'"status":{"allocation":{"devices":{"results":[{"driver":"ostler.dev"}],"config":%b}}}}'
    ) % (b"x" * (1 << 20), config, b"y" * (1 << 20), config)
    serving = Upgrading(words, "v1").answer
    words.respond = lambda asked: CannedAnswer(body=claim) if asked.path.endswith("/c") else serving(asked)
    read = ResourceApi(client_of(words.url)).claim("team", "c")
    assert read is not None
    assert read["metadata"] == {
        "name": "c", "uid": "u", "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"}
    }  # fmt: skip
    assert read["spec"] == {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "x"}}]}}
    devices = object_at(read, "status", "allocation", "devices")
    assert devices["results"] == [{"driver": "ostler.dev"}]
    assert json.dumps(devices).count("{") < 70
