"""Forked workers are workers as any other: they report the same tests, and one collection serves them all."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from tests.making.forked_workers import needs_every_report

SETUP = """
import contextlib
import os
from tests.making import forked_workers

def pytest_xdist_setupnodes(config, specs):
    workers = contextlib.ExitStack()
    workers.enter_context(forked_workers.collecting(specs, config.invocation_params.args))
    config.add_cleanup(workers.close)

def pytest_collection_finish(session):
    with open(os.path.join(session.startpath, "collections"), "a") as out:
        out.write("one\\n")
"""

TESTS = """
import os
import sys
import warnings
import pytest
from tests.rig.test_roomy_stack import CALLS, most_faults

def test_directory_and_capture(tmp_path, capfd, worker_id):
    assert f"popen-{worker_id}" in str(tmp_path)
    assert os.environ["PYTEST_XDIST_WORKER"] == worker_id
    os.system("echo printed by a child")
    assert capfd.readouterr().out == "printed by a child\\n"

def test_fails():
    print("printed before it failed")
    os.system("echo printed by a child")
    assert [1, 2] == [1, 3]

@pytest.mark.parametrize("number", range(4))
def test_crashes(number):
    if number == 2:
        os._exit(3)

def test_warns():
    warnings.warn("of a test")

def test_has_room_for_its_calls():
    assert most_faults() < CALLS // 2
"""


def _run(folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    plugins = ("-p", "no:cacheprovider", "-p", "no:asyncio")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "-q", "-ra", *plugins],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


def _write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")


def test_they_report_what_workers_report_after_one_collection(tmp_path: Path) -> None:
    _write(
        tmp_path,
        conftest=SETUP,
        test_most=TESTS,
        test_broken="import nothing_of_this_name",
        test_skipped="import pytest\npytest.skip('not here', allow_module_level=True)",
        test_warning="import warnings\nwarnings.warn('of the collection')\ndef test_passes(): pass",
    )
    out = _run(tmp_path)
    # One worker crashed, and another took its place.
    assert "2 failed, 7 passed, 1 skipped, 4 warnings, 1 error" in out, out
    assert "At index 1 diff: 2 != 3" in out
    assert "printed before it failed\nprinted by a child\n" in out
    assert "crashed while running 'test_most.py::test_crashes[2]'" in out
    assert "No module named 'nothing_of_this_name'" in out
    assert "UserWarning: of the collection" in out
    assert "UserWarning: of a test" in out
    assert (tmp_path / "collections").read_text().splitlines() == ["one"]


def test_each_collects_where_the_collecting_process_cannot_fork(tmp_path: Path) -> None:
    thread = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    _write(tmp_path, conftest=SETUP, test_threaded=thread + "def test_passes(): pass\ndef test_too(): pass")
    out = _run(tmp_path)
    assert "2 passed" in out, out
    assert (tmp_path / "collections").read_text().splitlines() == ["one"] * 3


@pytest.mark.parametrize(
    ("verbose", "durations", "xmlpath", "shown", "needs"),
    [
        (-1, None, None, "", False),
        (0, None, None, "a", False),
        (1, None, None, "a", True),
        (0, 0, None, "a", True),
        (0, None, "x", "a", True),
        (0, None, None, "fP", True),
        (0, None, None, "A", True),
    ],
)
def test_only_what_shows_every_report_needs_every_report(
    verbose: int, durations: int | None, xmlpath: str | None, shown: str, needs: bool
) -> None:
    options = Namespace(verbose=verbose, durations=durations, xmlpath=xmlpath, reportchars=shown)
    assert needs_every_report(options) == needs
