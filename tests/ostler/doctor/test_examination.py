"""Running checks: crashes and hangs cost one check, facts are shared, results come in the catalogue's order."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ostler.doctor.check import (
    Check,
    CheckFinding,
    CheckSubject,
    CheckVerdict,
    failed,
    joined,
    ok,
    several,
    skipped,
    warning,
)
from ostler.doctor.examination import NAMES, SUBJECTS, chosen, examine
from ostler.doctor.node import NodeView, Once
from tests.ostler.doctor.nodes import says, view


def _check(name: str, examine_: object, deadline: float = 5.0) -> Check:
    return Check(name, "what", "remedy", examine_, deadline)  # type: ignore[arg-type]


def _crash(node: NodeView) -> CheckFinding:
    raise ValueError("no such\nthing")


def test_a_check_that_crashes_is_a_verdict_and_the_others_go_on(tmp_path: Path) -> None:
    subject = CheckSubject("s", (_check("crash", _crash), _check("well", lambda _: ok("fine"))))
    crash, well = examine((subject,), view(tmp_path))
    says(
        crash.finding, CheckVerdict.ERROR, "failed to check: ValueError: no such thing", "report it with the output of"
    )
    says(well.finding, CheckVerdict.OK, "fine")
    assert (crash.check, crash.subject) == ("crash", "s")


def test_a_check_that_hangs_is_left_behind_at_its_deadline(tmp_path: Path) -> None:
    ending = threading.Event()

    def hang(node: NodeView) -> CheckFinding:
        ending.wait(600)
        return ok("late")

    try:
        hung, well = examine(
            (CheckSubject("s", (_check("hang", hang, 0.05), _check("well", lambda _: ok("fine")))),), view(tmp_path)
        )
        left = [thread for thread in threading.enumerate() if thread.name == "check hang"]
        assert [thread.daemon for thread in left] == [True], "it hangs still, and would keep the command from ending"
    finally:
        ending.set()
    says(hung.finding, CheckVerdict.ERROR, "failed to check: no result within 0.05 s", "run it again")
    assert well.finding.verdict is CheckVerdict.OK


def test_a_shared_fact_is_read_once_by_many_threads() -> None:
    reads: list[int] = []

    def read() -> int:
        reads.append(1)
        return len(reads)

    once = Once(read)
    threads = [threading.Thread(target=once) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert once() == len(reads) == 1


def test_a_fact_that_cannot_be_read_fails_every_check_that_needs_it() -> None:
    reads: list[int] = []

    def fault() -> int:
        reads.append(1)
        raise OSError("gone")

    once = Once(fault)
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            once()
    assert len(reads) == 1


def test_names_are_unique_and_every_check_says_what_it_looks_at() -> None:
    assert len(set(NAMES)) == len(NAMES)
    for subject in SUBJECTS:
        for check in subject.checks:
            assert check.meaning
            assert check.remedy


def test_chosen_checks_keep_the_catalogues_order() -> None:
    subjects = chosen(["clock", "configuration"])
    assert [check.name for subject in subjects for check in subject.checks] == ["configuration", "clock"]
    assert chosen([]) == SUBJECTS


def test_the_worst_of_several_findings_wins_with_all_that_are_as_bad() -> None:
    both = joined([warning("a", "do a"), failed("b", "do b"), failed("c", "do b")], "well")
    says(both, CheckVerdict.FAILED, "b; c", "do b")
    assert both.fix == "do b"
    says(joined([], "well"), CheckVerdict.OK, "well")


def test_a_long_list_is_cut_with_the_number_of_the_rest() -> None:
    assert several(["a", "b"], 2) == "a, b"
    assert several(["a", "b", "c"], 2) == "a, b and 1 more"


def test_a_check_that_hangs_or_crashes_is_bad_and_a_skipped_one_is_not() -> None:
    assert [verdict for verdict in CheckVerdict if verdict.bad] == [CheckVerdict.ERROR, CheckVerdict.FAILED]
    assert skipped("why").verdict.weight < ok("fine").verdict.weight
