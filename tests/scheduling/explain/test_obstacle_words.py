"""Every obstacle has its words, in text and as JSON."""

# ruff: noqa: E501, ISC004, RUF001 - texts stand here line by line as people see them

from __future__ import annotations

import json
from dataclasses import fields, replace

import jsonschema
import pytest

# ruff: noqa: E501, ISC004, RUF001 - texts stand here line by line as people see them
from ostler.explain.forms import document
from ostler.explain.page import page
from ostler.explain.wording import obstacle_lines
from scheduling.explain.obstacles import (
    AllNeedsPools,
    Bearers,
    CapacityExhausted,
    CapacityUnfit,
    ClaimHolder,
    ClassMissing,
    Competing,
    ConditionFalse,
    ConstraintUnsatisfiable,
    CounterExhausted,
    FeatureOff,
    Held,
    NodeOutside,
    NodeRefused,
    NoDevices,
    NotTogether,
    ObjectRefused,
    Obstacle,
    PoolIncomplete,
    PoolInvalid,
    PoolOutdated,
    ReadValue,
    SearchEnded,
    SelectorBroken,
    SelectorSource,
    SelectorUnreadable,
    Tainted,
    TooMany,
    Usage,
    Waiting,
)
from tests.making.explain_schema import form, obstacle_kinds
from tests.making.explanations import CLASS, MODEL, NOWHERE, OTHER

