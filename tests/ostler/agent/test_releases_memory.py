"""What is remembered of which pods had devices: it outlives the process, and a damaged file is set aside."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from node.files import read_record, write_record
from node.ledger.releases import FILE_NAME, SCHEMA
from tests.ostler.agent.books import Desk, deleted_by_force, gpu, play


def test_what_is_remembered_outlives_the_process(tmp_path: Path) -> None:
    async def first(desk: Desk) -> None:
        await deleted_by_force(desk)

    async def second(desk: Desk) -> None:
        desk.containers.running.add("a")
        await asyncio.sleep(1)
        (hold,) = desk.books.ledger.all
        assert "pod team/a (UID a)" in hold.words
        desk.containers.running.clear()
        await asyncio.sleep(2)
        assert not desk.books.ledger.all

    play(first, gpu(0), state_dir=tmp_path)
    play(second, gpu(0), state_dir=tmp_path)
    assert read_record(tmp_path / FILE_NAME, SCHEMA) == []


@pytest.mark.parametrize("data", [[], {}, "x", [1, {"device": "gpu-0"}, {"device": 1, "uid": [], "door": "x"}]])
def test_a_file_that_says_something_else_is_no_memory(data: object, tmp_path: Path) -> None:
    write_record(tmp_path / FILE_NAME, SCHEMA, data)  # type: ignore[arg-type]

    async def story(desk: Desk) -> None:
        assert not desk.books.tenants.all

    play(story, gpu(0), state_dir=tmp_path)


def test_a_damaged_file_is_set_aside_and_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE_NAME).write_text("{")

    async def story(desk: Desk) -> None:
        assert not desk.books.tenants.all

    play(story, gpu(0), state_dir=tmp_path)
    assert "the saved record of which pods had devices is unusable" in caplog.text
    assert len(list(tmp_path.glob(f"{FILE_NAME}.damaged-*"))) == 1
