"""Real file systems in a private mount namespace: limits, what a pod keeps, who sees what, and kills at any moment.

Each test is a function of ``tests.node.mps.mounting``, run by a process in namespaces of mounts and processes of its
own. One program runs them all, once for all workers; any user but root gets a user namespace for it, where the kernel
allows that.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.making.tours import made_once
from tests.node.mps.mounting import CASES

_NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
_USER = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]


@functools.cache
def refusal() -> str:
    """Why no namespaces are to be had here; empty where they are."""
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        return "util-linux is not installed"
    trial = [*_NAMESPACES, *_USER, "mount", "-t", "tmpfs", "trial", "/tmp"]
    return subprocess.run(trial, check=False, capture_output=True, text=True).stderr.strip()


@pytest.fixture
def ended(run_dir: Path) -> Mapping[str, tuple[int, str]]:
    """Exit code and output of each case."""
    found: Mapping[str, tuple[int, str]] = json.loads(made_once(run_dir / "mps-mounts.json", lambda: _run(run_dir)))
    return found


def _run(run_dir: Path) -> str:
    command = [*_NAMESPACES, *_USER, sys.executable, "-m", "tests.node.mps.mounting", str(run_dir / "mps-mounts")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=540)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("case", CASES)
@pytest.mark.skipif(bool(refusal()), reason=f"no mount namespace: {refusal()}")
def test_in_a_mount_namespace(case: str, ended: Mapping[str, tuple[int, str]]) -> None:
    code, output = ended[case]
    assert code == 0, output
