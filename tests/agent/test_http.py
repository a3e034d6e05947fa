"""Probes and metrics over HTTP: what they say, and that bad clients harm nobody."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from ostler.http import AddressInvalid, HttpServer, Page, listen, split_address


@pytest.fixture
def server() -> Iterator[HttpServer]:
    pages = {"/healthz": lambda: Page.lines(True, "ok"), "/readyz": lambda: Page.lines(False, "not ready", "why")}
    made = HttpServer(listen("127.0.0.1:0"), pages)
    made.start()
    yield made
    made.close()


def get(server: HttpServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_good_page_is_200_and_a_bad_one_503_with_its_reasons(server: HttpServer) -> None:
    assert get(server, "/healthz?verbose") == (200, "ok\n")
    assert get(server, "/readyz") == (503, "not ready\nwhy\n")


def test_an_unknown_page_names_the_known_ones(server: HttpServer) -> None:
    assert get(server, "/") == (404, "there is /healthz, /readyz\n")


def test_nothing_can_be_changed(server: HttpServer) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/healthz", data=b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=5)
    assert refused.value.code == 501
    refused.value.close()


def test_half_open_and_garbage_clients_harm_nobody(server: HttpServer) -> None:
    clients = []
    for data in (b"", b"GET /healthz", b"\x00\xff" * 1000, b"GET " + b"a" * 70_000):
        client = socket.create_connection(("127.0.0.1", server.port), timeout=5)
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
