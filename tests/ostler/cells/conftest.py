"""The commands on cells, and a configuration for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ostler.cli.main import main
from tests.making.cells import CONFIGURATION, Command


@pytest.fixture
def cells_command(capsys: pytest.CaptureFixture[str]) -> Callable[[str], Command]:
    """A command below `ostler cells` by its name: it returns what it printed, on both streams."""

    def of(name: str) -> Command:
        def run(*words: str, code: int = 0) -> tuple[str, str]:
            assert main(["cells", name, *words]) == code
            printed = capsys.readouterr()
            return printed.out, printed.err

        return run

    return of


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file with the configuration."""
    (path := tmp_path / "cells.yaml").write_text(CONFIGURATION)
    return str(path)
