"""What most tests here start from: the command asked about files, and the certificates of tests of the API server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ostler.explain.files import FileObjects, read_files
from tests.kube.conftest import account, authority
from tests.scheduling.explain.cases import CaseAnswers

__all__ = ["account", "answers", "authority"]


@pytest.fixture
def answers(tmp_path: Path, capsys: Any) -> CaseAnswers:
    return CaseAnswers(tmp_path, capsys)


@pytest.fixture
def same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is run where its files are, so that messages name them as they were given."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def read(same_folder: None) -> Callable[..., FileObjects]:
    """Reads a text as a file."""

    def from_text(text: str | bytes, name: str = "a.yaml") -> FileObjects:
        Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_files([name])

    return from_text
