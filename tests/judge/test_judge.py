"""The judge answers what was recorded of Kubernetes 1.37: what it says of generated cases can be believed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.judge.answers import Judge
from tests.judge.comparison import allocation_differences, cel_differences, cel_expected, expected
from tests.making.recorded_cases import cases_in, files_in

VECTORS = Path(__file__).parents[1] / "vectors"
ALLOCATIONS = sorted(file.stem for file in files_in(VECTORS / "allocator", "*.jsonl") if file.stem != "slow")
EXPRESSIONS = sorted(file.stem for file in files_in(VECTORS / "cel", "*.jsonl"))


def cases(file: str) -> list[dict[str, Any]]:
    """The lines of a file of vectors."""
    return cases_in(VECTORS / file)


@pytest.mark.parametrize("kind", ["hand", "random"])
def test_recorded_allocations_are_repeated(judge: Judge, kind: str) -> None:
    recorded = [case for theme in ALLOCATIONS if theme.startswith(kind) for case in cases(f"allocator/{theme}.jsonl")]
    assert recorded
    for case, answer in zip(recorded, judge.answers("allocate", recorded), strict=True):
        known = expected(case)
        assert known is not None
        assert allocation_differences(answer, known) == [], case["name"]


def test_recorded_evaluations_are_repeated(judge: Judge) -> None:
    recorded = [case for theme in EXPRESSIONS for case in cases(f"cel/{theme}.jsonl")]
    for case, answer in zip(recorded, judge.answers("cel", recorded), strict=True):
        assert cel_differences(answer, cel_expected(case)) == [], case["name"]


def test_unreadable_case_is_answered_as_such(judge: Judge) -> None:
    answer = judge.answer("allocate", {"claims": 5})
    assert "cannot unmarshal number" in answer["input_error"]


def test_two_kinds_can_be_asked_in_turn(judge: Judge) -> None:
    assert judge.answer("quantity", {"text": "0.5Gi", "other": "1Mi"}) == {
        "canonical": "512Mi",
        "exact": "536870912.000000000",
        "sum": "513Mi",
        "rest": "511Mi",
        "order": 1,
    }
    case = {"expr": "1 == 1", "device": {}, "features": {}, "env": "new"}
    assert judge.answer("cel", case)["result"] is True
    assert judge.answer("quantity", {"text": "1e3"})["canonical"] == "1e3"


def test_question_after_an_interrupted_one_gets_its_own_answer(judge: Judge) -> None:
    answers = judge.answers("quantity", [{"text": str(number)} for number in range(200)])
    assert next(answers)["canonical"] == "0"
    answers.close()
    assert judge.answer("quantity", {"text": "7"})["canonical"] == "7"


MORTAL = f"""#!{sys.executable} -IS
import select
import sys
kept = []
for line in iter(sys.stdin.readline, ""):
    if '"deadly"' in line:
        sys.exit(2)
    kept.append(line)
    if not select.select([sys.stdin], [], [], 0.02)[0]:
        print("".join(kept), end="", flush=True)
        kept.clear()
print("".join(kept), end="", flush=True)
"""
"""Answers cases with themselves once no more are waiting, and ends, with the answers kept back, at a deadly one."""


def test_case_that_ends_the_judge_costs_its_own_answer_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each case that is on its way at the end is asked again of a process of its own.
    monkeypatch.setattr("tests.judge.answers.WINDOW", 8)
    program = tmp_path / "judge"
    program.write_text(MORTAL)
    program.chmod(0o755)
    cases = [{"text": str(number)} for number in range(200)]
    with Judge(program=program) as mortal:
        answers = list(mortal.answers("quantity", [*cases[:100], {"text": "deadly"}, *cases[100:]]))
    assert [*answers[:100], *answers[101:]] == cases
    assert answers[100] == {"died": "the judge of 'quantity' ended with exit status 2 and no answer"}
