"""Forked workers run every test once and report what one process would; a worker that dies fails its own test alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.making.forked_workers import Stretches

ROOT = Path(__file__).parents[2]

MANY = """
import os, pathlib, warnings
import pytest

@pytest.fixture(scope="session", autouse=True)
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    yield
    pathlib.Path("ended", str(os.getpid())).write_text(str(folder))

@pytest.mark.parametrize("number", range(40))
def test_number(number, tmp_path):
    with pathlib.Path("ran").open("a") as ran:
        ran.write(f"{number} {os.getpid()}\\n")

def test_wrong():
    print("words of the wrong one")
    assert 1 + 1 == 3

@pytest.mark.skip(reason="not today")
def test_skipped():
    pass

def test_warned():
    warnings.warn("mind the gap", UserWarning)
"""

DYING = """
import os, signal
import pytest

@pytest.mark.parametrize("number", range(12))
def test_number(number):
    if number == 7:
        os.kill(os.getpid(), signal.SIGKILL)
"""

STOPPING = """
import pytest

@pytest.mark.parametrize("number", range(400))
def test_number(number):
    assert number
"""

UNSEEN = """
import pytest

class Unseen:
    def __del__(self):
        raise ValueError("nobody sees this")

kept = []

def test_first():
    pass

def test_last():
    unseen = Unseen()
    unseen.itself = unseen
    kept.append(unseen)

@pytest.fixture(scope="session", autouse=True)
def whole():
    yield
    kept.clear()
"""


def run(folder: Path, text: str, *options: str) -> tuple[int, str]:
    """Exit code and output of the tests in ``text``, run by three workers."""
    (folder / "ended").mkdir()
    (folder / "test_them.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    plugins = [
        word
        for name in ("no:cacheprovider", "no:xdist", "no:asyncio", "tests.making.forked_workers")
        for word in ("-p", name)
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "--workers=3", f"--basetemp={folder / 'base'}", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_every_test_runs_once_and_is_reported_as_by_one_process(tmp_path: Path) -> None:
    code, output = run(tmp_path, MANY, "-rs")
    assert code == pytest.ExitCode.TESTS_FAILED, output
    assert "1 failed, 41 passed, 1 skipped, 1 warning" in output
    ran = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    assert sorted(int(number) for number, _ in ran) == list(range(40))
    # Each process that ran a test has ended its fixtures, and had a folder of its own.
    ended = {each.name: each.read_text() for each in (tmp_path / "ended").iterdir()}
    assert {pid for _, pid in ran} <= set(ended)
    assert len(set(ended.values())) == len(ended) == 3
    assert "assert (1 + 1) == 3" in output
    assert "words of the wrong one" in output
    assert "not today" in output
    assert "UserWarning: mind the gap" in output


def test_a_worker_that_dies_fails_the_test_that_it_ran_and_no_other(tmp_path: Path) -> None:
    code, output = run(tmp_path, DYING)
    assert code == pytest.ExitCode.TESTS_FAILED, output
    assert "1 failed, 11 passed" in output
    assert re.search(r"worker \d ended with exit code -9 while it ran test_them.py::test_number\[7\]", output)


def test_the_first_failure_stops_all_workers_if_that_is_wanted(tmp_path: Path) -> None:
    code, output = run(tmp_path, STOPPING, "-x")
    assert code != pytest.ExitCode.OK
    assert "stopping after 1 failures" in output
    assert "FAILED test_them.py::test_number[0]" in output


def test_an_exception_that_nobody_sees_fails_the_run_also_after_the_last_test(tmp_path: Path) -> None:
    code, output = run(tmp_path, UNSEEN, "-W", "error")
    assert code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED), output
    assert "nobody sees this" in output


@given(st.integers(0, 30), st.integers(1, 5), st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=80))
def test_each_item_is_run_once_whoever_takes_and_dies(items: int, workers: int, steps: list[tuple[int, bool]]) -> None:
    stretches = Stretches(items, workers)
    ran: list[int] = []
    running: dict[int, int | None] = {}
    taken: dict[int, int | None] = {}

    def take(worker: int) -> None:
        ran.extend(each for each in (running.get(worker),) if each is not None)
        running[worker], taken[worker] = taken.get(worker), stretches.take(worker)

    try:
        for number, dies in steps:
            worker = number % workers
            if not dies:
                take(worker)
                continue
            failed = stretches.died(worker)
            assert failed == running.get(worker)
            ran.extend(each for each in (failed,) if each is not None)
            running[worker] = taken[worker] = None
        for _ in range(items + 2):
            for worker in range(workers):
                take(worker)
        assert sorted(ran) == list(range(items))
    finally:
        stretches.close()
