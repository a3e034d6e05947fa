"""``ostler cells simulate``: a trace through virtual clusters and through quotas, and what is wrong with a trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from ostler.cells.simulation import figures, quotas, simulate
from ostler.cells.trace import MOST_JOBS, TraceError, TraceJob, read_trace
from scheduling.cells.configuration import read_configuration
from tests.making.cells import CONFIGURATION, Command

CLUSTER = read_configuration(CONFIGURATION)


@pytest.fixture
def ostler(cells_command: Callable[[str], Command]) -> Command:
    return cells_command("simulate")


def job(name: str, at: float, seconds: float, cluster: str = "A", priority: int = 0, *, gpus: int = 1) -> TraceJob:
    return TraceJob(name, at, seconds, cluster, priority, 1, gpus)


def test_a_team_gets_a_whole_pair_however_others_break_theirs() -> None:
    """B's single GPUs fill one pair; by quotas two pods of A share pairs with them."""
    jobs = [job("b0", 0, 1000, "B"), job("a0", 1, 10), job("b1", 2, 1000, "B"), job("a1", 20, 10, gpus=2)]
    cells, counted = simulate(CLUSTER, jobs)
    assert (cells.policy, counted.policy) == ("cells", "quotas")
    assert cells.runs["a1"].began == counted.runs["a1"].began == 20
    assert cells.runs["a1"].broken == 0
    assert counted.runs["a1"].broken == 1


def test_an_opportunistic_job_gives_way_and_begins_anew() -> None:
    jobs = [job(f"o{n}", 0, 100, "B", -1, gpus=4) for n in range(2)] + [job("a", 10, 50, gpus=2)]
    for run in simulate(CLUSTER, jobs):
        assert run.runs["a"].began == 10
        (victim,) = [each for each in run.runs.values() if each.preempted]
        assert (victim.began, victim.preempted) == (0, 1)
        assert victim.ended is not None
        assert victim.ended >= 160, "it began again when a had ended"
        assert figures(run).preemptions == 1


def test_jobs_wait_for_their_turn_by_priority_and_arrival() -> None:
    jobs = [job("first", 0, 10, gpus=2), job("late", 1, 10, gpus=2), job("urgent", 2, 10, priority=0, gpus=2)]
    cells, counted = simulate(CLUSTER, jobs)
    for run in (cells, counted):
        assert [run.runs[name].began for name in ("first", "late", "urgent")] == [0, 10, 20]
        found = figures(run)
        assert (found.ran, found.never, found.worst_wait, found.median_wait) == (3, 0, 18, 9)


def test_a_job_that_can_never_run_is_counted() -> None:
    cells, counted = simulate(CLUSTER, [job("huge", 0, 10, gpus=64)])
    assert figures(cells).never == figures(counted).never == 1


def test_no_more_gpus_are_used_than_there_are_and_everything_ends() -> None:
    chance = Random(24)
    jobs = [
        job(f"j{n}", n, chance.choice([5, 20]), chance.choice("AB"), chance.choice([-1, 0, 5]), gpus=1 + n % 2)
        for n in range(150)
    ]
    for run in simulate(CLUSTER, jobs):
        assert all(0 <= used <= 8 for _, used in run.used)
        assert run.used[-1][1] == 0
        assert all(each.ended is not None for each in run.runs.values())
        assert not run.refused


def test_quotas_are_the_gpus_of_cells_that_are_not_pinned() -> None:
    assert quotas(CLUSTER) == {"A": 2, "B": 2}


CSV = """\
name,at,duration,virtualCluster,priority,pods,gpus
a,0,60,A,0,1,2
b,5,60,A,,,1
"""


