"""Faults of work that nobody waits for, as the log has them (``node.tasks``)."""

from __future__ import annotations

from typing import Any

import pytest

from node import tasks


def reported(caplog: pytest.LogCaptureFixture) -> list[tuple[Any, Any]]:
    """Task and error of each line about a fault, which has a traceback; lines of other loggers do not count."""
    lines = [record for record in caplog.records if record.name == tasks.log.name]
    assert all(record.exc_info for record in lines)
    return [(vars(record)["task"], vars(record)["error"]) for record in lines]
