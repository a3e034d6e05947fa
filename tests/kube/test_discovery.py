"""What a server serves, by its own words."""

from __future__ import annotations

import pytest

from kube.discovery import Served, served, server_version
from kube.errors import ServerFault
from tests.kube.conftest import client_of
from tests.kube.server import Asked, CannedAnswer, StubApiServer, refused

GROUP = "resource.k8s.io"
VERSIONS = ("v1", "v1beta2", "v1beta1")


def serving(server: StubApiServer, versions: dict[str, list[str]]) -> None:
    def respond(asked: Asked) -> CannedAnswer:
        parts = asked.path.strip("/").split("/")
        if parts == ["apis", GROUP] and versions:
            return CannedAnswer.of({"versions": [{"version": version} for version in versions]})
        if parts[:2] == ["apis", GROUP] and parts[-1] in versions and versions[parts[-1]]:
            return CannedAnswer.of({"resources": [{"name": name} for name in versions[parts[-1]]]})
        return refused(404, "NotFound", "the server could not find the requested resource")

    server.respond = respond


def test_versions_are_looked_into_until_one_has_all_that_is_needed(server: StubApiServer) -> None:
    serving(server, {"v1beta1": ["slices", "claims"], "v1beta2": ["slices", "claims"], "v1": ["rules"], "v2": ["x"]})
    found = served(client_of(server), GROUP, VERSIONS, ["slices", "claims"])
    assert found.versions == {"v1", "v1beta1", "v1beta2", "v2"}
    assert found.found == {"v1": {"rules"}, "v1beta2": {"slices", "claims"}}
    assert [asked.path.rpartition("/")[2] for asked in server.asked] == [GROUP, "v1", "v1beta2"]


def test_without_a_need_all_versions_that_are_known_are_looked_into(server: StubApiServer) -> None:
    serving(server, {"v1": ["slices"], "v1beta1": ["slices", "claims"], "v2": ["x"]})
    found = served(client_of(server), GROUP, VERSIONS)
    assert list(found.found) == ["v1", "v1beta1"]


def test_a_group_that_is_not_there_has_nothing(server: StubApiServer) -> None:
    serving(server, {})
    assert served(client_of(server), GROUP, VERSIONS) == Served(has_group=False)


def test_a_version_that_goes_between_two_requests_is_left_out(server: StubApiServer) -> None:
    serving(server, {"v1": [], "v1beta1": ["slices"]})
    assert served(client_of(server), GROUP, VERSIONS, ["slices"]).found == {"v1beta1": {"slices"}}


@pytest.mark.parametrize("body", [{}, {"versions": "v1"}, {"versions": [1, {}, {"version": 2}]}])
def test_garbage_serves_nothing(server: StubApiServer, body: object) -> None:
    server.respond = lambda _: CannedAnswer.of(body)
    assert served(client_of(server), GROUP, VERSIONS).found == {}


def test_a_server_that_does_not_answer_is_an_error(server: StubApiServer) -> None:
    server.respond = lambda _: refused(503, "ServiceUnavailable", "starting")
    with pytest.raises(ServerFault):
        served(client_of(server), GROUP, VERSIONS)


def test_the_release_is_empty_where_it_is_not_for_us(server: StubApiServer) -> None:
    server.answers.extend((CannedAnswer.of({"gitVersion": "v1.37.0"}), refused(403, "Forbidden", "no")))
    assert [server_version(client_of(server)) for _ in range(2)] == ["v1.37.0", ""]
