"""The record of health on the disk: written off the loop, whole, and never a reason to stop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from node.events import EventType
from node.files import read_record, write_record
from node.health.memory import SCHEMA, SavedHealth
from node.health.state import HealthState
from ostler.agent.health_record import HealthRecord
from tests.making.events import RecordedEvents
from tests.node.health.rig import A, HealthRig
from tests.waiting import background, eventually


@asynccontextmanager
async def running(record: HealthRecord) -> AsyncIterator[None]:
    async with background(record.run()):
        yield


def made(path: Path, told: RecordedEvents | None = None, boot: str = "boot-1") -> HealthRecord:
    return HealthRecord(path, boot, told or RecordedEvents())


def data() -> object:
    rig = HealthRig([A])
    rig.xid(A.name, 95)
    return rig.saved[-1]


async def test_what_is_saved_is_there_for_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "state" / "health.json"
    record = made(path)
    async with running(record):
        record.save(data())  # type: ignore[arg-type]  # plain JSON
        await eventually(path.exists)
    rig = HealthRig([A], memory=made(path).load())
    assert rig.state(A.name) is HealthState.UNHEALTHY


async def test_what_is_left_when_the_agent_ends_is_written(tmp_path: Path) -> None:
    path = tmp_path / "health.json"
    record = made(path)
    async with running(record):
        await asyncio.sleep(0)
        record.save({"boot": "boot-1"})
    assert read_record(path, SCHEMA) == {"boot": "boot-1"}


async def test_a_standby_writes_nothing(tmp_path: Path) -> None:
    record = made(tmp_path / "health.json")
    record.save({"boot": "boot-1"})
    await asyncio.sleep(0)
    assert list(tmp_path.iterdir()) == []


def test_no_file_is_no_memory(tmp_path: Path) -> None:
    told = RecordedEvents()
    assert made(tmp_path / "health.json", told).load() == SavedHealth()
    assert told.events == []


def test_a_damaged_file_is_set_aside_and_told(tmp_path: Path) -> None:
    path, told = tmp_path / "health.json", RecordedEvents()
    write_record(path, SCHEMA, {"boot": "boot-1"})
    path.write_text(path.read_text().replace("boot-1", "boot-2"))
    assert made(path, told).load() is None
    assert not path.exists()
    ((kind, reason, message),) = told.events
    assert (kind, reason) == (EventType.WARNING, "HealthForgotten")
    assert message.startswith(f"the saved health state is unusable and was discarded: {path} is damaged")
    assert "it was set aside as health.json.damaged-1" in message


async def test_a_newer_agents_file_survives_a_downgrade(tmp_path: Path) -> None:
    path, told = tmp_path / "health.json", RecordedEvents()
    write_record(path, "ostler.dev/health/v2", {"new": True})
    record = made(path, told)
    assert record.load() is None
    async with running(record):
        record.save({"boot": "boot-1"})
    assert json.loads(path.read_text())["data"] == {"new": True}
    assert told.reasons == ["HealthForgotten"]


async def test_a_newer_agents_file_survives_what_is_left_when_the_agent_ends(tmp_path: Path) -> None:
    path = tmp_path / "health.json"
    write_record(path, "ostler.dev/health/v2", {"new": True})
    record = made(path)
    record.load()
    async with running(record):
        await asyncio.sleep(0)
        record.save({"boot": "boot-1"})
    assert json.loads(path.read_text())["data"] == {"new": True}


@asynccontextmanager
async def unwritten(path: Path, caplog: pytest.LogCaptureFixture, retry: float) -> AsyncIterator[None]:
    """Run with something to save, from when it was seen that the disk does not take it, and could now."""
    path.parent.write_text("in the way")
    record = HealthRecord(path, "boot-1", RecordedEvents(), retry=retry)
    async with running(record):
        record.save({"boot": "boot-1"})
        await eventually(lambda: "cannot save the health state" in caplog.text)
        path.parent.unlink()
        yield


async def test_a_disk_that_cannot_be_written_is_told_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "state" / "health.json"
    async with unwritten(path, caplog, retry=0.001):
        await eventually(path.exists)
    assert caplog.text.count("cannot save the health state") == 1


async def test_what_could_not_be_written_is_tried_once_more_when_the_agent_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "state" / "health.json"
    async with unwritten(path, caplog, retry=3600):
        assert not path.exists()
    assert path.exists()


async def test_who_waits_for_the_disk_is_told_when_the_newest_is_on_it(tmp_path: Path) -> None:
    path = tmp_path / "health.json"
    record = made(path)
    async with running(record):
        assert await record.kept() == ""
        for boot in ("boot-1", "boot-2", "boot-3"):
            record.save({"boot": boot})
            assert await record.kept() == ""
            assert read_record(path, SCHEMA) == {"boot": boot}


async def test_who_waits_for_a_disk_that_is_full_is_told_so_until_it_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.write_text("in the way")
    record = HealthRecord(folder / "health.json", "boot-1", RecordedEvents(), retry=0.001)
    async with running(record):
        record.save({"boot": "boot-1"})
        assert "File exists" in await record.kept()
        record.save({"boot": "boot-2"})
        assert await record.kept()
        folder.unlink()
        await eventually(lambda: not record.problem)
        assert await record.kept() == ""
        assert read_record(folder / "health.json", SCHEMA) == {"boot": "boot-2"}


async def test_who_waits_for_a_newer_agents_file_is_told_that_it_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "health.json"
    write_record(path, "ostler.dev/health/v2", {"new": True})
    record = made(path)
    record.load()
    async with running(record):
        record.save({"boot": "boot-1"})
        assert "the file is left as it is" in await record.kept()
