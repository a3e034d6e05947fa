"""The judge, where it can be built."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.cluster.components.toolchain import ToolchainMissing
from tests.judge.answers import Judge
from tests.judge.build import judge as built


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    """Kubernetes' answers; skips where there is no Go, or its modules cannot be fetched."""
    try:
        built()
    except (ToolchainMissing, subprocess.CalledProcessError) as error:
        pytest.skip(f"the judge cannot be built here: {error}")
    # A case takes milliseconds, or has no end that could be waited for.
    with Judge(deadline_s=1.0) as opened:
        yield opened
