"""Whether this user may create the namespaces in which plugins are started, and the skip of tests that need them."""

from __future__ import annotations

import subprocess

import pytest


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
