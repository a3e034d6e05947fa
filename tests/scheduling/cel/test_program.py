from __future__ import annotations

import pytest

from scheduling.api.quantities import parse
from scheduling.cel.device import CelDevice
from scheduling.cel.errors import EvaluationError
from scheduling.cel.library.semver import Semver
from scheduling.cel.program import MISSING, DeviceRead, SelectorCondition
from scheduling.cel.syntax import SourcePlace
from tests.making.cel import GPU, program

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


D = 'device.attributes["gpu.example.com"]'
MODEL_PATH = ("attributes", "gpu.example.com", "model")


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("true", set()),
        ('device.driver == "x"', {("driver",)}),
        ("device.allowMultipleAllocations", {("allowMultipleAllocations",)}),
        (f'{D}.model == "x"', {MODEL_PATH}),
        (f'{D}["model"] == "x"', {MODEL_PATH}),
        (f'{D}.?model.orValue("") == "x"', {MODEL_PATH}),
        (f'has({D}.model) && device.driver == "x"', {MODEL_PATH, ("driver",)}),
        (f'"model" in {D}', {("attributes", "gpu.example.com")}),
        (f"{D}[device.driver] == 1", {("attributes", "gpu.example.com"), ("driver",)}),
        (f'cel.bind(gpu, {D}, gpu.model == "x")', {MODEL_PATH}),
        (f'cel.bind(gpu, {D}, "x" in gpu)', {("attributes", "gpu.example.com")}),
        (f'{D}.model.exists(device, device == "x")', {MODEL_PATH}),
        ('device.capacity["d"].memory.isInteger()', {("capacity", "d", "memory")}),
        ("device == device", None),
        ('"d" in device.attributes', None),
        ("device.attributes[device.driver].model == 1", None),
        ("cel.bind(all, device.attributes, all.size() == 1)", None),
        ("device.attributes.all(domain, domain != '')", None),
    ],
)
def test_reads_are_what_the_text_can_reach(expression: str, wanted: set[tuple[str, ...]] | None) -> None:
    assert program(expression).reads == (None if wanted is None else frozenset(wanted))


def _device(attributes: dict[str, object], driver: str = "gpu.example.com") -> CelDevice:
    return CelDevice(driver, {"attributes": attributes})


def test_signatures_are_equal_where_what_is_read_is_equal() -> None:
    selector = program(f'{D}.model == "x"')
    one = _device({"model": {"string": "a"}, "slots": {"int": 1}})
    other = _device({"model": {"string": "a"}, "slots": {"int": 2}})
    assert selector.signature(one) == selector.signature(other)
    assert selector.signature(one) != selector.signature(_device({"model": {"string": "b"}}))
    assert selector.signature(one) != selector.signature(_device({}))


def test_signatures_tell_types_apart_and_unsound_devices() -> None:
    selector = program(f"{D}.model == 1")
    found = [
        selector.signature(_device({"model": value}))
        for value in ({"int": 1}, {"bool": True}, {"ints": [1]}, {"bools": [True]}, {"string": "1"})
    ]
    found.append(selector.signature(_device({"model": {"int": 1}, "odd": {}})))
    assert len(set(found)) == len(found)


def test_there_is_no_signature_where_anything_can_be_read() -> None:
    assert program("device == device").signature(GPU) is None


def test_signatures_tell_one_number_in_two_forms_apart_as_kubernetes_does() -> None:
    selector = program('device.capacity["gpu.example.com"].memory.isInteger()')
    devices = [CelDevice("gpu.example.com", {"capacity": {"memory": {"value": value}}}) for value in ("0.5Gi", "512Mi")]
    assert [selector.evaluate(each).result for each in devices] == [False, True]
    assert selector.signature(devices[0]) != selector.signature(devices[1])
