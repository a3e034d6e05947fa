"""A query of fields is taken apart only where an answer has changed, and looks conclude the same as without that."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import cast

from node.inventory.nvidia.nvml_binding import Binding, CallFailed, Handle
from node.inventory.nvidia.nvml_fields import FieldQuery
from node.inventory.nvidia.signals.gpus import Gpu, GpuId
from node.inventory.nvidia.signals.polls import LookMemory
from node.inventory.nvidia.signals.vitals import Vitals, VitalsReader

GPU = GpuId(uuid="GPU-1")
ERRORS = {3: "NOT_SUPPORTED"}
UNSIGNED, LONG = 1, 3


def filled(
    query: FieldQuery, number: int, *, kind: int = UNSIGNED, bits: int = 0, result: int = 0, at: int = 0
) -> None:
    """Write what a driver writes."""
    value = query.values[number]
    value.kind, value.result, value.timestamp, value.latency = kind, result, at, at
    value.value.as_ulonglong = bits


def test_unchanged_answers_are_the_same_object_whenever_they_were_read() -> None:
    query = FieldQuery([(38, 0), (165, 2)])
    filled(query, 0, kind=LONG, bits=1 << 40, at=1)
    filled(query, 1, result=3, at=1)
    first = query.answers(ERRORS)
    assert first == {(38, 0): 1 << 40, (165, 2): "NOT_SUPPORTED"}
    filled(query, 0, kind=LONG, bits=1 << 40, at=2)
    assert query.answers(ERRORS) is first


def test_another_value_and_another_error_are_seen() -> None:
    query = FieldQuery([(38, 0), (165, 2)])
    filled(query, 0, bits=7)
    filled(query, 1, bits=1)
    first = query.answers(ERRORS)
    filled(query, 0, bits=8)
    assert query.answers(ERRORS) == {(38, 0): 8, (165, 2): 1}
    filled(query, 1, result=3)
    assert query.answers(ERRORS) == {(38, 0): 8, (165, 2): "NOT_SUPPORTED"}
    assert first == {(38, 0): 7, (165, 2): 1}


def test_errors_before_any_other_answer_are_seen() -> None:
    query = FieldQuery([(38, 0)])
    assert query.answers(ERRORS) == {(38, 0): 0.0}


def test_growth_counts_once_after_equal_looks_and_again_when_it_goes_on() -> None:
    memory = LookMemory()
    grown = [bool(memory.concluded(GPU, Vitals(ecc_volatile=count))) for count in (1, 1, 1, 2, 2, 2, 3, 3)]
    assert grown == [False, False, False, True, False, False, True, False]


def test_a_link_that_goes_down_after_equal_looks_stays_a_trouble_until_it_is_up() -> None:
    memory = LookMemory()
    states = (True, True, True, False, False, False, True, True)
    found = [bool(memory.concluded(GPU, Vitals(mig=0, links=((0, state),)))) for state in states]
    assert found == [not state for state in states]


def test_a_gpu_that_is_gone_between_equal_looks_is_reported() -> None:
    memory = LookMemory()
    well, gone = Vitals(ecc_volatile=1), Vitals(gone="GPU_IS_LOST")
    found = [bool(memory.concluded(GPU, now)) for now in (well, well, gone, gone, well, well)]
    assert found == [False, False, True, True, False, False]


class SimpleBoard:
    """A binding of a GPU that knows no call but that for fields, and counts the errors of each link alone."""

    max_nvlinks = 4

    def __init__(self) -> None:
        self.up: set[int] = set()
        self.has_memory = False
        self.asked: list[str] = []

    def question(self, _: str, __: str) -> Callable[[str, Handle], bool]:
        def ask(call: str, _: Handle) -> bool:
            self.asked.append(call)
            if not self.has_memory:
                raise CallFailed(call, "NOT_SUPPORTED")
            return True

        return ask

    def __getattr__(self, name: str) -> object:
        def unknown(call: str, *_: object) -> None:
            self.asked.append(call)
            raise CallFailed(call, "NOT_SUPPORTED")

        return unknown

    def field_values(self, _: str, __: object, query: FieldQuery) -> dict[tuple[int, int], int | str]:
        values: dict[tuple[int, int], int | str] = {}
        for field, scope in query.fields:
            per_link = {165: int(scope in self.up), 161: 0, 162: 0, 163: 0}
            values[field, scope] = per_link.get(field, "NOT_SUPPORTED")
        return values


def test_a_board_whose_links_come_and_go_for_years_costs_no_more_memory() -> None:
    board = SimpleBoard()
    reader = VitalsReader(cast("Binding", board))
    gpu = Gpu(GPU, Handle(ctypes.c_void_p(8)))
    for links in range(16):
        board.up = {link for link in range(4) if links >> link & 1}
        seen = reader.read(gpu)
        assert {link for link, is_up in seen.links if is_up} == board.up
        assert len(seen.link_errors) == 3 * len(board.up)
        assert len(reader._queries) <= 2
        assert len(reader._answers) <= 2


def test_whether_a_gpu_answers_is_one_question() -> None:
    board = SimpleBoard()
    board.has_memory = True
    reader = VitalsReader(cast("Binding", board))
    gpu = Gpu(GPU, Handle(ctypes.c_void_p(8)))
    assert [reader.is_gone(gpu) for _ in range(3)] == [False] * 3
    assert board.asked == ["nvmlDeviceGetMemoryInfo"] * 3


def test_a_call_that_a_gpu_does_not_know_is_not_asked_again_whether_it_answers() -> None:
    board = SimpleBoard()
    reader = VitalsReader(cast("Binding", board))
    gpu = Gpu(GPU, Handle(ctypes.c_void_p(8)))
    assert not reader.is_gone(gpu)
    assert [call for call in board.asked if "Memory" in call] == ["nvmlDeviceGetMemoryInfo"]
    board.asked.clear()
    assert not reader.is_gone(gpu)
    assert not any("Memory" in call for call in board.asked)
