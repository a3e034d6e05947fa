from __future__ import annotations

import pytest

from scheduling.cel.device import CelDevice
from tests.scheduling.cel.selectors import GPU, program

D = 'device.attributes["gpu.example.com"]'
MODEL = ("attributes", "gpu.example.com", "model")


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("true", set()),
        ('device.driver == "x"', {("driver",)}),
        ("device.allowMultipleAllocations", {("allowMultipleAllocations",)}),
        (f'{D}.model == "x"', {MODEL}),
        (f'{D}["model"] == "x"', {MODEL}),
        (f'{D}.?model.orValue("") == "x"', {MODEL}),
        (f'has({D}.model) && device.driver == "x"', {MODEL, ("driver",)}),
        (f'"model" in {D}', {("attributes", "gpu.example.com")}),
        (f"{D}[device.driver] == 1", {("attributes", "gpu.example.com"), ("driver",)}),
        (f'cel.bind(gpu, {D}, gpu.model == "x")', {MODEL}),
        (f'cel.bind(gpu, {D}, "x" in gpu)', {("attributes", "gpu.example.com")}),
        (f'{D}.model.exists(device, device == "x")', {MODEL}),
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
