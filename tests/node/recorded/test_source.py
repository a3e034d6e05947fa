from __future__ import annotations

import logging
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from node.inventory.facts import CdiFacts, NodeFacts
from node.inventory.recordings import document
from node.inventory.recordings.source import RecordedSource, RecordingError, dump, read
from node.inventory.source import Source

FIRST = NodeFacts(cdi=CdiFacts(("nvidia.com/gpu=0",)))
SECOND = NodeFacts(cdi=CdiFacts(("nvidia.com/gpu=0", "nvidia.com/gpu=1")))


def replace(path: Path, text: str) -> None:
    """As editors save: another inode."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def text(facts: NodeFacts) -> str:
    return dump(facts, name="n", description="d", recorded_at=datetime(2026, 1, 31, tzinfo=UTC))


@pytest.fixture(autouse=True)
def every_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a node; other tests keep what was read of the same text."""
    monkeypatch.setattr("node.inventory.recordings.source.load", document.load)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "node.yaml"
    file.write_text(text(FIRST))
    return file


def test_the_recorded_facts_are_read(path: Path) -> None:
    source: Source = RecordedSource(path)

    assert source.name == "recorded"
    assert source.read() == FIRST


def test_an_unchanged_file_gives_the_very_same_facts(path: Path) -> None:
    source = RecordedSource(path)

    assert source.read() is source.read()


def test_a_replaced_file_is_read_again(path: Path) -> None:
    source = RecordedSource(path)
    source.read()

    replace(path, text(SECOND))

    assert source.read() == SECOND


def test_a_file_written_in_place_is_read_again(path: Path) -> None:
    source = RecordedSource(path)
    source.read()

    path.write_text(text(SECOND))
    os.utime(path, ns=(1, 1))

    assert source.read() == SECOND


def test_a_file_that_breaks_keeps_the_last_facts_and_is_logged_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = RecordedSource(path)
    source.read()
    replace(path, "schema: [")

    with caplog.at_level(logging.ERROR, "ostler.inventory"):
        assert [source.read() for _ in range(3)] == [FIRST] * 3

    assert [record.message for record in caplog.records] == [
        "cannot read the recorded node again; its last facts stay in use"
    ]
    assert "not valid YAML" in caplog.records[0].__dict__["error"]

    replace(path, text(SECOND))
    assert source.read() == SECOND


def test_a_file_that_vanishes_keeps_the_last_facts(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = RecordedSource(path)
    source.read()
    path.unlink()

    with caplog.at_level(logging.ERROR, "ostler.inventory"):
        assert [source.read() for _ in range(3)] == [FIRST] * 3

    assert [record.__dict__["error"] for record in caplog.records] == [
        f"{path}: cannot be read: No such file or directory"
    ]


def test_a_file_that_is_bad_from_the_start_is_the_callers_error(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text("schema: 1\n")
    source = RecordedSource(path)

    with pytest.raises(
        RecordingError, match=rf"^{path}:1: schema: '1' is not the schema of a recorded node; allowed: ostler"
    ):
        source.read()

    path.write_text(text(FIRST))
    assert source.read() == FIRST


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=f"^{tmp_path}/absent.yaml: cannot be read: No such file or directory$"):
        read(tmp_path / "absent.yaml")


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_bytes(b"schema: \xff")

    with pytest.raises(RecordingError, match=f"^{path}: no UTF-8 text: invalid start byte at byte 8$"):
        read(path)


def test_after_close_the_file_is_read_anew(path: Path) -> None:
    source = RecordedSource(path)
    first = source.read()
    source.close()

    again = source.read()

    assert again == first
    assert again is not first


def test_yaml_is_imported_only_when_a_node_is_read() -> None:
    code = (
        "import sys, node.inventory.recordings.source, node.inventory.cdi_specs, node.inventory.sysfs.source, "
        "node.inventory.nvidia.driver_files; sys.exit('yaml' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
