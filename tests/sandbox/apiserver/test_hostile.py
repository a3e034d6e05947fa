"""What is no request, clients that stall, and many that write at once."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import ExitStack

import pytest

from sandbox.apiserver.server import ApiServer
from tests.sandbox.apiserver.web import CLAIMS, MERGE, NODES, PODS, SLICES, ask, claim_of, slice_of, watching

WATCHES = 200
WRITERS = 8
WRITES = 40


def connected(server: ApiServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=60)


def raw(server: ApiServer, data: bytes) -> bytes:
    """Bytes as they are, and then nothing more; all that comes back."""
    with connected(server) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def written(size: int, body: bytes) -> bytes:
    head = f"POST {SLICES} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize(
    ("data", "code", "message"),
    [
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 414, ""),
        (b"BREW /api/v1/pods HTTP/1.1\r\n\r\n", 405, "does not allow this method"),
        (
            f"POST {SLICES} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n".encode(),
            411,
            "one piece",
        ),
        (written(-5, b""), 400, "Content-Length '-5' is not a number"),
        (written(5, b"[NaN]"), 400, "NaN is not a number"),
        (written(2, b"\xff\xfe"), 400, "is not JSON"),
        (written(100_000, b"[" * 100_000), 400, "is not JSON"),
    ],
)
def test_what_is_no_request_is_refused_in_the_servers_form(
    server: ApiServer, data: bytes, code: int, message: str
) -> None:
    head, _, body = raw(server, data).partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {code} ".encode())
    status = json.loads(body)
    assert (status["kind"], status["code"]) == ("Status", code)
    assert message in status["message"]


def test_bytes_that_are_no_line_are_answered_and_the_server_goes_on(server: ApiServer) -> None:
    assert b'"kind":"Status"' in raw(server, b"\x00\xff\r\n\r\n")
    assert ask(server, "GET", SLICES).code == 200


def test_body_that_ends_early_is_not_carried_out(server: ApiServer) -> None:
    whole = json.dumps(slice_of()).encode()
    assert raw(server, written(len(whole) + 20, whole)) == b""
    assert server.store.list("resourceslices") == []


def test_delete_options_of_wrong_types_delete_nothing(server: ApiServer) -> None:
    server.store.create("resourceslices", slice_of())
    for options in ({"gracePeriodSeconds": "x"}, {"gracePeriodSeconds": True}, {"dryRun": "All"}, [1]):
        assert ask(server, "DELETE", f"{SLICES}/s", options).code == 400, options
    assert ask(server, "DELETE", f"{SLICES}/s", {"dryRun": ["All"]}).code == 200
    assert ask(server, "DELETE", SLICES, {"dryRun": ["All"]}).code == 200
    assert len(server.store.list("resourceslices")) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"spec": {"nodeName": 7}},
        {"spec": {"terminationGracePeriodSeconds": "x"}},
        {"spec": {"terminationGracePeriodSeconds": True}},
        {"metadata": {"name": "p", "ownerReferences": 5}},
        {"metadata": {"name": "p", "ownerReferences": [5]}},
        {"metadata": {"name": "p", "ownerReferences": [{"uid": 5}]}},
        {"status": {"conditions": [5]}},
        {"status": {"conditions": [{"type": ["x"]}]}},
    ],
)
def test_types_that_others_would_stumble_over_are_not_stored(server: ApiServer, wrong: dict[str, object]) -> None:
    assert ask(server, "POST", PODS, {"metadata": {"name": "p"}} | wrong).code == 400
    assert server.store.list("pods") == []


def test_conditions_of_wrong_types_are_refused_as_a_patch(server: ApiServer) -> None:
    server.store.create("nodes", {"metadata": {"name": "n"}})
    path, strategic = f"{NODES}/n/status", "application/strategic-merge-patch+json"
    assert ask(server, "PATCH", path, {"status": {"conditions": [{"type": "A"}]}}, strategic).code == 200
    for conditions in ([5], [{"type": ["x"]}]):
        assert ask(server, "PATCH", path, {"status": {"conditions": conditions}}, strategic).code == 400
    assert server.store.get("nodes", "n")["status"] == {"conditions": [{"type": "A"}]}


def test_state_of_then_is_refused_and_not_that_of_now(server: ApiServer) -> None:
    version = str(server.store.version)
    exactly = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
    assert ask(server, "GET", SLICES, **exactly).code == 200
    server.store.create("resourceslices", slice_of())
    assert ask(server, "GET", SLICES, **exactly).code == 410


def test_unknown_fields_are_refused_where_the_client_asks_for_it(server: ApiServer) -> None:
    wrong = claim_of()
    wrong["spec"]["devices"]["requests"][0]["exactly"]["cuont"] = 1
    wrong["colour"] = "red"
    strict = ask(server, "POST", CLAIMS, wrong, fieldValidation="Strict")
    assert (strict.code, strict.body["message"]) == (
        400,
        (
            'ResourceClaim in version "v1" cannot be handled as a ResourceClaim: strict decoding error: '
            'unknown field "spec.devices.requests[0].exactly.cuont", unknown field "colour"'
        ),
    )
    assert ask(server, "POST", CLAIMS, claim_of("known"), fieldValidation="Strict").code == 201
    assert ask(server, "POST", CLAIMS, wrong).code == 201


def test_many_watches_see_a_change(server: ApiServer) -> None:
    with ExitStack() as stack:
        streams = [stack.enter_context(watching(server, SLICES)) for _ in range(WATCHES)]
        server.store.create("resourceslices", slice_of())
        for stream in streams:
            assert stream.first(1) == [("ADDED", "s")]


def test_client_that_does_not_read_holds_up_nobody() -> None:
    server = ApiServer().start()
    with connected(server) as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.sendall(f"GET {NODES}?watch=1 HTTP/1.1\r\n\r\n".encode())
        half = connected(server)
        half.sendall(written(1000, b"{"))
        with half, watching(server, NODES) as other:
            for number in range(100):
                node = {"metadata": {"name": f"n{number}", "annotations": {"a": "x" * 100_000}}}
                server.store.create("nodes", node)
            assert other.first(100)[-1] == ("ADDED", "n99")
        before = time.monotonic()
        server.stop()
        assert time.monotonic() - before < 30


def test_writes_that_conflict_are_one_after_the_other(server: ApiServer) -> None:
    """Counting by read, change and write: none is lost, and a watch sees every number once, in order."""
    server.store.create("nodes", {"metadata": {"name": "n", "annotations": {"count": "0"}}})

    def count() -> None:
        done = 0
        while done < WRITES:
            node = ask(server, "GET", f"{NODES}/n").body
            node["metadata"]["annotations"]["count"] = str(int(node["metadata"]["annotations"]["count"]) + 1)
            reply = ask(server, "PUT", f"{NODES}/n", node)
            assert reply.code in (200, 409)
            done += reply.code == 200

    def label(name: str) -> None:
        for number in range(WRITES):
            patch = {"metadata": {"labels": {name: str(number)}}}
            assert ask(server, "PATCH", f"{NODES}/n", patch, MERGE).code == 200

    total = WRITERS * WRITES
    with watching(server, NODES, resourceVersion=str(server.store.version)) as stream:
        threads = [threading.Thread(target=count) for _ in range(WRITERS // 2)]
        threads += [threading.Thread(target=label, args=(f"l{index}",)) for index in range(WRITERS // 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        stream.first(total)
    nodes = [event["object"] for event in stream.events[:total]]
    versions = [int(node["metadata"]["resourceVersion"]) for node in nodes]
    assert versions == sorted(set(versions))
    counts = [int(node["metadata"]["annotations"]["count"]) for node in nodes]
    assert counts == sorted(counts)
    assert counts[-1] == total // 2
    assert server.store.get("nodes", "n")["metadata"]["resourceVersion"] == str(versions[-1])
