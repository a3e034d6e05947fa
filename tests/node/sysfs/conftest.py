"""Trees of ``/sys`` are thousands of small files, which a disk makes ten times slower than memory."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(short_dir: Path) -> Path:
    """Where there is room, in memory."""
    return short_dir
