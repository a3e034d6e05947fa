"""What most tests here start from: the command asked about files, and the certificates of tests of the API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kube.conftest import account, authority
from tests.scheduling.explain.cases import Answers

__all__ = ["account", "answers", "authority"]


@pytest.fixture
def answers(tmp_path: Path, capsys: Any) -> Answers:
    return Answers(tmp_path, capsys)
