"""Requests: what is asked, what comes back, what is tried again, and what every failure says."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kube.access import Access, Certificate, Credential, FixedCredentials, in_cluster
from kube.backoff import BackoffPolicy
from kube.bodies import path_of
from kube.client import Client, RequestLimits
from kube.errors import (
    BadAnswer,
    BadRequest,
    CertificateRefused,
    Closed,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    RequestError,
    ServerFault,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    WriteConflict,
)
from tests.kube.authority import Authority, KeyPair
from tests.kube.conftest import client, client_of
from tests.kube.server import AT_ONCE, CannedAnswer, StubApiServer, refused

NODES = "/api/v1/nodes"


def environment(server: StubApiServer) -> dict[str, str]:
    return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)}


def test_an_object_is_read(server: StubApiServer) -> None:
    server.answers.append(CannedAnswer.of({"kind": "Node", "metadata": {"name": "a"}}))
    assert client_of(server).get(f"{NODES}/a") == {"kind": "Node", "metadata": {"name": "a"}}
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("GET", "/api/v1/nodes/a")
    assert asked.headers["Authorization"] == "Bearer word"
    assert asked.headers["Accept"] == "application/json"
    assert asked.headers["User-Agent"] == "ostler"


def test_a_query_is_escaped(server: StubApiServer) -> None:
    client_of(server).get(NODES, {"fieldSelector": "spec.nodeName=a&b"})
    assert server.asked[0].path == "/api/v1/nodes?fieldSelector=spec.nodeName%3Da%26b"


def test_path_parts_are_escaped() -> None:
    assert path_of("api", "v1", "nodes", "a/../b?c") == "/api/v1/nodes/a%2F..%2Fb%3Fc"


def test_bodies_travel_as_json_with_their_content_type(server: StubApiServer) -> None:
    asks = client_of(server)
    asks.create("/api/v1/namespaces/default/events", {"kind": "Event", "message": "ä"})
    asks.patch("/x", {"count": 2})
    asks.request("PATCH", "/y", body=[{"op": "remove", "path": "/a"}], content_type="application/json-patch+json")
    created, merged, patched = server.asked
    assert created.body == {"kind": "Event", "message": "ä"}
    assert created.headers["Content-Type"] == "application/json"
    assert (merged.body, merged.headers["Content-Type"]) == ({"count": 2}, "application/merge-patch+json")
    assert patched.headers["Content-Type"] == "application/json-patch+json"


def test_an_empty_answer_is_an_empty_object(server: StubApiServer) -> None:
    server.answers.append(CannedAnswer(200, b" \n"))
    assert client_of(server).get("/x") == {}


def test_one_connection_serves_all_requests(server: StubApiServer) -> None:
    asks = client_of(server)
    server.answers.append(refused(404, "NotFound", "no"))
    with pytest.raises(NotFound):
        asks.get("/x")
    for _ in range(5):
        asks.get("/x")
    assert len({asked.port for asked in server.asked}) == 1


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (400, "BadRequest", BadRequest),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "Conflict", WriteConflict),
        (410, "Expired", Gone),
        (422, "Invalid", Invalid),
        (418, "Teapot", RequestError),
        (500, "InternalError", ServerFault),
    ],
)
def test_a_refusal_is_an_error_of_its_own_with_all_fields(
    server: StubApiServer, status: int, reason: str, kind: type[RequestError]
) -> None:
    server.answers.append(refused(status, reason, "because"))
    with pytest.raises(RequestError) as caught:
        client_of(server).create("/x", {})
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.reason, error.message) == (status, reason, "because")
    assert (error.method, error.path) == ("POST", "/x")
    assert str(error) == f"POST /x: {status} {reason}: because"
    assert len(server.asked) == 1


def test_already_exists_is_told_from_a_lost_update(server: StubApiServer) -> None:
    for reason, expected in (("AlreadyExists", True), ("Conflict", False)):
        server.answers.append(refused(409, reason, "there"))
        with pytest.raises(WriteConflict) as caught:
            client_of(server).create("/x", {})
        assert caught.value.already_exists is expected


def test_401_names_the_credential_and_what_to_check(server: StubApiServer) -> None:
    server.respond = lambda _: refused(401, "Unauthorized", "Unauthorized")
    with pytest.raises(Unauthorized) as caught:
        client_of(server).get("/x")
    assert str(caught.value) == (
        "GET /x: 401 Unauthorized: the API server does not accept the test's token (Unauthorized); check that it is "
        "valid and for this server"
    )
    assert len(server.asked) == 2


def test_a_rotated_token_is_used_at_once(secure: StubApiServer, account: Path) -> None:
    asks = client(in_cluster(environment(secure), account))
    asks.get("/x")
    (account / "token").write_text("second-token")
    asks.get("/x")
    assert [asked.headers["Authorization"] for asked in secure.asked] == ["Bearer first-token", "Bearer second-token"]


@pytest.mark.parametrize("attempts", [None, 1])
def test_a_token_that_ended_meanwhile_is_looked_for_again(
    secure: StubApiServer, account: Path, attempts: int | None
) -> None:
    def respond(asked: object) -> CannedAnswer:
        if secure.asked[-1].headers["Authorization"] == "Bearer second-token":
            return CannedAnswer.of({"kind": "Node"})
        (account / "token").write_text("second-token")
        return refused(401, "Unauthorized", "Unauthorized")

    secure.respond = respond
    asks = client(in_cluster(environment(secure), account))
    assert asks.get("/x", attempts=attempts) == {"kind": "Node"}
    assert len(secure.asked) == 2


@pytest.mark.parametrize("headers", [{}, {"Retry_After": "0"}])
def test_429_is_asked_again(server: StubApiServer, headers: dict[str, str]) -> None:
    server.answers.extend([refused(429, "TooManyRequests", "busy", **headers)] * 2)
    server.answers.append(CannedAnswer.of({"ok": True}))
    assert client_of(server).create("/x", {}) == {"ok": True}
    assert len(server.asked) == 3


def test_attempts_are_counted(server: StubApiServer) -> None:
    server.respond = lambda _: refused(429, "TooManyRequests", "busy", Retry_After="0")
    with pytest.raises(TooManyRequests) as caught:
        client_of(server, RequestLimits(attempts=3)).get("/x")
    assert len(server.asked) == 3
    assert caught.value.retry_after == 0


def test_reading_is_tried_again_after_any_5xx_and_writing_only_where_the_server_asks_for_it(
    server: StubApiServer,
) -> None:
    server.answers.append(refused(500, "InternalError", "etcd"))
    assert client_of(server).get("/x") == {}
    server.answers.append(refused(500, "InternalError", "etcd"))
    with pytest.raises(ServerFault):
        client_of(server).create("/x", {})
    server.answers.append(refused(503, "ServiceUnavailable", "starting", Retry_After="1"))
    assert client_of(server).create("/x", {}) == {}


def test_a_lost_answer_is_tried_again_when_reading_only(server: StubApiServer) -> None:
    server.answers.append(CannedAnswer(hang_up=True))
    assert client_of(server).get("/x") == {}
    server.answers.append(CannedAnswer(hang_up=True))
    with pytest.raises(Unreachable) as caught:
        client_of(server).create("/x", {})
    assert caught.value.sent
    assert "the connection broke" in str(caught.value)
    assert len(server.requests("POST")) == 1


def test_a_server_that_is_not_there_is_named(free_port: int) -> None:
    url = f"http://127.0.0.1:{free_port}"
    with pytest.raises(Unreachable) as caught:
        client(Access(url, "a test", FixedCredentials("none"))).create("/x", {})
    assert str(caught.value) == f"POST /x: {url} cannot be reached (Connection refused)"
    assert not caught.value.sent


def test_a_name_that_is_not_known_is_said() -> None:
    with pytest.raises(Unreachable, match=r"http://no-such-host\.invalid cannot be reached \(.*(resol|known|name)"):
        client(
            Access("http://no-such-host.invalid", "a test", FixedCredentials("none")), RequestLimits(attempts=1)
        ).get("/x")


def test_a_server_that_comes_later_is_found(free_port: int) -> None:
    policy = BackoffPolicy(first=0.02, most=0.02)
    url = f"http://127.0.0.1:{free_port}"
    asks = Client(
        Access(url, "a test", FixedCredentials("none")),
        random=lambda: 0.5,
        limits=RequestLimits(attempts=400),
        policy=policy,
    )
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(asks.create("/x", {})))
    thread.start()
    with StubApiServer(port=free_port):
        thread.join(120)
    assert found == [{}]


def test_a_redirect_is_not_followed(server: StubApiServer) -> None:
    server.answers.append(CannedAnswer(302, b"", {"Location": "http://127.0.0.1:1/"}))
    with pytest.raises(BadAnswer, match="302: Found"):
        client_of(server).get("/x")


def test_another_authority_is_refused(secure: StubApiServer, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other", "other")
    access = Access(secure.url, "kubeconfig x", FixedCredentials("none"), ca=str(other.certificate))
    waits: list[float] = []

    def chance() -> float:
        waits.append(0.5)
        return 0.5

    with pytest.raises(CertificateRefused) as caught:
        Client(access, random=chance, policy=AT_ONCE).get("/x")
    assert waits == [], "asking again would change nothing"
    # The reason in between is OpenSSL's, and differs with what the server sends of its chain.
    assert str(caught.value).startswith(f"GET /x: the TLS handshake with {secure.url} failed (")
    assert str(caught.value).endswith("certificate); check CA, server name and certificate in kubeconfig x") or str(
        caught.value
    ).endswith("certificate chain); check CA, server name and certificate in kubeconfig x")
    assert secure.asked == []


def test_another_host_name_is_refused_unless_it_is_given(authority: Authority) -> None:
    pair = authority.server("elsewhere", "DNS:elsewhere")
    with StubApiServer(pair) as server:
        access = Access(server.url, "a test", FixedCredentials("none"), ca=str(authority.certificate))
        with pytest.raises(CertificateRefused, match="IP address mismatch"):
            client(access).get("/x")
        named = Access(
            server.url, "a test", FixedCredentials("none"), ca=str(authority.certificate), server_name="elsewhere"
        )
        assert client(named).get("/x") == {}


def test_a_client_certificate_is_shown_and_its_successor_after_a_401(
    secure: StubApiServer, authority: Authority, tmp_path: Path
) -> None:
    def place(pair: KeyPair) -> None:
        (tmp_path / "current.pem").write_bytes(pair.certificate.read_bytes() + pair.key.read_bytes())

    first, second = authority.client("first"), authority.client("second")
    place(first)
    current = str(tmp_path / "current.pem")
    fixed = FixedCredentials("a certificate", Credential(certificate=Certificate(current, current)))
    asks = client(Access(secure.url, "a test", fixed, ca=str(authority.certificate)))
    asks.get("/x")
    place(second)
    secure.answers.append(refused(401, "Unauthorized", "it ended"))
    asks.get("/x")
    assert [name for asked in secure.asked for name in ("first", "second") if name in asked.certificate] == [
        "first",
        "first",
        "second",
    ]


def test_closing_ends_a_wait(server: StubApiServer) -> None:
    server.respond = lambda _: refused(429, "TooManyRequests", "busy", Retry_After="100")
    access = Access(server.url, "a test", FixedCredentials("none"))
    waits = threading.Event()

    def chance() -> float:
        """Asked for the length of a wait, just before it."""
        waits.set()
        return 0.5

    asks = Client(access, random=chance)
    caught: list[RequestError] = []

    def ask() -> None:
        try:
            asks.get("/x")
        except RequestError as error:
            caught.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert waits.wait(60)
    asks.close()
    thread.join(60)
    assert isinstance(caught[0], Closed)
    assert "closed while waiting after: busy" in str(caught[0])
    with pytest.raises(Closed, match="the client is closed"):
        asks.get("/x")


def test_a_caller_that_asks_again_itself_gets_the_first_failure(server: StubApiServer) -> None:
    server.respond = lambda _: refused(500, "InternalError", "not now")
    with pytest.raises(ServerFault):
        client_of(server).get("/x", attempts=1)
    assert len(server.asked) == 1


def test_as_many_connections_are_kept_as_are_asked_for(server: StubApiServer) -> None:
    threads, rounds = 12, 5
    barrier = threading.Barrier(threads)
    access = Access(server.url, "a test", FixedCredentials("none", Credential("")))
    asks = Client(access, random=lambda: 0.5, policy=AT_ONCE, connections=threads)
    together = threading.Barrier(threads)

    def respond(_: object) -> CannedAnswer:
        together.wait(60)
        return CannedAnswer()

    def ask() -> None:
        for _ in range(rounds):
            barrier.wait(60)
            asks.get("/x")

    server.respond = respond
    workers = [threading.Thread(target=ask) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(20)
    assert len(server.asked) == threads * rounds
    assert len({asked.port for asked in server.asked}) == threads
