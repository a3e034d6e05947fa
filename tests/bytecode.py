"""Makes bytecode on all cores, before the tests are collected: a collection has one core, and all workers wait for it.

``python -m tests.bytecode FOLDER...``. In a checkout that has run its tests there is nothing to do.
"""

from __future__ import annotations

import ast
import compileall
import importlib.util
import os
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from _pytest.assertion import rewrite

FEW = 100
"""So many modules without bytecode are left to the collection."""
PACKAGES = (
    "protos",
    "kube",
    "node",
    "plugin",
    "driver",
    "scheduling",
    "sandbox",
    "ostler",
    "deploy",
    "systemd",
    "bench",
)
APART = ("tests/cluster", "tests/systemd/booted")
"""Folders that ``make test`` collects nothing of."""


def stale(folders: Iterable[str]) -> list[str]:
    """The test modules whose bytecode is missing or older than they are."""
    found = []
    for file in sorted({file for folder in folders for file in Path(folder).rglob("test_*.py")}):
        kept = _kept(file)
        if not str(file).startswith(APART) and not (kept.exists() and kept.stat().st_mtime >= file.stat().st_mtime):
            found.append(str(file))
    return found


def make(module: str) -> None:
    """Make the bytecode of one module, as pytest does if it is a test; its run tells what is wrong with it."""
    file = Path(module).absolute()
    if not (file.name.startswith("test_") or file.name == "conftest.py"):
        compileall.compile_file(file, quiet=2)
        return
    source = file.read_bytes()
    try:
        tree = ast.parse(source, filename=str(file))
    except SyntaxError:
        return
    rewrite.rewrite_asserts(tree, source, str(file))
    kept = _kept(file)
    kept.parent.mkdir(exist_ok=True)
    state = cast("Any", SimpleNamespace(trace=lambda _: None))
    code = compile(tree, str(file), "exec", dont_inherit=True)
    rewrite._write_pyc(state, code, importlib.util.source_hash(source), kept)


def _kept(file: Path) -> Path:
    return file.parent / "__pycache__" / f"{file.stem}.{sys.implementation.cache_tag}-pytest-{pytest.__version__}.pyc"


def main(folders: Iterable[str]) -> None:
    """Make the bytecode of stale modules and of what they may import."""
    modules = stale(folders)
    if len(modules) <= FEW or sys.pycache_prefix:
        return
    helpers = [str(file) for file in Path("tests").rglob("*.py") if not file.name.startswith("test_")]
    imported = [str(file) for package in PACKAGES for file in Path(package).rglob("*.py")]
    imported += [file for file in helpers if not file.startswith(APART)]
    with ProcessPoolExecutor(os.cpu_count()) as cores:
        for _ in cores.map(make, [*modules, *imported], chunksize=20):
            pass


if __name__ == "__main__":
    main(sys.argv[1:])
