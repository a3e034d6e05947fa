"""The extender's port: whatever a client sends or does not send, only its own connection ends."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from ostler.admin.http import AddressInvalid, listen
from ostler.extender import server as serving
from ostler.extender.server import ExtenderServer, HttpAnswer, is_local
from ostler.extender.tls import TlsContexts, TlsError, TlsFiles
from ostler.extender.wire import ExtenderError
from tests.kube.authority import Authority, KeyPair
from tests.waiting import until


def echo(method: str, path: str, body: bytes) -> HttpAnswer:
    if path == "/refused":
        raise ExtenderError("not this")
    if path == "/broken":
        raise ZeroDivisionError
    return HttpAnswer(200, {"method": method, "path": path, "size": len(body)})


@pytest.fixture
def port() -> Iterator[int]:
    made = ExtenderServer(listen("127.0.0.1:0"), echo)
    made.start()
    yield made.port
    made.close()


def talk(port: int, *pieces: bytes) -> bytes:
    """What the server answers to bytes, until it closes the connection."""
    with closing(socket.create_connection(("127.0.0.1", port))) as client:
        for piece in pieces:
            client.sendall(piece)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(65536), b""))


def ask(port: int, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as client:
        client.request(method, path, body)
        answer = client.getresponse()
        return answer.status, json.loads(answer.read() or b"null")


def test_one_connection_carries_many_requests(port: int) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as client:
        for size in (0, 10, 100_000):
            client.request("POST", "/x?y=z", b"a" * size)
            answer = client.getresponse()
            assert answer.getheader("Content-Type") == "application/json"
            assert json.loads(answer.read()) == {"method": "POST", "path": "/x", "size": size}


def test_every_method_reaches_its_path(port: int) -> None:
    assert ask(port, "DELETE", "/x")[1]["method"] == "DELETE"
    assert ask(port, "BREW", "/x")[1]["method"] == "BREW"


def test_errors_are_json_texts(port: int) -> None:
    assert ask(port, "GET", "/refused") == (400, "hivedscheduler: User Error: not this")
    status, text = ask(port, "GET", "/broken")
    assert (status, text) == (500, "hivedscheduler: Platform Error: the request failed; the extender's log says why")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n", b"400"),
        (b"GET / HTTP/9.9\r\n\r\n", b"505"),
        (b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"413"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"411"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nA: " + b"b" * 40_000 + b"\r\n\r\n", b"431"),
    ],
)
def test_what_is_no_request_of_a_scheduler_is_refused_and_the_next_client_is_served(
    port: int, request_bytes: bytes, status: bytes
) -> None:
    assert status in talk(port, request_bytes).partition(b"\r\n")[0][:60]
    assert ask(port, "GET", "/x")[0] == 200


def test_a_body_that_is_too_large_says_what_to_set(port: int) -> None:
    answer = talk(port, b"POST /v1/extender/filter HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n")
    assert b"has 99999999999 bytes; the limit is 67108864; set nodeCacheCapable: true" in answer


def test_a_client_that_leaves_in_the_middle_is_no_harm(port: int) -> None:
    assert talk(port, b"POST /x HTTP/1.1\r\nContent-Length: 100\r\n\r\nabc") == b""
    assert talk(port, b"POST /x HT").count(b"200") == 0
    assert ask(port, "GET", "/x")[0] == 200


def test_a_slow_client_is_ended(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "REQUEST_TIME", 0.05)
    with closing(socket.create_connection(("127.0.0.1", port))) as client:
        client.sendall(b"POST /x HTTP/1.1\r\nContent-Length: 100\r\n\r\nabc")
        assert client.recv(100) == b""


def test_a_flood_of_silent_clients_does_not_end_the_scheduler(port: int) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as scheduler:
        scheduler.request("GET", "/x")
        assert scheduler.getresponse().read()
        known = scheduler.sock
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
        assert ask(port, "GET", "/y")[0] == 200
        scheduler.request("GET", "/x")
        assert scheduler.getresponse().status == 200
        assert scheduler.sock is known
        for each in silent:
            each.close()


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("127.0.0.1:9096", True),
        ("127.9.9.9:1", True),
        ("localhost:9096", True),
        ("[::1]:9096", True),
        (":9096", False),
        ("0.0.0.0:9096", False),
        ("10.1.2.3:9096", False),
        ("node-1:9096", False),
    ],
)
def test_only_loopback_is_local(address: str, found: bool) -> None:
    assert is_local(address) is found


def test_an_address_without_a_port_is_refused() -> None:
    with pytest.raises(AddressInvalid, match="'9096' is not host:port"):
        is_local("9096")


class Secured:
    """A server with TLS, and clients of it."""

    def __init__(self, folder: Path, names: frozenset[str] = frozenset()) -> None:
        self.folder = folder
        self.authority = Authority(folder, "ca")
        pair = self.authority.server()
        self.files = TlsFiles(folder / "tls.crt", folder / "tls.key", self.authority.certificate, names)
        self.install(pair)
        self.contexts = TlsContexts(self.files)
        self.server = ExtenderServer(listen("127.0.0.1:0"), echo, self.contexts)
        self.server.start()

    def install(self, pair: KeyPair) -> None:
        for source, target in ((pair.certificate, self.files.certificate), (pair.key, self.files.key)):
            fresh = target.with_suffix(".new")
            fresh.write_bytes(source.read_bytes())
            fresh.rename(target)

    def connect(self, client: KeyPair | None) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        if client is not None:
            context.load_cert_chain(client.certificate, client.key)
        return http.client.HTTPSConnection("127.0.0.1", self.server.port, context=context, timeout=60)

    def ask(self, client: KeyPair | None) -> int:
        with closing(self.connect(client)) as connection:
            connection.request("GET", "/x")
            return connection.getresponse().status


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("tls"), frozenset({"system:kube-scheduler"}))
    yield made
    made.server.close()


def test_a_client_with_a_known_certificate_is_served(secured: Secured) -> None:
    assert secured.ask(secured.authority.client("system:kube-scheduler")) == 200


def test_clients_without_a_certificate_or_with_another_name_are_refused(secured: Secured) -> None:
    strangers = [None, secured.authority.client("somebody"), Authority(secured.folder / "other", "other").client("x")]
    for stranger in strangers:
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
            secured.ask(stranger)


def test_a_client_that_speaks_no_tls_is_no_harm(secured: Secured) -> None:
    with closing(socket.create_connection(("127.0.0.1", secured.server.port))) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        client.settimeout(60)
        with suppress(ConnectionError):
            assert b"200" not in client.recv(100)
    assert secured.ask(secured.authority.client("system:kube-scheduler")) == 200


def test_a_new_certificate_is_used_for_the_next_connection(secured: Secured) -> None:
    client = secured.authority.client("system:kube-scheduler")

    def serial() -> Any:
        with closing(secured.connect(client)) as connection:
            connection.connect()
            shown: Any = connection.sock
            return shown.getpeercert()["serialNumber"]

    before = serial()
    secured.install(secured.authority.server("again"))
    until(lambda: serial() != before, "the new certificate is shown")


def test_files_that_are_written_in_part_do_not_end_the_service(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    good = secured.files.certificate.read_bytes()
    secured.files.certificate.write_text("-----BEGIN CERT")
    assert secured.ask(secured.authority.client("system:kube-scheduler")) == 200
    assert "the new TLS files are not usable, the old ones stay in use" in caplog.text
    secured.files.certificate.write_bytes(good)
    assert secured.ask(secured.authority.client("system:kube-scheduler")) == 200


def test_tls_files_that_cannot_be_used_are_named_with_their_option(tmp_path: Path, secured: Secured) -> None:
    files = secured.files

    def problem(certificate: Path, key: Path, authority: Path) -> str:
        with pytest.raises(TlsError) as refused:
            TlsContexts(TlsFiles(certificate, key, authority))
        return str(refused.value)

    missing, empty = tmp_path / "missing", tmp_path / "empty"
    empty.write_text("")
    assert problem(missing, files.key, files.client_ca) == f"--tls-cert: {missing} is not a file; give a PEM file"
    assert (
        problem(files.certificate, missing, files.client_ca) == f"--tls-key: {missing} is not a file; give a PEM file"
    )
    both = f"--tls-cert, --tls-key: {files.certificate} and {empty} are not usable together ("
    fix = "give a certificate and its key without a password, both in PEM form"
    said = problem(files.certificate, empty, files.client_ca)
    assert said.startswith(both)
    assert said.endswith(fix)
    said = problem(files.certificate, files.key, empty)
    assert said.startswith(f"--tls-client-ca: {empty} contains no certificate in PEM form (")
    assert said.endswith("give the CA certificate that signs the scheduler's client certificate")


def test_large_bodies_have_a_bound_together_and_small_ones_are_always_taken(port: int) -> None:
    head = b"POST /x HTTP/1.1\r\nContent-Length: %d\r\n\r\n"
    with closing(socket.create_connection(("127.0.0.1", port))) as slow:
        slow.sendall(head % serving.MOST_BODY + b"a")

        def refused() -> bool:
            return b" 503 " in talk(port, head % (2 << 20)).partition(b"\r\n")[0]

        until(refused, "there is no room while the slow client sends its body")
        answer = talk(port, head % (2 << 20))
        assert b"the request body has 2097152 bytes, and there is no room for it while others are answered" in answer
        assert ask(port, "POST", "/x", b"a" * 1000)[0] == 200

    def taken() -> bool:
        # Of a refused body the server reads the beginning alone.
        with suppress(ConnectionError, http.client.HTTPException):
            return ask(port, "POST", "/x", b"a" * (2 << 20))[0] == 200
        return False

    until(taken, "the slow client is gone")
