"""Whether the server keeps device taints, asked by a dry run that leaves nothing behind."""

from __future__ import annotations

import pytest

from driver.node_watch.slice_features import asked
from driver.resource_api.client import ResourceApi
from node.door_policy import Taints
from sandbox.apiserver.server import GATES_OFF, ApiServer
from tests.kube.server import CannedAnswer, StubApiServer
from tests.making.resource_api import client_of

DRIVER, NODE = "ostler.dev", "node-1"


def api_of(url: str) -> ResourceApi:
    return ResourceApi(client_of(url, attempts=1))


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_a_server_that_keeps_taints_says_so_in_every_version_of_the_api(version: str) -> None:
    with ApiServer(versions=(version,)) as server:
        api = api_of(server.url)
        support = asked(api, DRIVER, NODE, "v1.36.0")
        assert (support.taints, support.server) == (Taints.KEPT, "v1.36.0")
        assert support.text == "the API server (v1.36.0) keeps device taints"
        (request,) = server.requests.of("create")
        assert (request.query, request.version, request.code) == ({"dryRun": "All"}, version, 201)
        assert server.store.list("resourceslices") == []
        api.close()


def test_a_server_whose_gate_is_off_drops_them() -> None:
    with ApiServer(gates=GATES_OFF) as server:
        api = api_of(server.url)
        support = asked(api, DRIVER, NODE, "v1.35.0")
        assert support.taints is Taints.DROPPED
        assert support.text == (
            "the API server (v1.35.0) drops device taints: they are on by default since Kubernetes 1.36, "
            "and before with the feature gate DRADeviceTaints of API server and scheduler"
        )
        api.close()


BEGIN = "cannot tell whether the API server keeps device taints"


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (
            403,
            (
                f"{BEGIN}: it refuses the dry run of a slice (no); give the agent's account the verb create on "
                "resourceslices of the API group resource.k8s.io"
            ),
        ),
        (400, f"{BEGIN}: POST /apis/resource.k8s.io/v1/resourceslices: 400 BadRequest: no"),
    ],
)
def test_a_refusal_is_no_answer_and_says_what_helps(status: int, text: str) -> None:
    with ApiServer() as server:
        server.faults.add("create", status=status, message="no")
        api = api_of(server.url)
        support = asked(api, DRIVER, NODE, "v1.36.0")
        assert (support.taints, support.text, support.server) == (Taints.UNKNOWN, text, "")
        api.close()


def test_a_server_that_is_away_is_asked_again() -> None:
    with ApiServer() as server:
        api = api_of(server.url)
        api.version()
        server.down()
        support = asked(api, DRIVER, NODE, "v1.36.0")
        assert support.taints is Taints.UNKNOWN
        assert support.text.startswith(f"{BEGIN}: POST /apis/")
        assert support.text.endswith("; the agent asks again")
        api.close()


def test_an_answer_that_is_no_slice_is_none() -> None:
    with StubApiServer() as words:
        groups = {"versions": [{"version": "v1"}]}
        plurals = {"resources": [{"name": "resourceslices"}, {"name": "resourceclaims"}]}
        answers: dict[str, object] = {"/apis/resource.k8s.io": groups, "/apis/resource.k8s.io/v1": plurals}
        words.respond = lambda request: CannedAnswer.of(answers.get(request.path, {"spec": {"devices": []}}))
        api = api_of(words.url)
        support = asked(api, DRIVER, NODE, "v1.36.0")
        assert (support.taints, support.text) == (
            Taints.UNKNOWN,
            "the API server answers the dry run of a slice with a different object; check its admission webhooks",
        )
        api.close()
