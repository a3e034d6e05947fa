"""Real file systems in a private mount namespace: limits, what a pod keeps, who sees what, and kills at any moment.

Each test is a function of ``tests.node.mps.mounting``, run by a process in namespaces of its own. As root these are of
mounts and processes; any other user gets a user namespace besides, where the kernel allows it.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.node.mps.mounting import CASES

_NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
_USER = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
_SHARED = 'mount --make-rshared / && exec "$@"'


@functools.cache
def refusal() -> str:
    """Why no namespaces are to be had here; empty where they are."""
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        return "util-linux is not installed"
    trial = [*_NAMESPACES, *_USER, "mount", "-t", "tmpfs", "trial", "/tmp"]
    return subprocess.run(trial, check=False, capture_output=True, text=True).stderr.strip()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.skipif(bool(refusal()), reason=f"no mount namespace: {refusal()}")
def test_in_a_mount_namespace(case: str, tmp_path: Path) -> None:
    shared = [] if case.startswith("private_") else ["sh", "-c", _SHARED, "sh"]
    command = [*_NAMESPACES, *_USER, *shared, sys.executable, "-m", "tests.node.mps.mounting", case, str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
