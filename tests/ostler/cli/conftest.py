"""Commands as they are typed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ostler.cli.main import main
from tests.making.fit_command import Fit
from tests.making.pool_documents import claim, documents
from tests.making.tours import made_once


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


@pytest.fixture(scope="session")
def installation(run_dir: Path) -> Path:
    """The prefix of an installation's bytecode, compiled once for all workers; its tests write nothing there."""
    prefix = run_dir / "installation"

    def install() -> str:
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = str(prefix)
        # Leaves the .pyc files of what an agent loads for its second door.
        for words in (("-c", "import scheduling.api.validation.objects"), ("-m", "ostler.cli.bytecode")):
            subprocess.run([sys.executable, *words], env=environment, check=True)
        return ""

    made_once(run_dir / "installation.made", install)
    return prefix
