"""Commands as they are typed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ostler.cli.main import main
from tests.making.fit_command import Fit
from tests.making.pool_documents import claim, documents


@pytest.fixture
def fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Fit:
    return Fit(tmp_path, capsys)


@pytest.fixture
def explain(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., str]:
    """Asks about needs, or the claims of a file, and gives what was printed."""

    def run(*words: str, needs: Any = (), code: int = 1, **spec: Any) -> str:
        if needs:
            words = ("-f", documents(tmp_path, claim(*needs, name="trainer", **spec), name="need.yaml"), *words)
        assert main(["pools", "explain", *words]) == code
        printed = capsys.readouterr()
        return printed.err if code == 2 else printed.out

    return run
