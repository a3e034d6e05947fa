"""The unit as an installation writes it, and where its command is looked for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from systemd.release import SOURCE

UNIT = SOURCE / "systemd/ostler.service"


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a prefix in which there is a command, because systemd-analyze looks for it."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("missing: systemd-analyze (apt-get install systemd)")
    command = tmp_path / "current/bin/ostler"
    command.parent.mkdir(parents=True)
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    path = tmp_path / "ostler.service"
    path.write_text(UNIT.read_text().replace("/opt/ostler/", f"{tmp_path}/"))
    return path
