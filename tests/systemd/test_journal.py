"""Log lines as the journal takes them."""

from __future__ import annotations

import logging
import os

import pytest

from ostler.logs import JournalFormatter, TextFormatter, is_journal


@pytest.mark.parametrize(
    ("level", "priority"), [(logging.DEBUG, 7), (logging.INFO, 6), (logging.WARNING, 4), (logging.CRITICAL, 2)]
)
def test_every_line_carries_its_priority(level: int, priority: int) -> None:
    try:
        raise ValueError("x")
    except ValueError as error:
        fault = (type(error), error, error.__traceback__)
    record = logging.LogRecord("ostler.agent", level, "", 0, "it failed", (), fault)
    lines = JournalFormatter(TextFormatter()).format(record).splitlines()
    assert len(lines) > 2
    assert all(line.startswith(f"<{priority}>") for line in lines)


def test_the_journal_is_known_by_its_stream_and_no_other_file_is() -> None:
    reader, writer = os.pipe()
    status = os.fstat(writer)
    assert is_journal(writer, f"{status.st_dev}:{status.st_ino}")
    assert not is_journal(writer, f"{status.st_dev}:{status.st_ino + 1}")
    assert not is_journal(writer, "")
    os.close(reader)
    os.close(writer)
    assert not is_journal(writer, "1:1")
