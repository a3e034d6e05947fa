"""What a GPU says of its fabric is taken apart only where it says something new, and never taken for something else."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest

from node.inventory.facts import Fabric
from node.inventory.nvidia import nvml_binding
from node.inventory.nvidia.nvml_binding import Binding, Handle

CALL = "nvmlDeviceGetGpuFabricInfoV"
GPU = Handle(ctypes.c_void_p(8))
_COMMON: list[tuple[str, Any]] = [
    ("version", ctypes.c_uint),
    ("clusterUuid", ctypes.c_ubyte * 16),
    ("status", ctypes.c_uint),
    ("cliqueId", ctypes.c_uint),
    ("state", ctypes.c_uint),
    ("healthMask", ctypes.c_uint),
]


class Newer(ctypes.Structure):
    _fields_ = [*_COMMON, ("healthSummary", ctypes.c_uint)]


class Older(ctypes.Structure):
    """As long as the newer one, so that both can have the same bytes."""

    _fields_ = [*_COMMON, ("padding", ctypes.c_uint)]


class _Board:
    """A GPU in a fabric, and how often an answer about it was taken apart; ``older``: it refuses the newer layout."""

    def __init__(self) -> None:
        self.clique = 7
        self.older = False
        self.taken_apart = 0

    def answer(self, _: object, reference: Any) -> None:
        import pynvml

        info = reference._obj
        if self.older and isinstance(info, Newer):
            # An error that may concern one GPU alone, after which the layout is tried again.
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        info.cliqueId = self.clique


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> _Board:
    import pynvml

    made, taken_apart = _Board(), nvml_binding._fabric

    def counted(info: Any) -> Fabric:
        made.taken_apart += 1
        return taken_apart(info)

    monkeypatch.setattr(nvml_binding, "_fabric", counted)
    monkeypatch.setattr(pynvml, "c_nvmlGpuFabricInfo_v3_t", Newer)
    monkeypatch.setattr(pynvml, "c_nvmlGpuFabricInfo_v2_t", Older)
    monkeypatch.setattr(pynvml, "nvmlInitWithFlags", lambda _: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, CALL, made.answer)
    return made


@pytest.fixture
def binding(board: _Board) -> Iterator[Binding]:
    attached = Binding(ctypes.CDLL(None))
    yield attached
    attached.detach()


def test_an_answer_is_taken_apart_once_and_another_one_is_seen(board: _Board, binding: Binding) -> None:
    first = binding.fabric(CALL, GPU)
    assert binding.fabric(CALL, GPU) is first
    assert (first.clique_id, board.taken_apart) == (7, 1)
    board.clique = 8
    assert binding.fabric(CALL, GPU).clique_id == 8
    board.clique = 7
    assert binding.fabric(CALL, GPU) is first
    assert board.taken_apart == 2


def test_equal_bytes_of_two_layouts_are_two_answers(board: _Board, binding: Binding) -> None:
    assert binding.fabric(CALL, GPU).health_summary == 0
    board.older = True
    assert binding.fabric(CALL, GPU).health_summary is None
    board.older = False
    assert binding.fabric(CALL, GPU).health_summary == 0


def test_answers_that_change_for_years_cost_no_more_memory(board: _Board, binding: Binding) -> None:
    for clique in range(1000):
        board.clique = clique
        assert binding.fabric(CALL, GPU).clique_id == clique
        assert len(binding._fabrics) <= 64
