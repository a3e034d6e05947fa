"""Makes the bytecode of test modules once, before workers collect them: each would rewrite every assertion for itself.

``python -m tests.bytecode FOLDER...``. In a checkout that has run its tests there is nothing to do.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

FEW = 100
"""So many modules without bytecode are left to the workers."""
APART = ("tests/cluster", "tests/systemd/booted")
"""Folders that no worker of ``make test`` collects."""


def stale(folders: Iterable[str]) -> list[str]:
    """The test modules whose bytecode is missing or older than they are."""
    tail = f"{sys.implementation.cache_tag}-pytest-{pytest.__version__}.pyc"
    found = []
    for file in sorted({file for folder in folders for file in Path(folder).rglob("test_*.py")}):
        kept = file.parent / "__pycache__" / f"{file.stem}.{tail}"
        if not str(file).startswith(APART) and not (kept.exists() and kept.stat().st_mtime >= file.stat().st_mtime):
            found.append(str(file))
    return found


def main(folders: Iterable[str]) -> None:
    """Collect stale modules, without a word: the run that follows tells what is wrong with them."""
    modules, cores = stale(folders), os.cpu_count() or 1
    if len(modules) <= FEW or sys.pycache_prefix:
        return
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    running = [
        subprocess.Popen([*command, *modules[core::cores]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for core in range(cores)
    ]
    for each in running:
        each.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
