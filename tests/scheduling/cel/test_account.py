from __future__ import annotations

from scheduling.api.quantities import parse
from scheduling.cel.errors import EvaluationError
from scheduling.cel.library.semver import Semver
from scheduling.cel.program import MISSING, DeviceRead, SelectorCondition
from scheduling.cel.syntax import SourcePlace
from tests.scheduling.cel.selectors import GPU, program

MODEL = 'device.attributes["gpu.example.com"].model'


def _account(expression: str) -> tuple[SelectorCondition, ...]:
    return program(expression).account(GPU)


def test_every_operand_of_a_conjunction_is_a_condition_however_nested() -> None:
    account = _account("true && (device.allowMultipleAllocations && (false || true)) && !true")
    assert [(each.text, each.outcome) for each in account] == [
        ("true", True),
        ("device.allowMultipleAllocations", True),
        ("false || true", True),
        ("!true", False),
    ]


def test_a_condition_tells_what_it_read_with_the_users_words_and_the_values() -> None:
    memory = 'device.capacity["gpu.example.com"].memory'
    (model, size) = _account(f'{MODEL} == "A100" && {memory}.isGreaterThan(quantity("80Gi"))')
    assert model == SelectorCondition(
        f'{MODEL} == "A100"', SourcePlace(1, 0), outcome=False, reads=(DeviceRead(MODEL, "H200"),)
    )
    assert size.reads == (DeviceRead(memory, parse("141Gi")),)
    assert size.outcome is True


def test_a_condition_has_its_place_on_its_line() -> None:
    account = _account("true &&\n  device.driver == 'x'")
    assert account[1].place == SourcePlace(2, 2)
    assert account[1].reads == (DeviceRead("device.driver", "gpu.example.com"),)


def test_what_the_device_lacks_is_missing_and_the_outcome_is_the_error() -> None:
    text = 'device.attributes["gpu.example.com"].nosuch'
    (condition, other) = _account(f"{text} == 1 && true")
    assert condition.reads == (DeviceRead(text, MISSING),)
    assert repr(condition.reads[0].value) == "missing"
    assert isinstance(condition.outcome, EvaluationError)
    assert "no such key: nosuch" in condition.outcome.message
    assert other.outcome is True


def test_a_failing_operand_does_not_hide_the_others() -> None:
    account = _account("1 / 0 == 1 && false && true")
    assert [isinstance(each.outcome, EvaluationError) for each in account] == [True, False, False]


def test_conditions_inside_a_binding_are_taken_apart_too() -> None:
    account = _account(
        'cel.bind(gpu, device.attributes["gpu.example.com"], gpu.model == "H200" && gpu.fw.isLessThan(semver("2.0.0")))'
    )
    assert [(each.text, each.outcome, each.reads) for each in account] == [
        ('gpu.model == "H200"', True, (DeviceRead("gpu.model", "H200"),)),
        ('gpu.fw.isLessThan(semver("2.0.0"))', False, (DeviceRead("gpu.fw", Semver(2, 1, 3)),)),
    ]


def test_loops_and_optional_selections_show_the_part_they_read() -> None:
    links = 'device.attributes["gpu.example.com"].links'
    (loop, optional) = _account(
        f'{links}.exists(each, each == "z") && device.attributes["other.example.com"].?zone.orValue("") == "z1"'
    )
    assert loop.reads == (DeviceRead(links, ["a", "b", "c"]),)
    assert optional.reads == (DeviceRead('device.attributes["other.example.com"].?zone', "z1"),)


def test_a_whole_domain_is_shown_as_what_it_holds() -> None:
    text = 'device.attributes["other.example.com"]'
    (condition,) = _account(f'"zone" in {text}')
    assert condition.reads == (DeviceRead(text, {"zone": "z1"}),)
    (unknown,) = _account('"zone" in device.attributes["no.example.com"]')
    assert unknown.reads[0].value is MISSING


def test_a_key_that_is_read_from_the_device_itself_leads_to_the_value() -> None:
    (condition,) = _account('device.attributes[device.driver].model == "A100"')
    assert condition.reads == (
        DeviceRead("device.attributes[device.driver].model", "H200"),
        DeviceRead("device.driver", "gpu.example.com"),
    )
