"""Text and JSON of explanations, from verdicts made by hand."""

# ruff: noqa: RUF001 - texts stand here line by line as people see them

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import pytest

from ostler.drawing.text import number
from ostler.explain.forms import SCHEMA, document, draw
from ostler.explain.page import Ink, TextPiece, brief, line, page, some
from scheduling.explain.obstacles import (
    ClassMissing,
    SelectorBroken,
)
from scheduling.explain.verdict import (
    Explanation,
    FindingGroup,
    NodeFinding,
    NodeOutcome,
    Remedy,
    RemedyKind,
    RequestFinding,
)
from tests.making.explain_schema import form
from tests.making.explanations import ALL_HELD, CLASS, DEVICES, HERE, MODEL, NOWHERE, WRONG_MODEL, blocked


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
