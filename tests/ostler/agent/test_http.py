"""Probes and metrics over HTTP: what they say, and that bad clients harm nobody."""

from __future__ import annotations

import resource
import select
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ostler.admin.http import MOST_CLIENTS, MOST_REQUEST, AddressInvalid, HttpPage, HttpServer, listen, split_address
from tests.waiting import until


@pytest.fixture
def server() -> Iterator[HttpServer]:
    pages = {
        "/healthz": lambda: HttpPage.lines(True, "ok"),
        "/readyz": lambda: HttpPage.lines(False, "not ready", "why"),
    }
    made = HttpServer(listen("127.0.0.1:0"), pages)
    made.start()
    yield made
    made.close()


def get(server: HttpServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_good_page_is_200_and_a_bad_one_503_with_its_reasons(server: HttpServer) -> None:
    assert get(server, "/healthz?verbose") == (200, "ok\n")
    assert get(server, "/readyz") == (503, "not ready\nwhy\n")


def test_an_unknown_page_names_the_known_ones(server: HttpServer) -> None:
    assert get(server, "/") == (404, "no such page; the pages are /healthz, /readyz\n")


def test_nothing_can_be_changed(server: HttpServer) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/healthz", data=b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)
    assert refused.value.code == 501
    refused.value.close()


def test_half_open_and_garbage_clients_harm_nobody(server: HttpServer) -> None:
    clients = []
    for data in (b"", b"GET /healthz", b"\x00\xff" * 1000, b"GET " + b"a" * 70_000):
        client = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        client.sendall(data)
        clients.append(client)
    assert get(server, "/healthz") == (200, "ok\n")
    for client in clients:
        client.close()
    assert get(server, "/healthz") == (200, "ok\n")


@pytest.mark.parametrize(
    ("address", "expected"),
    [("127.0.0.1:80", ("127.0.0.1", 80)), (":9410", ("0.0.0.0", 9410)), ("[::1]:9410", ("::1", 9410))],
)
def test_addresses_are_host_and_port(address: str, expected: tuple[str, int]) -> None:
    assert split_address(address) == expected


@pytest.mark.parametrize("address", ["", "9410", "localhost", "localhost:http"])
def test_other_addresses_are_refused_with_an_example(address: str) -> None:
    with pytest.raises(AddressInvalid, match=r"is not host:port, such as 0\.0\.0\.0:9410"):
        split_address(address)


def connected(server: HttpServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def test_clients_that_send_nothing_cost_each_other_their_place_and_nobody_else(server: HttpServer) -> None:
    threads = threading.active_count()
    with ExitStack() as stack:
        idle = [stack.enter_context(connected(server)) for _ in range(MOST_CLIENTS + 40)]
        assert idle[0].recv(1) == b"", "the oldest had to go"
        assert get(server, "/healthz") == (200, "ok\n")
        until(lambda: threading.active_count() <= threads + MOST_CLIENTS)
        last = idle[-1]
        last.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert last.recv(12) == b"HTTP/1.0 200"


def test_clients_that_are_gone_cost_nobody_a_place(server: HttpServer) -> None:
    with connected(server) as patient:
        for _ in range(MOST_CLIENTS + 10):
            assert get(server, "/healthz") == (200, "ok\n")
        patient.sendall(b"HEAD /healthz HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: patient.recv(1000), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 OK")
    assert b"Content-Length: 3" in head
    assert body == b"", "who asks for the head gets no more"


class CountingServer(HttpServer):
    """Counts how often it tries to accept a client."""

    tries = 0

    def get_request(self) -> tuple[socket.socket, Any]:
        self.tries += 1
        return super().get_request()


def test_without_files_left_the_server_rests_and_goes_on_later() -> None:
    server = CountingServer(listen("127.0.0.1:0"), {"/healthz": lambda: HttpPage.lines(True, "ok")})
    server.start()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with connected(server) as client:
        client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        client.recv(100)
    with socket.socket() as waiting:
        resource.setrlimit(resource.RLIMIT_NOFILE, (waiting.fileno() + 1, hard))
        try:
            waiting.connect(("127.0.0.1", server.port))
            waiting.settimeout(0.5)
            waiting.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            with pytest.raises(TimeoutError):
                waiting.recv(1)
            assert server.tries < 100, "it tries again and again, without a rest"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        waiting.settimeout(60)
        assert waiting.recv(12) == b"HTTP/1.0 200"
    server.close()


def test_a_page_that_fails_is_500_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> HttpPage:
        raise RuntimeError("no figures")

    made = HttpServer(listen("127.0.0.1:0"), {"/metrics": fails})
    made.start()
    assert get(made, "/metrics") == (500, "this page failed; the agent's log says why\n")
    made.close()
    assert "RuntimeError: no figures" in caplog.text


def test_a_client_that_goes_away_is_nobodys_fault(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "ostler.http")
    made = HttpServer(listen("127.0.0.1:0"), {"/": lambda: HttpPage(200, "text/plain", b"x" * 50_000_000)})
    made.start()
    with connected(made) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        client.recv(10)
    until(lambda: "request failed" in caplog.text)
    made.close()
    assert "Traceback" not in caplog.text
    assert capfd.readouterr().err == ""


def _answer_to(server: HttpServer, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as client:
        client.sendall(data)
        answer = b""
        while chunk := client.recv(1 << 16):
            answer += chunk
    return answer


def test_a_request_is_read_up_to_its_limit_and_no_further(server: HttpServer) -> None:
    """A hundred headers of 64 KiB on 64 connections are 400 MB otherwise."""
    header = b"X: " + b"a" * 60_000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\n")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):  # noqa: PT012 - wherever the server ends it
            for _ in range(100):
                client.sendall(header)
    assert get(server, "/healthz") == (200, "ok\n")


def test_a_request_within_the_limit_is_answered(server: HttpServer) -> None:
    header = b"X: " + b"a" * (MOST_REQUEST // 2) + b"\r\n"
    assert _answer_to(server, b"GET /healthz HTTP/1.0\r\n" + header + b"\r\n").endswith(b"\r\n\r\nok\n")


def test_a_request_that_comes_in_drops_is_ended_in_time(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ostler.admin.http.REQUEST_TIMEOUT", 0.3)
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as client:
        begin = time.monotonic()
        with pytest.raises((ConnectionResetError, BrokenPipeError)):  # noqa: PT012 - wherever the server ends it
            while time.monotonic() < begin + 120:
                client.sendall(b"a")
                select.select([client], [], [], 0.02)
    monkeypatch.setattr("ostler.admin.http.REQUEST_TIMEOUT", 120.0)
    assert get(server, "/healthz") == (200, "ok\n")
