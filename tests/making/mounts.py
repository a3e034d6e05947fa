"""Folders below which a test may mount as an agent does, in the mount namespace of the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from node.mps.mounts import read_mounts

_TRIAL = ["unshare", "--mount", "mount", "-t", "tmpfs", "trial", "/tmp"]


def may_mount() -> bool:
    """Whether this process may mount file systems."""
    if os.geteuid() != 0 or any(shutil.which(tool) is None for tool in ("unshare", "mount", "umount")):
        return False
    return subprocess.run(_TRIAL, check=False, capture_output=True).returncode == 0


needs_mounts = pytest.mark.skipif(not may_mount(), reason="only root with CAP_SYS_ADMIN may mount file systems")


@contextmanager
def propagating(folder: Path) -> Iterator[Path]:
    """The folder as the node has it for agents: what is mounted there propagates. Nothing stays mounted below it."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        subprocess.run(["mount", "--make-shared", folder], check=True)
        yield folder
    finally:
        while any(mount.point == folder for mount in read_mounts(Path("/proc/self/mountinfo"))):
            subprocess.run(["umount", "--recursive", "--lazy", folder], check=True)
