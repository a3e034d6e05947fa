"""Servers and proxies that answer badly: every request ends in time, with words that can be printed."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from kube.access import Access, FixedCredentials
from kube.client import RequestLimits
from kube.errors import (
    BadAnswer,
    Forbidden,
    ServerFault,
    TimedOut,
    Unreachable,
)
from tests.kube.conftest import client, client_of
from tests.kube.server import CannedAnswer, StubApiServer, refused


def test_an_answer_that_does_not_come_ends_in_time(server: StubApiServer) -> None:
    server.answers.append(CannedAnswer(wait=True))
    with pytest.raises(TimedOut, match=r"did not answer completely within 0\.2 s"):
        client_of(server, RequestLimits(whole=0.2)).create("/x", {})


def test_an_answer_that_drips_ends_in_time(server: StubApiServer) -> None:
    server.answers.append(CannedAnswer(200, b'{"a": "' + b"x" * 10_000 + b'"}', drip=True))
    begun = time.monotonic()
    with pytest.raises(TimedOut, match=r"did not answer completely within 0\.3 s"):
        client_of(server, RequestLimits(whole=0.3)).create("/x", {})
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize(
    ("begin", "again"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"x"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100_000),
    ],
    ids=["header", "continue", "continue-without-a-pause"],
)
def test_an_answer_that_never_gets_to_its_body_ends_in_time(begin: bytes, again: bytes) -> None:
    with dripping(begin, again) as url, pytest.raises(TimedOut, match=r"not answer completely within 0\.3 s"):
        client(Access(url, "a test", FixedCredentials("none")), RequestLimits(whole=0.3)).create("/x", {})


@contextmanager
def dripping(begin: bytes, again: bytes) -> Iterator[str]:
    """The URL of a server that sends ``begin``, and then ``again`` until its client is gone."""

    def serve() -> None:
        peer, _ = listener.accept()
        with peer, suppress(OSError):
            peer.sendall(begin)
            while not peer_is_gone.wait(0.02):
                peer.sendall(again)

    peer_is_gone = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        peer_is_gone.set()
        thread.join(60)


def test_an_answer_without_end_is_cut_off(server: StubApiServer) -> None:
    server.answers.append(CannedAnswer(200, b"x" * 200_000))
    with pytest.raises(BadAnswer, match="the answer has more than 1000 bytes"):
        client_of(server, RequestLimits(largest=1000)).get("/x")


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"<html>\n<b>hello\x1b[31m</b>", "<html> <b>hello [31m</b>"),
        (b"[1, 2]", "[1, 2]"),
        (b"\xff\xfe\x00", "��"),
        (b"[" * 100_000, "[" * 117 + "..."),
        (b"x" * 121, "x" * 117 + "..."),
    ],
)
def test_garbage_is_shown_in_part_and_printable(server: StubApiServer, body: bytes, shown: str) -> None:
    server.answers.append(CannedAnswer(200, body))
    with pytest.raises(BadAnswer) as caught:
        client_of(server).get("/x")
    assert caught.value.message == f"the answer is not a JSON object: {shown}"


def test_a_refusal_without_words_of_kubernetes_shows_what_there_is(server: StubApiServer) -> None:
    server.answers.append(CannedAnswer(502, b"<h1>Bad Gateway of a proxy</h1>"))
    server.answers.append(CannedAnswer(502, b""))
    for message in ("<h1>Bad Gateway of a proxy</h1>", "Bad Gateway"):
        with pytest.raises(ServerFault) as caught:
            client_of(server).create("/x", {})
        assert (caught.value.message, caught.value.reason) == (message, "")


def test_what_the_server_says_is_one_printable_line_of_bounded_length(server: StubApiServer) -> None:
    server.answers.append(refused(403, "For\ud800bidden\n" + "R" * 500, "\ud800\x1b[31mred\nline " + "x" * 100_000))
    with pytest.raises(Forbidden) as caught:
        client_of(server).create("/x", {})
    text = str(caught.value)
    assert text.encode().isascii()
    assert text.isprintable()
    assert caught.value.message.startswith("[31mred line xxx")
    assert (len(caught.value.message), len(caught.value.reason)) == (1024, 128)


def test_a_server_that_speaks_something_else_is_said_in_one_line() -> None:
    with dripping(b"\x1b[31mgarbage\r\n\r\n", b"") as url, pytest.raises(Unreachable) as caught:
        client(Access(url, "a test", FixedCredentials("none"))).create("/x", {})
    assert str(caught.value) == f"POST /x: {url}: the connection broke ([31mgarbage)"


def test_a_proxy_that_is_not_there_is_said_without_its_password(free_port: int) -> None:
    proxy = f"http://agent:secret@127.0.0.1:{free_port}"
    for server in ("http://10.0.0.1:1", "https://10.0.0.1:1"):
        with pytest.raises(Unreachable) as caught:
            client(Access(server, "a test", FixedCredentials("none"), proxy=proxy)).create("/x", {})
        assert str(caught.value) == f"POST /x: {server} cannot be reached through its proxy (Connection refused)"
        assert not caught.value.sent


@pytest.mark.parametrize("proxy", ["nonsense", "ftp://a", "http://[::1"])
def test_a_proxy_that_is_none_is_an_error_like_others(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises(Unreachable, match=r"http://10\.0\.0\.1:1 cannot be reached \("):
        client(Access("http://10.0.0.1:1", "a test", FixedCredentials("none"))).create("/x", {})
