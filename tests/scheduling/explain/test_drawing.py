"""Text and JSON of explanations, from verdicts made by hand."""

# ruff: noqa: E501, ISC004, RUF001 - texts stand here line by line as people see them

from __future__ import annotations

import json
from dataclasses import fields, replace

import jsonschema
import pytest

from ostler.drawing.text import number
from ostler.explain.forms import SCHEMA, document, draw
from ostler.explain.page import Ink, TextPiece, brief, line, page, some
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
from scheduling.explain.verdict import (
    Explanation,
    FindingGroup,
    NodeFinding,
    NodeOutcome,
    PlacedDevice,
    Remedy,
    RemedyKind,
    RequestFinding,
    SharedAttributes,
)
from tests.making.explain_schema import form, obstacle_kinds

MODEL = 'device.attributes["gpu.example.com"].model'
CLASS = SelectorSource("class", "gpu.example.com", 0)
OTHER = ClaimHolder("team/other-x7f", ("team/other",))

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


@pytest.mark.parametrize(("obstacle", "words"), WORDS, ids=[type(each).__name__ for each, _ in WORDS])
def test_every_obstacle_has_its_words(obstacle: Obstacle, words: str) -> None:
    assert page(obstacle_lines(obstacle, 0), None, colour=False) == words


def test_a_capacity_that_was_not_asked_for_is_told_without_an_amount() -> None:
    (said,) = obstacle_lines(CapacityUnfit(("a",), 1, "memory", "", "the device has 8Gi"), 0)
    assert page([said], None, colour=False).endswith(" memory: the device has 8Gi\n")


def test_no_kind_of_obstacle_is_without_words() -> None:
    assert {type(each) for each, _ in WORDS} == set(obstacle_kinds())
    assert len({kind.kind for kind in obstacle_kinds()}) == len(list(obstacle_kinds()))


def blocked(node: str, *requests: RequestFinding, remedies: tuple[Remedy, ...] = ()) -> NodeFinding:
    return NodeFinding(node, NodeOutcome.BLOCKED, requests=requests, remedies=remedies)


DEVICES = tuple(f"gpu-{number}" for number in range(8))
WRONG_MODEL = RequestFinding(
    "team/gpu",
    "gpu",
    1,
    8,
    0,
    0,
    (ConditionFalse(DEVICES, 8, CLASS, f'{MODEL} == "H200"', (ReadValue(MODEL, '"A100"'),)),),
)
ALL_HELD = RequestFinding("team/gpu", "gpu", 1, 8, 8, 0, (Held(DEVICES, 8, (OTHER,) * 8),))
NOWHERE = Explanation(
    "claim team/gpu (pod team/train-0)",
    (
        FindingGroup(("node-i", "node-j", "node-k"), blocked("node-i", ALL_HELD, remedies=(Remedy(RemedyKind.FREE),))),
        FindingGroup(tuple(f"node-{letter}" for letter in "abcdefgh"), blocked("node-a", WRONG_MODEL)),
    ),
)
HERE = NodeFinding(
    "node-a",
    NodeOutcome.FITS,
    (
        PlacedDevice("team/gpu", "gpu", "gpu.example.com", "node-a", "gpu-0"),
        PlacedDevice("team/gpu", "gpu", "gpu.example.com", "node-a", "gpu-1"),
        PlacedDevice(
            "team/gpu", "nic", "nic.example.com", "fabric", "nic-0", shared=True, network=True,
            consumed=(ReadValue("bandwidth", "10G"),), conditions=("attached",),
        ),
    ),
    (SharedAttributes("team/gpu", (ReadValue("resource.kubernetes.io/pcieRoot", '"pci0000:00"'), ReadValue("d/numa", "0"))),),
)  # fmt: skip


def test_nowhere_is_told_node_by_node_in_the_order_of_the_groups() -> None:
    assert draw(NOWHERE, width=None, colour=False) == (
        "claim team/gpu (pod team/train-0) fits on none of 11 nodes\n"
        "\n"
        "3 nodes (node-i, node-j, node-k)\n"
        '  request "gpu": 8 of 8 devices suit, all held, 1 wanted\n'
        "    gpu-0, gpu-1, gpu-2 … 5 more held by claim team/other-x7f (pod team/other)\n"
        "  → it would fit here if nothing were held by others\n"
        "\n"
        "8 nodes (node-a, node-b … 6 more)\n"
        '  request "gpu": 0 of 8 devices suit, 1 wanted\n'
        f'    8 × class gpu.example.com, selector 1: {MODEL} == "H200" is false: model is "A100"\n'
    )


