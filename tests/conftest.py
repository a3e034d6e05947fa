"""What every folder shares: a cheap collection, directories, and skips that are named."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import itertools
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import execnet
import hypothesis
import pytest

from node.inventory.recordings import source
from ostler.cli import progress
from ostler.cli.main import set_up_grpc
from sandbox import process
from sandbox.conformance import rule
from tests.making import forked_workers, fresh_examples, recordings
from tests.making.dying import DyingProcesses
from tests.making.forked_ostler import ForkedOstler
from tests.making.patience import PATIENCE, SANDBOX_LIMITS

# jsonschema would compile the grammars of IRIs, for a second of every worker. No schema that a test judges by has them.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

# Workers share few cores: how long an example takes says nothing about the code. Every run has the same examples, so
# that a run fails for what was changed alone; --hypothesis-seed=N makes others, and more where a test names no number.
for _name, _is_same, _examples in (("same", True, 50), ("others", False, 100)):
    hypothesis.settings.register_profile(
        _name,
        max_examples=_examples,
        derandomize=_is_same,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
hypothesis.settings.load_profile("same")
fresh_examples.make_no_variants()

# Servers and channels of tests work as those of the agent do; gRPC has not read its environment yet.
set_up_grpc(os.environ)

# The last collections of the interpreter find nothing that anybody needs, and take a second of every worker.
atexit.register(gc.freeze)

ROOM = 1 << 30
"""Bytes that must be free in memory for the directories of tests; containers often have 64 MiB there."""
RULE_PATIENCE = 540.0
"""Seconds for a rule of conformance: less than pytest gives a test (600), so that the verdict names the rule."""


def pytest_configure(config: pytest.Config) -> None:
    """A seed on the command line counts: Hypothesis ignores it where every run has the same examples."""
    if config.getoption("hypothesis_seed", None) is not None:
        hypothesis.settings.load_profile("others")


def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[execnet.XSpec]) -> None:
    """Several workers collect once: see ``tests.making.forked_workers``."""
    workers = contextlib.ExitStack()
    workers.enter_context(forked_workers.collecting(specs, config.invocation_params.args))
    config.add_cleanup(workers.close)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Keep the garbage collector out of the collection: it finds nothing in 15,000 items, and costs half the time.

    The items live as long as the worker, so that no later collection during a test needs to look at them either. What
    tests keep (recorded vectors, over a million objects) is looked at a hundred times less often than Python does by
    itself, which cost a tenth of a worker's time; what is young is looked at as often.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(*gc.get_threshold()[:2], 1000)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mix the files of all folders when several workers share them: tests that wait run beside tests that compute.

    In their own order, the folders that start agents come one after the other; at the end every worker waits in them
    and the cores are idle. A checksum of the path orders the files, because all workers must agree on one order. A
    file's tests stay together and in their order, and so do the fixtures that they share.
    """
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _place(item.nodeid.partition("::")[0]))


@functools.cache
def _place(path: str) -> int:
    return zlib.crc32(path.encode())


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all workers of this test run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session", autouse=True)
def shared_by_all_tests() -> Iterator[None]:
    """What the tests of a run share; one fixture, since every test asks for every one that is used automatically.

    Nodes in boxes fork their agents (``tests.making.forked_ostler``), which get time (``tests.making.patience``).
    Rules of conformance get it, too, which are judged eight at a time, and so does the allocator, so that no answer
    says that it gave up. Recorded nodes are read once (``tests.making.recordings``).
    """
    with contextlib.closing(ForkedOstler()) as forked, pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "start_ostler", forked.start)
        for limit in SANDBOX_LIMITS:
            patch.setattr(limit, PATIENCE)
        patch.setattr(rule, "LONGEST", RULE_PATIENCE)
        for name in ("PATIENCE", "WHAT_IF"):
            patch.setattr(progress, name, PATIENCE)
        patch.setattr(source, "load", recordings.load)
        yield


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for one test, as pytest's own; that one reads the names of all folders before it and writes a link."""
    name = re.sub(r"\W", "_", request.node.name)[:24]
    made = tmp_path_factory.getbasetemp() / f"{name}-{next(_folders)}"
    made.mkdir(0o700)
    return made


_folders = itertools.count()


@pytest.fixture
def executed_ostler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes in boxes start an interpreter for each agent: for tests of what is loaded and of the command line."""
    monkeypatch.setattr(process, "start_ostler", process.execute_ostler)


@pytest.fixture(scope="session")
def dying() -> Iterator[DyingProcesses]:
    """Processes that die: see ``tests.making.dying``."""
    with contextlib.closing(DyingProcesses()) as made:
        yield made


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory whose path leaves room for a Unix socket's name (107 bytes in all).

    It is in memory where there is room: kubelets and ledgers would wait for a disk half of their time.
    """
    # Both paths are equally long.
    folder, prefix = ("/dev/shm", "os-") if _memory_has_room() else ("/tmp", "ostler-")
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@functools.cache
def _memory_has_room() -> bool:
    memory = Path("/dev/shm")
    if not (memory.is_mount() and os.access(memory, os.W_OK)):
        return False
    found = os.statvfs(memory)
    return found.f_bavail * found.f_frsize > ROOM and not found.f_flag & os.ST_NOEXEC


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
