"""Fixtures every folder shares: short directories for sockets, and waiting for a condition."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# Workers share few cores: how long an example takes says nothing about the code.
hypothesis.settings.register_profile("shared", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("shared")


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory whose path leaves room for a Unix socket's name (107 bytes in all)."""
    path = Path(tempfile.mkdtemp(prefix="ostler-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name every skipped test: whoever reads the summary knows what was not proved on this machine."""
    for report in terminalreporter.getreports("skipped"):
        terminalreporter.write_line(f"not run here: {report.nodeid}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Where nothing may be missing (continuous integration), a skip is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("OSTLER_NO_SKIPS") and reporter is not None and reporter.getreports("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
