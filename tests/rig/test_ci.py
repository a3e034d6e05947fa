"""What ``.ci/run`` says and how it ends when tests fail, with a ``make`` that only fails where it is told to."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parents[2] / ".ci" / "run"
MAKE = """#!/bin/sh
echo "make $*"
if [ -e once ] && grep -qxF "$*" once; then
    rm once
    exit 2
fi
grep -qxF "$*" failing || exit 0
exit 2
"""
TESTS = "test"
AGAIN = "test WORKERS=1 ARGS=--last-failed --last-failed-no-failures=none"
CLUSTER = "cluster-test CLUSTERS=3"
CLUSTER_AGAIN = "cluster-test CLUSTERS=1 ARGS=--last-failed --last-failed-no-failures=none"
FAILED = "tests/node/test_a.py::test_of_a_race[1.36]"
LAST = "soak ARGS=--pods 60"
STEPS = [
    "setup",
    "make test",
    "make cluster-test, beside make check and benchmarks of the node",
    "again on their own",
    "make cluster-bench, beside make dra-bench and soak",
]
"""What the time is told of."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the script, a Python and nothing else."""
    for folder in (".ci", ".venv/bin", "bin", ".pytest_cache/v/cache"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(RUN, tmp_path / ".ci" / "run")
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    (tmp_path / "bin/make").write_text(MAKE)
    (tmp_path / "bin/make").chmod(0o755)
    remember(tmp_path, FAILED)
    return tmp_path


def remember(checkout: Path, *failed: str) -> None:
    """What pytest keeps of its last run."""
    (checkout / ".pytest_cache/v/cache/lastfailed").write_text(json.dumps(dict.fromkeys(failed, True)))


_TIMES = re.compile(r"\nseconds:\n( *\d+  .*\n)*")


def run(checkout: Path, failing: Sequence[str] = ()) -> tuple[int, list[str]]:
    """Exit status and output where these calls of ``make`` fail, without the times of its parts."""
    (checkout / "failing").write_text("".join(f"{each}\n" for each in failing))
    done = subprocess.run(
        [checkout / ".ci/run"],
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"PATH": f"{checkout}/bin:/usr/bin:/bin", "TMPDIR": str(checkout), "HOME": str(checkout)},
    )
    (checkout / "written").write_text(done.stdout)
    return done.returncode, _TIMES.sub("", done.stdout).splitlines()


def test_a_run_in_which_all_passes_runs_nothing_again_and_says_nothing_of_it(checkout: Path) -> None:
    status, lines = run(checkout)
    assert status == 0
    assert f"make {LAST}" in lines
    written = (checkout / "written").read_text()
    assert re.findall(r"(?m)^ *\d+  (.*)$", written) == STEPS
    assert not {f"make {AGAIN}", f"make {CLUSTER_AGAIN}", "passed only when run again:"} & set(lines)


@pytest.mark.parametrize(("first", "second"), [(TESTS, AGAIN), (CLUSTER, CLUSTER_AGAIN)])
def test_a_test_that_passes_only_when_run_again_is_named_at_once_and_in_the_last_lines(
    checkout: Path, first: str, second: str
) -> None:
    status, lines = run(checkout, [first])
    assert status == 0
    told, again = lines.index("FAILED, and run again on their own:"), lines.index(f"make {second}")
    assert lines[told + 1] == FAILED
    assert told < again
    assert lines[-2:] == ["passed only when run again:", FAILED]


@pytest.mark.parametrize(("first", "second"), [(TESTS, AGAIN), (CLUSTER, CLUSTER_AGAIN)])
def test_a_test_that_fails_twice_fails_the_run(checkout: Path, first: str, second: str) -> None:
    status, lines = run(checkout, [first, second])
    assert status != 0
    assert lines[-1] == f"make {second}"


@pytest.mark.parametrize("target", ["bench", "health-bench"])
def test_a_benchmark_that_fails_beside_clusters_has_to_pass_on_its_own(checkout: Path, target: str) -> None:
    call = f"make {target} QUICK=1"
    (checkout / "once").write_text(f"{target} QUICK=1\n")
    status, lines = run(checkout)
    assert status == 0
    assert f"FAILED beside the clusters, and run again on its own: {call}" in lines
    assert lines[-2:] == ["passed only when run again:", call]
    assert run(checkout, [f"{target} QUICK=1"])[0] != 0


def test_a_failed_check_is_not_run_again(checkout: Path) -> None:
    status, lines = run(checkout, ["check"])
    assert status != 0
    assert lines.count("make check") == 1


def test_what_passed_only_when_run_again_is_also_named_where_something_else_fails_later(checkout: Path) -> None:
    status, lines = run(checkout, [TESTS, LAST])
    assert status != 0
    assert lines[-2:] == ["passed only when run again:", FAILED]


@pytest.mark.parametrize("kept", [True, False])
def test_a_failure_that_is_of_no_test_fails_the_run(checkout: Path, kept: bool) -> None:
    remember(checkout)
    if not kept:
        (checkout / ".pytest_cache/v/cache/lastfailed").unlink()
    status, lines = run(checkout, [TESTS])
    assert status != 0
    assert lines[-1] == "make test failed, and not for a test that can be run again"


def test_no_file_of_the_run_is_left(checkout: Path) -> None:
    before = set(checkout.iterdir())
    run(checkout, [CLUSTER])
    assert set(checkout.iterdir()) - before == {checkout / "failing", checkout / "written"}