def test_where_it_fits_the_devices_are_told_and_other_nodes_are_one_line() -> None:
    verdict = Explanation(
        "claim team/gpu", (FindingGroup(("node-a", "node-b"), HERE), *NOWHERE.groups), notes=("a note",)
    )
    text = draw(verdict, width=None, colour=False)
    assert text == (
        "claim team/gpu fits on 2 of 13 nodes\n"
        "\n"
        "node-a\n"
        '  request "gpu": gpu-0, gpu-1 of gpu.example.com, pool node-a\n'
        '  request "nic": nic-0 (a share: 10G bandwidth) of nic.example.com, pool fabric (not bound to this node); '
        "the pod waits for attached\n"
        '    they share: pcieRoot "pci0000:00", numa 0\n'
        "  1 more node alike: node-b\n"
        "\n"
        "11 other nodes do not fit; --all-nodes shows why\n"
        "\n"
        "note: a note\n"
    )
    assert "all held" in draw(verdict, width=None, colour=False, all_nodes=True)


def test_one_node_is_named_in_the_answer() -> None:
    only = Explanation("claim team/gpu", (FindingGroup(("node-a",), blocked("node-a", ALL_HELD)),))
    assert draw(only, width=None, colour=False).startswith("claim team/gpu does not fit on node-a\n")
    assert draw(Explanation("claim team/gpu", (FindingGroup(("node-a",), HERE),)), width=None, colour=False).startswith(
        "claim team/gpu fits on node-a\n"
    )


def test_what_stops_the_pod_everywhere_is_told_first_and_once() -> None:
    broken = SelectorBroken(CLASS, MODEL, MODEL, "no such key: model", 1, 1, ("gpu-0",), 1)
    finding = NodeFinding("node-b", NodeOutcome.ERROR, obstacles=(broken,))
    verdict = Explanation(
        "claim team/gpu", (FindingGroup(("node-a",), HERE), FindingGroup(("node-b",), finding)), (broken,)
    )
    text = draw(verdict, width=None, colour=False, all_nodes=True)
    assert text.startswith(
        "claim team/gpu fits on 1 of 2 nodes, but is not scheduled\n\n"
        "this stops the scheduler on every node (seen on node-b):\n"
        "  class gpu.example.com, selector 1 fails with an error on gpu-0: no such key: model\n"
    )
    assert text.endswith("node-b\n  the error above occurs here\n")
    assert not verdict.fits


def test_answers_without_nodes_say_why() -> None:
    assert (
        draw(Explanation("claim a/b"), width=None, colour=False)
        == "claim a/b has no node to go to: no nodes are known\n"
    )
    stopped = Explanation("claim a/b", stops=(ClassMissing("x"),))
    assert draw(stopped, width=None, colour=False).startswith("claim a/b cannot be scheduled on any node\n")
    done = Explanation("claim a/b", settled="already has its devices")
    assert draw(done, width=None, colour=False) == "claim a/b already has its devices\n"


@pytest.mark.parametrize(
    ("request_finding", "words"),
    [
        (replace(WRONG_MODEL, wanted=None, obstacles=()), "0 of 8 devices suit, all wanted"),
        (replace(ALL_HELD, usable=3, wanted=4, obstacles=()), "8 of 8 devices suit, 3 available, 4 wanted"),
        (replace(WRONG_MODEL, total=1, suitable=1, usable=1, wanted=2, obstacles=()), "1 of 1 device suits, 2 wanted"),
    ],
)
def test_counts_of_a_request(request_finding: RequestFinding, words: str) -> None:
    verdict = Explanation("claim a/b", (FindingGroup(("n",), blocked("n", request_finding)),))
    assert f'  request "gpu": {words}\n' in draw(verdict, width=None, colour=False)


