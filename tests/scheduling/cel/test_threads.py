from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from scheduling.cel.compiler import compile as compile_selector
from scheduling.cel.device import CelDevice
from scheduling.cel.errors import CelError
from scheduling.cel.program import Program
from tests.making.cel import FEATURES

EXPRESSIONS = (
    'device.attributes["d"].n > 3 && device.driver == "d"',
    "[1, 2, 3].map(x, x * device.attributes['d'].n).filter(x, x > 4).size() > 0",
    "lists.range(50).exists(x, x == device.attributes['d'].n)",
    "cel.bind(n, device.attributes['d'].n, [n, n + 1].transformMap(i, v, v)[0] == n)",
    "device.attributes['d'].name.matches('^gpu-[0-4]$') || device.attributes['d'].name.find('[5-9]') != ''",
    "1 / device.attributes['d'].n > 0",
    "device.attributes['d'].none == 1",
    'int("x") == 1',
    "optional.of(device.attributes['d'].n).optMap(x, x + 1).orValue(0) % 2 == 0",
    "lists.range(90).all(x, lists.range(40).all(y, x >= 0 && y >= 0))",
)
DEVICES = tuple(
    CelDevice("d", {"attributes": {"n": {"int": number}, "name": {"string": f"gpu-{number}"}}}) for number in range(8)
)


@pytest.fixture(autouse=True)
def _switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def _answer(program: Program, device: CelDevice) -> object:
    try:
        return program.evaluate(device)
    except CelError as error:
        return str(error), vars(error).get("cost")


def _answers(expression: str) -> list[object]:
    try:
        program = compile_selector(expression, FEATURES)
    except CelError as error:
        return [str(error)]
    return [
        (_answer(program, device), program.max_cost, program.signature(device), str(program.account(device)))
        for device in DEVICES
    ]


def test_threads_that_compile_and_evaluate_the_same_get_the_same() -> None:
    wanted = {expression: _answers(expression) for expression in EXPRESSIONS}
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: _answers(EXPRESSIONS[number % len(EXPRESSIONS)]), range(40)))
    for number, answers in enumerate(found):
        assert answers == wanted[EXPRESSIONS[number % len(EXPRESSIONS)]]
