"""Whether this user may create the namespaces in which plugins are started, and what still runs of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


def runs(pid: int) -> bool:
    """Whether the process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def privileged() -> bool:
    """Whether a mount namespace can be made without a user namespace."""
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


def user_namespaces() -> bool:
    """Whether a user namespace can be made."""
    command = ["unshare", "--user", "--map-root-user", "--mount", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


needs_namespaces = pytest.mark.skipif(
    not privileged() and not user_namespaces(), reason="this user may create no mount namespace"
)
