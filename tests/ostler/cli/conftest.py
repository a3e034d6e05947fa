"""Commands as they are typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.making.fit_command import Fit


@pytest.fixture
def fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Fit:
    return Fit(tmp_path, capsys)
