"""What people write on a node about its doors, and what is said of what cannot be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.door_policy import NodeDoors, NodeWords
from node.rules import Doors

BOTH, DRA, PLUGIN = Doors.BOTH, Doors.DRA, Doors.PLUGIN


@pytest.mark.parametrize(
    ("words", "doors"),
    [
        (NodeWords(), NodeDoors()),
        (NodeWords("dra"), NodeDoors(DRA)),
        (NodeWords("both", ""), NodeDoors(BOTH)),
        (
            NodeWords(None, "nvidia.com/gpu=dra, intel.com/sriov = plugin ,"),
            NodeDoors(None, (("nvidia.com/gpu", DRA), ("intel.com/sriov", PLUGIN))),
        ),
        (NodeWords("plugin", "a.b/mig-{profile}=both"), NodeDoors(PLUGIN, (("a.b/mig-{profile}", BOTH),))),
        (NodeWords(None, "a.b/c=dra,a.b/c=dra"), NodeDoors(None, (("a.b/c", DRA),))),
    ],
)
def test_label_and_annotation_are_read(words: NodeWords, doors: NodeDoors) -> None:
    assert words.parsed() == (doors, ())


def test_the_annotation_wins_over_the_label() -> None:
    doors, _ = NodeWords("plugin", "nvidia.com/gpu=dra").parsed()
    assert doors.of("nvidia.com/gpu") == (DRA, "the annotation ostler.dev/doors")
    assert doors.of("nvidia.com/other") == (PLUGIN, "the label ostler.dev/door")
    assert NodeDoors().of("nvidia.com/gpu") is None


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            NodeWords("DRA"),
            (
                "label ostler.dev/door: 'DRA' is not a door; write plugin, dra or both, or remove the label "
                "(it is as if it were not there)"
            ),
        ),
        (
            NodeWords(""),
            (
                "label ostler.dev/door: '' is not a door; write plugin, dra or both, or remove the label "
                "(it is as if it were not there)"
            ),
        ),
        (
            NodeWords(None, "nvidia.com/gpu"),
            (
                "annotation ostler.dev/doors: entry 'nvidia.com/gpu': is not an entry; write NAME=DOOR, such as "
                "nvidia.com/gpu=dra (the entry is ignored)"
            ),
        ),
        (
            NodeWords(None, "nvidia.com/gpu=claims"),
            (
                "annotation ostler.dev/doors: entry 'nvidia.com/gpu=claims': 'claims' is not a door; write plugin, dra "
                "or both (the entry is ignored)"
            ),
        ),
        (
            NodeWords(None, "gpu=dra"),
            (
                "annotation ostler.dev/doors: entry 'gpu=dra': resource name 'gpu' has no domain; write it as "
                "domain/name, for example example.com/gpu (the entry is ignored)"
            ),
        ),
        (
            NodeWords(None, "Bad.com/mig-{profile}=dra"),
            (
                "annotation ostler.dev/doors: entry 'Bad.com/mig-{profile}=dra': resource name "
                "'Bad.com/mig-{profile}' has the domain 'Bad.com', which is not a DNS name; use lower-case letters, "
                "digits, '-' and '.', each part starting and ending with a letter or digit (the entry is ignored)"
            ),
        ),
        (
            NodeWords(None, "a.b/mig-{profile}!=dra"),
            (
                "annotation ostler.dev/doors: entry 'a.b/mig-{profile}!=dra': resource name 'a.b/mig-{profile}!' has "
                "'mig-{profile}!' behind the '/'; use letters, digits, '-', '_' and '.', starting and ending with a "
                "letter or digit (the entry is ignored)"
            ),
        ),
        (
            NodeWords(None, "a.b/c=dra,a.b/c=plugin"),
            (
                "annotation ostler.dev/doors: entry 'a.b/c=plugin': gives a.b/c another door than the entry a.b/c=dra "
                "before it, which counts; remove one (the entry is ignored)"
            ),
        ),
    ],
)
def test_what_cannot_be_read_is_told_with_what_to_write(words: NodeWords, problem: str) -> None:
    _, problems = words.parsed()
    assert problems == (problem,)


def test_a_bad_entry_is_left_out_and_the_others_count() -> None:
    doors, problems = NodeWords("x", "a.b/c=dra,oops,d.e/f=both").parsed()
    assert doors == NodeDoors(None, (("a.b/c", DRA), ("d.e/f", BOTH)))
    assert len(problems) == 2


def test_a_huge_annotation_is_read_in_part_and_told() -> None:
    doors, problems = NodeWords(None, ",".join(f"a.b/c{n}=dra" for n in range(20_000))).parsed()
    assert problems == ("annotation ostler.dev/doors: has 288889 characters; only the first 16384 are read",)
    assert 1200 < len(doors.named) < 1300
    assert all(door is DRA for _, door in doors.named)


@given(st.none() | st.text(max_size=200), st.none() | st.text(alphabet="ab./=,{} \udcff\n", max_size=200) | st.text())
def test_any_text_is_read_and_problems_are_short_and_printable(label: str | None, annotation: str | None) -> None:
    _, problems = NodeWords(label, annotation).parsed()
    for problem in problems:
        assert problem.isprintable()
        assert len(problem) < 900