WORDS: list[tuple[Obstacle, str]] = [
    (
        ClassMissing("gpu.example.con", ("gpu.example.com", "nic.example.com")),
        'there is no DeviceClass "gpu.example.con"\n'
        "  → create it, or correct deviceClassName; there are: gpu.example.com, nic.example.com\n",
    ),
    (
        ClassMissing("gpu"),
        'there is no DeviceClass "gpu"\n  → create it, or correct deviceClassName; there are none\n',
    ),
    (
        SelectorUnreadable(CLASS, "device.foo == 3 &&\n  x", "undefined field 'foo'", 1, 8),
        "class gpu.example.com, selector 1 does not compile: undefined field 'foo'\n  device.foo == 3 &&\n         ^\n",
    ),
    (
        SelectorUnreadable(SelectorSource("request", "gpu", 1), "a  + 1", "must be bool"),
        'request "gpu", selector 2 does not compile: must be bool\n  a + 1\n',
    ),
    (
        SelectorBroken(CLASS, f'{MODEL} == "H200"', f'{MODEL} == "H200"', "no such key: model", 1, 8, ("gpu-0",), 1),
        "class gpu.example.com, selector 1 fails with an error on gpu-0: no such key: model\n"
        f'  in {MODEL} == "H200"\n'
        "  → not every device has it: test it with has(…) first, or read it as .?NAME.orValue(…)\n",
    ),
    (
        TooMany(40),
        "40 devices wanted in all; a claim gets 32 at most\n  → ask for fewer, or use several claims\n",
    ),
    (
        FeatureOff("DRADeviceBindingConditions", "a device with binding conditions", ("gpu-0",)),
        "a device with binding conditions needs DRADeviceBindingConditions, which this cluster does not have: gpu-0\n",
    ),
    (
        ObjectRefused("ResourceClaim team/gpu", "spec.devices.constraints[0]", "nothing is set"),
        "ResourceClaim team/gpu spec.devices.constraints[0]: nothing is set\n",
    ),
    (AllNeedsPools(("gpu",)), 'request "gpu" wants all devices, so every pool of a node must be usable\n'),
    (Waiting("claim gpu does not exist; create it"), "claim gpu does not exist; create it\n"),
    (NodeRefused(("the node is cordoned",)), "the pod cannot run there: the node is cordoned\n"),
    (NodeOutside("team/gpu", ("node-b",)), "claim team/gpu already has its devices, for node-b\n"),
    (
        NoDevices(("gpu.example.com",)),
        "no ResourceSlice offers devices here (drivers with devices elsewhere: gpu.example.com)\n"
        "  → check whether the driver's pod runs on the node\n",
    ),
    (
        PoolIncomplete("gpu.example.com", "node-a", 3, 1, 2, ("a-1",)),
        "pool node-a of gpu.example.com is incomplete: 1 of 2 slices of generation 3 (a-1); unused until all are there\n"
        "  → wait for the driver, or see why gpu.example.com publishes no more\n",
    ),
    (
        PoolOutdated("gpu.example.com", "rack-1", 3, 4),
        "pool rack-1 of gpu.example.com: the slices for this node are of generation 3, the pool is at 4\n",
    ),
    (
        PoolInvalid("gpu.example.com", "node-a", "device gpu-0 is in slice a and in slice b"),
        "pool node-a of gpu.example.com is invalid: device gpu-0 is in slice a and in slice b\n"
        "  → the driver publishes its slices: check gpu.example.com\n",
    ),
    (SearchEnded("the search took too long"), "no answer: the search took too long\n"),
    (
        ConditionFalse(("gpu-0",), 8, CLASS, f'{MODEL} == "H200"', (ReadValue(MODEL, '"A100"'),), 2),
        f'8 × class gpu.example.com, selector 1: {MODEL} == "H200" is false: model is "A100" (and 2 other conditions)\n',
    ),
    (
        ConditionFalse(("gpu-0",), 1, CLASS, "x", (ReadValue("device.driver", None),), 1),
        "1 × class gpu.example.com, selector 1: x is false: driver is absent (and 1 other condition)\n",
    ),
    (
        Held(("gpu-0", "gpu-1"), 2, (OTHER, ClaimHolder(""))),
        "gpu-0 held by claim team/other-x7f (pod team/other)\ngpu-1 held by a claim that could not be read\n",
    ),
    (
        Held(("gpu-0", "gpu-1"), 2, (OTHER, OTHER)),
        "gpu-0, gpu-1 held by claim team/other-x7f (pod team/other)\n",
    ),
    (
        Held(tuple("abcdef"), 6, tuple(ClaimHolder(f"team/{name}") for name in "abcdef")),
        "a held by claim team/a (no pod uses it)\nb held by claim team/b (no pod uses it)\n"
        "c held by claim team/c (no pod uses it)\n3 more held by 3 other claims\n",
    ),
    (
        Tainted(("gpu-0", "gpu-1"), 2, "gpu.example.com/xid", "79", "NoSchedule"),
        "2 × tainted gpu.example.com/xid=79:NoSchedule by the driver: gpu-0, gpu-1\n"
        "  → fix the cause on the device, or add a toleration to the request:\n"
        '    tolerations: [{key: gpu.example.com/xid, operator: Equal, value: "79", effect: NoSchedule}]\n',
    ),
    (
        Tainted(("gpu-0",), 1, "drain", "", "NoExecute", "rack-7"),
        "1 × tainted drain:NoExecute by DeviceTaintRule rack-7: gpu-0\n"
        "  → delete DeviceTaintRule rack-7, or add a toleration to the request:\n"
        "    tolerations: [{key: drain, operator: Exists, effect: NoExecute}]\n",
    ),
    (
        CounterExhausted(
            ("mig-3",), 1, "node-a", "gpu-0", "memory", "40Gi", "10Gi", "80Gi", (Usage("mig-1", "70Gi", OTHER),)
        ),
        '1 × counter "memory" of "gpu-0" (pool node-a): 40Gi needed, 10Gi of 80Gi free\n'
        "  70Gi used by mig-1, held by claim team/other-x7f (pod team/other)\n",
    ),
    (
        CapacityExhausted(("nic-0",), 1, "bandwidth", "8G", "2G", "10G", (Usage("nic-0", "8G", OTHER),) * 5),
        "1 × capacity bandwidth: 8G needed, 2G of 10G free: nic-0\n"
        + "  8G used by nic-0, held by claim team/other-x7f (pod team/other)\n" * 3
        + "  and by 2 other allocations\n",
    ),
    (
        CapacityUnfit(("gpu-0",), 4, "memory", "100Gi", "the device has 80Gi"),
        "4 × memory: 100Gi asked, the device has 80Gi\n",
    ),
    (
        ConstraintUnsatisfiable(
            "team/gpu",
            0,
            "matchAttribute",
            "resource.kubernetes.io/pcieRoot",
            ("gpu", "nic"),
            5,
            3,
            (Bearers('"pci0000:00"', 3), Bearers('"pci0000:40"', 2), Bearers(None, 1)),
        ),
        'constraint 1, matchAttribute: resource.kubernetes.io/pcieRoot over "gpu" and "nic": '
        "5 wanted with one value, at most 3 found\n"
        '  values: "pci0000:00" × 3, "pci0000:40" × 2, absent × 1\n',
    ),
    (
        ConstraintUnsatisfiable("team/gpu", 1, "distinctAttribute", "d/slot", ("gpu",), 3, 1, (Bearers("1", 4),)),
        'constraint 2, distinctAttribute: d/slot over "gpu": 3 wanted with different values, 1 value found\n'
        "  values: 1 × 4\n",
    ),
    (
        Competing((("team/gpu", "a"), ("team/gpu", "b"))),
        'requests "a" and "b" can each be met, but not together\n',
    ),
    (
        Competing((("team/x", "a"), ("team/y", "a")), ("matchAttribute d/numa",)),
        'requests team/x "a" and team/y "a" can each be met, but not together under matchAttribute d/numa\n',
    ),
    (
        Competing((("team/x", "a"),), ("matchAttribute d/numa", "distinctAttribute d/slot")),
        'request "a" can be met, but not under matchAttribute d/numa and distinctAttribute d/slot together\n',
    ),
    (
        NotTogether(3, 2, ('counter "memory" of "gpu-0"',)),
        'at most 2 of them are available at the same time: they share counter "memory" of "gpu-0"\n',
    ),
]
FORM = jsonschema.Draft202012Validator(form())


@pytest.mark.parametrize(("obstacle", "words"), WORDS, ids=[type(each).__name__ for each, _ in WORDS])
def test_every_obstacle_has_its_words(obstacle: Obstacle, words: str) -> None:
    assert page(obstacle_lines(obstacle, 0), None, colour=False) == words


def test_a_capacity_that_was_not_asked_for_is_told_without_an_amount() -> None:
    (said,) = obstacle_lines(CapacityUnfit(("a",), 1, "memory", "", "the device has 8Gi"), 0)
    assert page([said], None, colour=False).endswith(" memory: the device has 8Gi\n")


def test_no_kind_of_obstacle_is_without_words() -> None:
    assert {type(each) for each, _ in WORDS} == set(obstacle_kinds())
    assert len({kind.kind for kind in obstacle_kinds()}) == len(list(obstacle_kinds()))


@pytest.mark.parametrize("obstacle", [each for each, _ in WORDS], ids=lambda each: type(each).__name__)
def test_every_obstacle_is_of_the_documented_form(obstacle: Obstacle) -> None:
    made = json.loads(json.dumps(document(replace(NOWHERE, stops=(obstacle,)))))
    assert made["stops"][0]["kind"] == obstacle.kind
    assert len(made["stops"][0]) == len(fields(obstacle)) + 1
    FORM.validate(made)
