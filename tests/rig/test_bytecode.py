"""Bytecode of test modules is made where it is missing or old."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.bytecode import stale


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
