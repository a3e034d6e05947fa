from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "examples" / "led-board"


def test_the_led_board_runs_as_its_page_says() -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "demo.py")],
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"```text\n{done.stdout}```\n" in (FOLDER / "README.md").read_text()


def test_the_driver_is_short() -> None:
    assert len((FOLDER / "board.py").read_text().splitlines()) < 150