@pytest.mark.parametrize(
    ("remedy", "words"),
    [
        (Remedy(RemedyKind.FREE), "it would fit here if nothing were held by others"),
        (Remedy(RemedyKind.TOLERATE), "it would fit here with the taints tolerated"),
        (
            Remedy(RemedyKind.FREE_AND_TOLERATE),
            "it would fit here if nothing were held by others and with the taints tolerated",
        ),
        (Remedy(RemedyKind.FEWER, 'request "gpu"', 2), 'it would fit here with count: 2 in request "gpu"'),
        (Remedy(RemedyKind.NO_CONSTRAINT, "constraint 1"), "it would fit here without constraint 1"),
    ],
)
def test_remedies_are_words(remedy: Remedy, words: str) -> None:
    verdict = Explanation("claim a/b", (FindingGroup(("n",), blocked("n", ALL_HELD, remedies=(remedy,))),))
    assert f"  → {words}\n" in draw(verdict, width=None, colour=False)


def test_lines_are_no_wider_than_the_terminal_and_lose_nothing() -> None:
    wide = draw(NOWHERE, width=None, colour=False)
    narrow = draw(NOWHERE, width=60, colour=False)
    assert max(map(len, narrow.splitlines())) <= 60
    assert narrow.split() == wide.split()


def test_a_text_without_blanks_is_not_torn() -> None:
    text = page([line(0, "a ", TextPiece("b" * 70, Ink.CODE), ",")], 40, colour=False)
    assert text == f"a\n    {'b' * 70},\n"


def test_colours_add_nothing_but_codes() -> None:
    coloured = draw(NOWHERE, width=80, colour=True)
    assert "\x1b[31mfits on none of 11 nodes\x1b[0m" in coloured
    plain_text = coloured
    for ink in Ink:
        plain_text = plain_text.replace(f"\x1b[{ink.value}m", "")
    assert plain_text.replace("\x1b[0m", "") == draw(NOWHERE, width=80, colour=False)


def test_what_a_cluster_sends_cannot_steer_the_terminal() -> None:
    verdict = replace(NOWHERE, title="claim \x1b[2J\n")
    assert draw(verdict, width=None, colour=False).startswith("claim \\x1b[2J\\n fits on none")


def test_lists_are_cut_where_it_helps() -> None:
    assert some(["a", "b", "c", "d"]) == "a, b, c, d"
    assert some(["a", "b", "c", "d", "e"]) == "a, b, c … 2 more"
    assert (number(1, "node"), number(2, "node")) == ("1 node", "2 nodes")


@pytest.mark.parametrize(
    ("path", "last"),
    [
        (MODEL, "model"),
        ("device.driver", "driver"),
        ('device.attributes["d.example.com"]["a"]', "a"),
        ('device.attributes["d.example.com"]', "d.example.com"),
        ("resource.kubernetes.io/pcieRoot", "pcieRoot"),
    ],
)
def test_a_path_is_told_by_its_last_part(path: str, last: str) -> None:
    assert brief(path) == last


def test_json_holds_every_fact_under_the_apis_spelling() -> None:
    verdict = replace(NOWHERE, groups=(FindingGroup(("node-a",), HERE), *NOWHERE.groups), notes=("a note",))
    made = json.loads(json.dumps(document(verdict)))
    assert made["schema"] == SCHEMA
    assert (made["fits"], made["fitting"], made["nodes"]) == (True, 1, 12)
    assert made["groups"][0]["nodes"] == ["node-a"]
    assert made["groups"][1]["requests"][0]["obstacles"][0] == {
        "kind": "held",
        "devices": list(DEVICES),
        "count": 8,
        "holders": [{"claim": "team/other-x7f", "pods": ["team/other"]}] * 8,
    }
    jsonschema.validate(made, form())


@pytest.mark.parametrize("obstacle", [each for each, _ in WORDS], ids=lambda each: type(each).__name__)
def test_every_obstacle_is_of_the_documented_form(obstacle: Obstacle) -> None:
    made = json.loads(json.dumps(document(replace(NOWHERE, stops=(obstacle,)))))
    assert made["stops"][0]["kind"] == obstacle.kind
    assert len(made["stops"][0]) == len(fields(obstacle)) + 1
    jsonschema.validate(made, form())
