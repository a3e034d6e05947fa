"""A conversation that was held with a real API server (1.36), held with the stand-in: the same answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.apiserver.server import ApiServer
from tests.making.recorded_cases import cases_in
from tests.sandbox.apiserver.protocol import Conversation
from tests.sandbox.apiserver.protocol_requests import CONVERSATION

RECORDED = Path(__file__).parent / "protocol.jsonl"


@contextmanager
def hurrying(server: ApiServer) -> Iterator[None]:
    """Nothing happens while the watches last: they need not last a second each."""
    over = threading.Event()

    def close() -> None:
        while not over.wait(0.05):
            server.close_watches()

    thread = threading.Thread(target=close)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_answers_are_those_of_the_api_server(server: ApiServer) -> None:
    """One test, because each answer stands on what was done before."""
    recorded = cases_in(RECORDED)
    assert [each["about"] for each in recorded] == [each["about"] for each in CONVERSATION], "record it anew"
    ours = Conversation(server.url)
    with hurrying(server):
        answers = [(request["about"], ours.hold(request)) for request in CONVERSATION]
    assert answers == [(each["about"], each["reply"]) for each in recorded]