def test_a_table_compares_both(ostler: Command, file: str, tmp_path: Path) -> None:
    (trace := tmp_path / "trace.csv").write_text(CSV)
    text, _ = ostler(file, str(trace))
    assert text == (
        "                                        CELLS   QUOTAS\n"
        "jobs that ran                           2       2\n"
        "jobs that never ran                     0       0\n"
        "mean wait                               28 s    28 s\n"
        "median wait                             55 s    55 s\n"
        "longest wait                            55 s    55 s\n"
        "jobs that waited with enough GPUs left  0       0\n"
        "preemptions                             0       0\n"
        "pods with a broken island               0 of 2  0 of 2\n"
    )


def test_data_and_picture_have_the_same(ostler: Command, file: str, tmp_path: Path) -> None:
    (trace := tmp_path / "trace.csv").write_text(CSV)
    cells, counted = json.loads(ostler(file, str(trace), "-o", "json")[0])
    assert cells["jobs"]["b"] == {"began": 60.0, "ended": 120.0, "preempted": 0, "broken": 0}
    assert (cells["policy"], counted["policy"], cells["worst_wait"]) == ("cells", "quotas", 55.0)
    root = ET.fromstring(ostler(file, str(trace), "-o", "svg")[0])
    assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) == 2


GOOD: dict[str, Any] = {"name": "a", "at": 0, "duration": 1, "virtualCluster": "A"}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "there are no jobs; write a list of jobs with name, at, duration, virtualCluster, priority, pods, gpus"),
        ("x", "must be a list of jobs, or a map with jobs; write - {name, at, duration, "),
        (["x"], "job 1: must be a map, not 'x'; write name, at, "),
        ([GOOD | {"gpu": 1}], "job 1: gpu is not a known field; allowed here: name, at, "),
        ([GOOD, GOOD], "job 2: name 'a' is given twice; give every job its own name"),
        ([GOOD | {"name": ""}], "job 1: name is ''; write a text"),
        ([GOOD | {"virtualCluster": 3}], "job 1: virtualCluster is 3; write a text"),
        ([GOOD | {"duration": None}], "job 1: duration is missing; write a number of seconds"),
        ([GOOD | {"duration": 0}], "job 1: duration is 0; write a number of seconds from 0.001 on"),
        ([GOOD | {"at": "soon"}], "job 1: at is 'soon'; write a number of seconds from 0 on"),
        ([GOOD | {"at": float("inf")}], "job 1: at is inf; write a number of seconds from 0 on"),
        ([GOOD | {"at": True}], "job 1: at is True; write a number of seconds from 0 on"),
        ([GOOD | {"priority": 1001}], "job 1: priority is 1001; write a whole number between -1 and 1000"),
        ([GOOD | {"pods": 0}], "job 1: pods is 0; write a whole number between 1 and 10000"),
        ([GOOD | {"gpus": 1.5}], "job 1: gpus is 1.5; write a whole number between 1 and 1024"),
    ],
)
def test_a_fault_names_the_job_the_field_and_the_fix(rows: object, message: str) -> None:
    text = json.dumps(rows).replace("Infinity", ".inf")
    with pytest.raises(TraceError) as refused:
        read_trace(text, "trace.yaml")
    assert str(refused.value).startswith(f"trace.yaml: {message}")


def test_a_trace_has_a_limit() -> None:
    rows = "name,duration,virtualCluster\n" + "".join(f"j{n},1,A\n" for n in range(MOST_JOBS + 1))
    with pytest.raises(TraceError, match="there are 20001 jobs; the limit is 20000"):
        read_trace(rows, "trace.csv")


def test_the_command_names_the_file_and_a_stranger(ostler: Command, file: str, tmp_path: Path) -> None:
    (trace := tmp_path / "trace.csv").write_text(CSV.replace(",A,", ",Z,"))
    _, err = ostler(file, str(trace), code=2)
    assert err == f"ostler: {trace}: job a belongs to the virtual cluster Z, which {file} does not have; it has A, B\n"
    (bad := tmp_path / "trace.yaml").write_text("[")
    _, err = ostler(file, str(bad), code=2)
    assert err.startswith(f"ostler: {bad}: not valid YAML: ")
