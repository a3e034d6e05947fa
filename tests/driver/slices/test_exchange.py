from __future__ import annotations

import threading

import pytest

from driver.slices.writing import RequestBatch
from kube.errors import KubeError, ServerFault


def numbered(count: int) -> list[tuple[int, str]]:
    return [(number, f"body {number}") for number in range(count)]


def test_few_are_sent_in_order_and_nothing_after_a_stop() -> None:
    sent: list[str] = []
    exchange = RequestBatch(sent.append)
    answers = exchange.answers(numbered(8), 8)
    assert [next(answers)[0], next(answers)[0]] == [0, 1]
    exchange.stop()
    assert list(answers) == []
    assert sent == ["body 0", "body 1"]


def test_of_many_four_are_under_way_at_a_time() -> None:
    together = threading.Barrier(4, timeout=120.0)

    def send(body: str) -> str:
        together.wait()
        return body.upper()

    answers = list(RequestBatch(send).answers(numbered(12), 12))
    assert answers == [(number, f"body {number}", f"BODY {number}") for number in range(12)]


def test_those_under_way_at_a_stop_are_waited_for() -> None:
    sent: list[str] = []
    stopped = threading.Event()

    def send(body: str) -> str:
        if body != "body 0":
            assert stopped.wait(120.0)
        sent.append(body)
        return body

    exchange = RequestBatch(send)
    answered = []
    for number, _, _ in exchange.answers(numbered(100), 100):
        answered.append(number)
        exchange.stop()
        stopped.set()
    assert 1 < len(answered) < 10
    assert sorted(sent) == sorted(f"body {number}" for number in answered)


@pytest.mark.parametrize("count", [3, 30])
def test_a_fault_is_the_answer_to_its_own_request(count: int) -> None:
    fault = ServerFault("PUT", "/x", 500, "", "no")

    def send(body: str) -> str:
        if body == "body 1":
            raise fault
        return body

    answers = [answer for _, _, answer in RequestBatch(send).answers(numbered(count), count)]
    assert answers[1] is fault
    assert not any(isinstance(answer, KubeError) for answer in [answers[0], *answers[2:]])
