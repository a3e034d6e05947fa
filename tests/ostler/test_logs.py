"""How values stand in a log line."""

from __future__ import annotations

import json
import logging
import random
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from node.rules import Door
from ostler.logs import FEW, SHORT, JournalFormatter, JsonFormatter, LineHandler, TextFormatter


def _line(value: object) -> str:
    fields = {"name": "ostler.plugin", "msg": "devices allocated", "levelname": "INFO", "created": 0.5, "value": value}
    return TextFormatter().format(logging.makeLogRecord(fields))


@pytest.mark.parametrize(
    "value",
    [
        [],
        ["GPU-1", "GPU-2"],
        ['with "quotes"', "and\nlines", "\u00fc\U0001f600"],
        [Door.DRA],
        ["GPU-1", 2, None],
        [["GPU-1"], {"a": 1}],
        [1, 2],
        [True, 2],
        ["GPU-1"] * FEW * 2,
        [Path("/dev/nvidia0")],
        ("GPU-1", "GPU-2"),
        {"GPU-1": ["a b"]},
    ],
)
def test_a_value_that_is_no_text_is_quoted_json(value: object) -> None:
    text = json.dumps(value, default=str)
    quoted = text if text.isalnum() or text in ("[]", "{}") else json.dumps(text)
    assert _line(value) == (
        f'time=1970-01-01T00:00:00.500Z level=info logger=plugin msg="devices allocated" value={quoted}'
    )


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "two words",
        'a"b',
        "a=b",
        "\u00fc",
        Door.DRA,
        "x" * SHORT * 2,
        "x " * SHORT,
        "a\rb",
        "\x1b[2J",
        "a\u2028b",
    ],
)
def test_a_text_is_quoted_only_where_it_must_be(text: str) -> None:
    needed = any(each in ' "=' or not each.isprintable() for each in text)
    for _ in range(2):
        assert _line(text).endswith(f" value={json.dumps(text) if needed else text}")


def test_the_journal_gets_a_record_in_one_entry_whatever_characters_it_has() -> None:
    fields = {"name": "ostler.plugin", "msg": "a\u2028b\x85c", "levelname": "INFO", "levelno": 20, "created": 0.5}
    line = JournalFormatter(JsonFormatter()).format(logging.makeLogRecord(fields))
    assert json.loads(line.removeprefix("<6>"))["msg"] == "a\u2028b\x85c"


_CONFIGURED = """
import asyncio, threading

from ostler.config.settings import LogFormat, LogSettings
from ostler.logs import configure

configure(LogSettings(level="info", format=LogFormat.JSON))


def fail():
    raise TypeError("a bug")
"""
_TASK = """
async def main():
    await asyncio.wait((asyncio.create_task(asyncio.to_thread(fail)),))

asyncio.run(main())
"""
_THREAD = """
thread = threading.Thread(target=fail, name="poster")
thread.start()
thread.join()
"""


def _logged(program: str) -> dict[str, str]:
    """The one line that a program logs, whose last statements are these."""
    command = [sys.executable, "-c", _CONFIGURED + program]
    (line,) = subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()
    found: dict[str, str] = json.loads(line)
    return found


def test_the_fault_of_a_task_that_nobody_waits_for_is_a_line_of_the_log() -> None:
    line = _logged(_TASK)
    assert (line["level"], line["logger"]) == ("error", "asyncio")
    assert line["msg"].startswith("Task exception was never retrieved")
    assert line["traceback"].endswith("TypeError: a bug")


def test_the_fault_of_a_thread_is_a_line_of_the_log() -> None:
    line = _logged(_THREAD)
    assert (line["level"], line["msg"]) == ("error", "a thread failed unexpectedly")
    assert (line["task"], line["error"]) == ("poster", "TypeError: a bug")
    assert line["traceback"].endswith("TypeError: a bug")


@pytest.mark.parametrize(
    ("created", "text"),
    [
        (0.0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000.25, "2023-11-14T22:13:20.250Z"),
        (1_700_000_000.999_9, "2023-11-14T22:13:20.999Z"),
        (1_700_000_001.5, "2023-11-14T22:13:21.500Z"),
        (1_700_000_000.5, "2023-11-14T22:13:20.500Z"),
        (1_700_000_000.123, "2023-11-14T22:13:20.123Z"),
        (1_700_000_000.001, "2023-11-14T22:13:20.001Z"),
        (1_700_000_000.999_999_8, "2023-11-14T22:13:21.000Z"),
        (-0.25, "1969-12-31T23:59:59.750Z"),
    ],
)
def test_a_time_has_milliseconds(created: float, text: str) -> None:
    assert _at(created) == f"time={text} level=info logger=ostler msg=m"


def _at(created: float) -> str:
    record = logging.makeLogRecord({"name": "ostler", "msg": "m", "levelname": "INFO", "created": created})
    return TextFormatter().format(record)


def test_every_time_is_written_as_datetime_writes_it() -> None:
    made = random.Random(1)
    times = [made.uniform(-1e6, 4e9) for _ in range(2000)]
    times += [round(each, digits) for each in times for digits in (1, 3, 6)]
    for created in times:
        text = datetime.fromtimestamp(created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        assert _at(created).split()[0] == f"time={text}", created


def _handled(path: Path, *records: dict[str, object]) -> str:
    """What a file that ends its lines itself, as standard error does, has before it is closed."""
    with path.open("w", buffering=1) as stream:
        handler = LineHandler(stream)
        handler.setFormatter(TextFormatter())
        for fields in records:
            handler.handle(logging.makeLogRecord({"name": "ostler", "levelname": "INFO", "created": 0.0, **fields}))
        return path.read_text()


def test_a_line_is_written_at_once(tmp_path: Path) -> None:
    assert _handled(tmp_path / "log", {"msg": "one"}, {"msg": "two"}).splitlines() == [
        f"time=1970-01-01T00:00:00.000Z level=info logger=ostler msg={word}" for word in ("one", "two")
    ]


def test_whoever_logs_does_not_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    written = _handled(tmp_path / "log", {"msg": "%d", "args": ("no number",)}, {"msg": "two"})
    assert [line.rpartition("=")[2] for line in written.splitlines()] == ["two"]


class Endless:
    def __str__(self) -> str:
        return f"{self}"


def test_endless_recursion_is_not_swallowed(tmp_path: Path) -> None:
    with pytest.raises(RecursionError):
        _handled(tmp_path / "log", {"msg": Endless()})


def test_an_error_is_followed_by_its_traceback() -> None:
    try:
        raise ValueError("broken")
    except ValueError as error:
        fault = type(error), error, error.__traceback__
    record = logging.makeLogRecord(
        {"name": "ostler", "msg": "m", "levelname": "ERROR", "created": 0.0, "exc_info": fault}
    )
    first, *rest = TextFormatter().format(record).splitlines()
    assert first == "time=1970-01-01T00:00:00.000Z level=error logger=ostler msg=m"
    assert rest[0] == "Traceback (most recent call last):"
    assert rest[-1] == "ValueError: broken"
    assert json.loads(JsonFormatter().format(record))["traceback"].endswith("ValueError: broken")
