"""Streams: objects as they come, and every way in which one can end."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable

import pytest

from kube.access import Access, Credential, FixedCredentials
from kube.client import Client, RequestLimits
from kube.errors import BadAnswer, Closed, Forbidden, Gone, RequestError, TimedOut, TooManyRequests, Unreachable
from kube.streams import Stream
from kube.wire import Sockets, Wire
from tests.kube.authority import Authority
from tests.kube.conftest import client, client_of
from tests.kube.server import AT_ONCE, CannedAnswer, StubApiServer, refused
from tests.waiting import until

PATH = "/apis/resource.k8s.io/v1/resourceslices"
ONE, TWO = {"type": "ADDED", "object": {"a": 1}}, {"type": "DELETED", "object": {"b": "ä"}}


def line(body: object) -> bytes:
    return json.dumps(body).encode() + b"\n"


def sending(*pieces: bytes, whole: bool = True) -> CannedAnswer:
    def feed(send: Callable[[bytes], None]) -> bool:
        for piece in pieces:
            send(piece)
        return whole

    return CannedAnswer(feed=feed)


def then_silent(server: StubApiServer, *pieces: bytes) -> CannedAnswer:
    def feed(send: Callable[[bytes], None]) -> bool:
        for piece in pieces:
            send(piece)
        server.closing.wait(30)
        return True

    return CannedAnswer(feed=feed)


def stream_of(server: StubApiServer, limits: RequestLimits | None = None, *, read_timeout: float = 600.0) -> Stream:
    return client_of(server, limits).stream(PATH, read_timeout=read_timeout)


def failing(stream: Stream) -> RequestError:
    with stream, pytest.raises(RequestError) as caught:
        list(stream)
    return caught.value


def test_objects_come_one_by_one_however_they_are_cut_into_pieces(server: StubApiServer) -> None:
    text = line(ONE) + b"\n" + line(TWO) + line(ONE)
    server.answers.append(sending(text[:7], text[7:50], text[50:]))
    with stream_of(server) as stream:
        assert list(stream) == [ONE, TWO, ONE]


def test_an_object_is_there_before_the_next_is_sent(server: StubApiServer) -> None:
    server.answers.append(then_silent(server, line(ONE)))
    with stream_of(server) as stream:
        assert next(stream) == ONE


def test_the_query_is_sent_and_nothing_before_the_first_object_is_wanted(server: StubApiServer) -> None:
    server.answers.append(sending())
    with client_of(server).stream(PATH, {"watch": "1", "fieldSelector": "a=b"}, read_timeout=60) as stream:
        assert server.asked == []
        assert list(stream) == []
    assert [asked.path for asked in server.asked] == [f"{PATH}?watch=1&fieldSelector=a%3Db"]
    assert server.asked[0].headers["Authorization"] == "Bearer word"


def test_streams_and_requests_have_their_own_connections(server: StubApiServer) -> None:
    client = client_of(server)
    client.get("/a")
    server.answers.append(then_silent(server, line(ONE)))
    with client.stream(PATH, read_timeout=600) as stream:
        next(stream)
        client.get("/b")
    first, watch, second = server.asked
    assert first.port == second.port != watch.port


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refused(410, "Expired", "too old resource version: 1 (5)"), Gone),
        (refused(403, "Forbidden", "no"), Forbidden),
        (refused(429, "TooManyRequests", "busy", Retry_After="3"), TooManyRequests),
    ],
)
def test_a_refusal_is_raised_by_its_status(
    server: StubApiServer, answer: CannedAnswer, kind: type[RequestError]
) -> None:
    server.answers.append(answer)
    error = failing(stream_of(server))
    assert type(error) is kind
    assert error.path == PATH
    assert error.retry_after == (3.0 if kind is TooManyRequests else None)
    assert len(server.asked) == 1


def test_waiting_for_the_server_to_agree_raises_its_refusal(server: StubApiServer) -> None:
    server.answers.append(refused(410, "Expired", "too old"))
    with stream_of(server) as stream, pytest.raises(Gone):
        stream.open()


def test_garbage_is_a_bad_answer(server: StubApiServer) -> None:
    server.answers.append(sending(line(ONE), b"<html>\x1b[1m\n"))
    with stream_of(server) as stream:
        assert next(stream) == ONE
        with pytest.raises(BadAnswer, match="a line of the stream is not a JSON object: <html> "):
            next(stream)


def test_a_line_without_end_is_given_up(server: StubApiServer) -> None:
    def feed(send: Callable[[bytes], None]) -> bool:
        while not server.closing.is_set():
            send(b"a" * 1000)
        return True

    server.answers.append(CannedAnswer(feed=feed))
    error = failing(stream_of(server, RequestLimits(line=200_000)))
    assert isinstance(error, BadAnswer)
    assert error.message == "an object in the stream has more than 200000 bytes"


def test_an_end_within_an_object_is_a_bad_answer(server: StubApiServer) -> None:
    server.answers.append(sending(line(ONE), b'{"type": "ADD'))
    error = failing(stream_of(server))
    assert isinstance(error, BadAnswer)
    assert error.message == 'the stream ended within an object: {"type": "ADD'


def test_a_connection_that_breaks_within_an_object_is_told(server: StubApiServer) -> None:
    server.answers.append(sending(line(ONE), b'{"type": "ADD', whole=False))
    error = failing(stream_of(server))
    assert isinstance(error, Unreachable)
    assert "the connection broke" in error.message


def test_silence_is_no_more_than_the_read_timeout(server: StubApiServer) -> None:
    server.answers.append(then_silent(server, line(ONE)))
    error = failing(stream_of(server, read_timeout=0.05))
    assert isinstance(error, TimedOut)
    assert error.message == f"{server.url} did not answer, or was silent for 0.05 s"


def test_a_server_that_never_answers_is_given_the_time_of_a_request(server: StubApiServer) -> None:
    server.answers.append(CannedAnswer(wait=True))
    assert isinstance(failing(stream_of(server, RequestLimits(whole=0.05))), TimedOut)


def test_a_server_that_drips_is_not_read_longer_than_all_of_a_stream_may_last(server: StubApiServer) -> None:
    def feed(send: Callable[[bytes], None]) -> bool:
        while not server.closing.wait(0.01):
            send(b" ")
        return True

    server.answers.append(CannedAnswer(feed=feed))
    error = failing(client_of(server).stream(PATH, read_timeout=1, whole=0.1))
    assert isinstance(error, TimedOut)
    assert error.message.endswith("was silent for 1 s, or sent without end for 0.1 s")


def test_a_server_that_is_not_there_is_unreachable(free_port: int) -> None:
    url = f"http://127.0.0.1:{free_port}"
    error = failing(client(Access(url, "a test", FixedCredentials("none"))).stream(PATH, read_timeout=60))
    assert isinstance(error, Unreachable)
    assert not error.sent


def ended_by(end: Callable[[], None], stream: Stream) -> tuple[list[object], list[RequestError], float]:
    """Iterate in a thread until it waits and ``end`` it: what it got, what it raised, the seconds that took."""
    got, faults = list[object](), list[RequestError]()

    def read() -> None:
        try:
            with stream:
                got.extend(stream)
        except RequestError as error:
            faults.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    until(lambda: bool(got))
    began = time.monotonic()
    end()
    thread.join(60)
    assert not thread.is_alive()
    return got, faults, time.monotonic() - began


def test_close_from_another_thread_ends_a_stream_at_once_and_without_an_error(server: StubApiServer) -> None:
    server.answers.append(then_silent(server, line(ONE)))
    stream = stream_of(server)
    got, faults, seconds = ended_by(stream.close, stream)
    assert (got, faults) == ([ONE], [])
    assert seconds < 60  # Silence would end it after ten minutes.


def test_close_ends_an_encrypted_stream(secure: StubApiServer, authority: Authority) -> None:
    secure.answers.append(then_silent(secure, line(ONE)))
    access = Access(
        secure.url, "a test", FixedCredentials("none", Credential("Bearer word")), ca=str(authority.certificate)
    )
    client = Client(access, random=lambda: 0.5, policy=AT_ONCE)
    stream = client.stream(PATH, read_timeout=600)
    got, faults, seconds = ended_by(stream.close, stream)
    assert (got, faults) == ([ONE], [])
    assert seconds < 60  # Silence would end it after ten minutes.


def test_close_of_the_client_ends_its_streams(server: StubApiServer) -> None:
    server.answers.append(then_silent(server, line(ONE)))
    client = client_of(server)
    _, faults, seconds = ended_by(client.close, client.stream(PATH, read_timeout=600))
    assert [str(fault) for fault in faults] == [f"GET {PATH}: the client is closed"]
    assert seconds < 60  # Silence would end it after ten minutes.


def test_close_of_the_client_ends_a_request_that_waits_for_its_answer(server: StubApiServer) -> None:
    server.answers.append(CannedAnswer(wait=True))
    client, faults = client_of(server), list[RequestError]()

    def ask() -> None:
        with pytest.raises(Closed) as caught:
            client.get("/a")
        faults.append(caught.value)

    thread = threading.Thread(target=ask)
    thread.start()
    until(lambda: bool(server.asked))
    client.close()
    thread.join(60)
    assert [str(fault) for fault in faults] == ["GET /a: closed while waiting for the answer"]


def test_a_stream_that_was_closed_before_it_began_asks_nothing(server: StubApiServer) -> None:
    stream = stream_of(server)
    stream.close()
    with stream:
        stream.open()
        assert list(stream) == []
    assert server.asked == []


def test_a_stream_of_a_closed_client_asks_nothing(server: StubApiServer) -> None:
    client = client_of(server)
    client.close()
    assert isinstance(failing(client.stream(PATH, read_timeout=1)), Closed)
    assert server.asked == []


class Renewed:
    """A credential that is another one after a refusal."""

    origin = "a test"

    def __init__(self) -> None:
        self.words = ["old", "new", "newest"]

    def current(self) -> Credential:
        return Credential(f"Bearer {self.words[0]}")

    def refused(self) -> None:
        self.words.pop(0)


def test_after_a_401_a_newer_credential_is_used_once(server: StubApiServer) -> None:
    client = Client(Access(server.url, "a test", Renewed()), random=lambda: 0.5, policy=AT_ONCE)
    no = refused(401, "Unauthorized", "Unauthorized")
    server.answers.extend((no, sending(line(ONE))))
    with client.stream(PATH, read_timeout=60) as stream:
        assert list(stream) == [ONE]
    assert [asked.headers["Authorization"] for asked in server.asked] == ["Bearer old", "Bearer new"]
    server.answers.extend((no, no))
    assert failing(client.stream(PATH, read_timeout=60)).status == 401
    assert len(server.asked) == 4


def test_a_stream_that_was_left_in_the_middle_closes_its_connection(server: StubApiServer) -> None:
    def feed(send: Callable[[bytes], None]) -> bool:
        try:
            while not server.closing.wait(0.005):
                send(line(ONE))
        except OSError:
            broken.set()
        return False

    broken = threading.Event()
    server.answers.append(CannedAnswer(feed=feed))
    with stream_of(server) as stream:
        next(stream)
    assert broken.wait(60)


def test_a_vanished_peer_is_noticed_by_keepalive() -> None:
    wire = Wire(5, 300, None, time.monotonic, Sockets())
    with socket.socket() as sock:
        wire.opened(sock)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        idle, interval, count = (sock.getsockopt(socket.IPPROTO_TCP, option) for option in options)
    assert idle + interval * count <= 60


def test_a_socket_that_comes_after_the_cut_is_cut_as_well() -> None:
    sockets = Sockets()
    sockets.cut()
    one, other = socket.socketpair()
    with one, other:
        sockets.add(one)
        assert one.recv(1) == b""
