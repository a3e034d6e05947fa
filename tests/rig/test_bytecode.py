"""Bytecode of test modules is made where it is missing or old."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bytecode import make, stale


def test_modules_without_bytecode_or_with_older_are_stale(tmp_path: Path) -> None:
    (tmp_path / "__pycache__").mkdir()
    for name, made in (("test_missing", None), ("test_old", 1.0), ("test_kept", 3.0)):
        (tmp_path / f"{name}.py").touch()
        os.utime(tmp_path / f"{name}.py", (2.0, 2.0))
        if made is not None:
            kept = tmp_path / "__pycache__" / f"{name}.{sys.implementation.cache_tag}-pytest-{pytest.__version__}.pyc"
            kept.touch()
            os.utime(kept, (made, made))
    assert stale([str(tmp_path)]) == [str(tmp_path / "test_missing.py"), str(tmp_path / "test_old.py")]


def test_pytest_takes_the_bytecode_and_a_wrong_module_is_left_to_it(tmp_path: Path) -> None:
    test, wrong = tmp_path / "test_something.py", tmp_path / "test_wrong.py"
    test.write_text("def test_it():\n    found = 1\n    assert found == 2\n")
    wrong.write_text("def")
    make(str(test))
    make(str(wrong))
    (kept,) = (tmp_path / "__pycache__").iterdir()
    made = kept.stat().st_ino
    options = ("-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path))
    command = [sys.executable, "-m", "pytest", *options, str(test)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "assert 1 == 2" in run.stdout
    assert kept.stat().st_ino == made
