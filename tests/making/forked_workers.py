"""Runs tests in workers forked after the collection: ``pytest -p tests.making.forked_workers --workers 5``.

Each worker of pytest-xdist imports and collects everything again: four seconds of a core, ten without bytecode. Here
one process collects, and its forks have every item already.

Each worker begins with an equal stretch of the items, in the order of collection. A worker that is done takes over the
back half of the longest stretch that is left. The stretches are in shared memory, under a lock that the kernel releases
when its holder dies. A worker takes its next item before it runs the current one, because pytest keeps only those
fixtures that the next item uses.

Invariants: one worker takes an item. The run fails unless every item has been finished. A worker that dies fails the
item that it ran, and a new worker goes on with its stretch. The parent has no threads and runs no test, so that it can
fork at any time.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import pickle
import selectors
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import pytest
from _pytest.reports import TestReport

NOTHING = -1

GRACE_SECONDS = 10.0
"""How long workers may take to end their fixtures after an interrupt."""


class Stretches:
    """Which worker runs what: its next item, the end of its stretch, and the items that it runs and has taken."""

    def __init__(self, items: int, workers: int) -> None:
        self.workers = workers
        self._memory = memoryview(mmap.mmap(-1, 8 * (1 + 4 * workers))).cast("q")
        self._lock = tempfile.TemporaryFile()  # noqa: SIM115 - open for as long as the workers run
        for worker in range(workers):
            self._put(worker, items * worker // workers, items * (worker + 1) // workers, NOTHING, NOTHING)

    def take(self, worker: int) -> int | None:
        """Take one more item; the one that the worker took before is now the running one."""
        with self._locked():
            start, end, _, running = self._get(worker)
            if start >= end and not self._stopped:
                start, end = self._stolen()
            if start >= end or self._stopped:
                self._put(worker, 0, 0, running, NOTHING)
                return None
            self._put(worker, start + 1, end, running, start)
            return start

    def died(self, worker: int) -> int | None:
        """Return the item that a dead worker ran; its successor goes on behind that item."""
        with self._locked():
            start, end, running, taken = self._get(worker)
            self._put(worker, start if taken == NOTHING else taken, end, NOTHING, NOTHING)
        return None if running == NOTHING else running

    def stop(self) -> None:
        """Let no worker take another item."""
        self._memory[0] = 1

    def close(self) -> None:
        """Release the lock's file."""
        self._lock.close()

    @property
    def _stopped(self) -> bool:
        return self._memory[0] != 0

    def _get(self, worker: int) -> tuple[int, ...]:
        return tuple(self._memory[1 + 4 * worker : 5 + 4 * worker])

    def _put(self, worker: int, *values: int) -> None:
        for place, value in enumerate(values, 1 + 4 * worker):
            self._memory[place] = value

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)

    def _stolen(self) -> tuple[int, int]:
        longest = max(range(self.workers), key=lambda each: self._get(each)[1] - self._get(each)[0])
        start, end, running, taken = self._get(longest)
        middle = end - (end - start + 1) // 2
        self._put(longest, start, middle, running, taken)
        return middle, end


class Forwarder:
    """A worker's plugin: sends reports and warnings to the parent."""

    def __init__(self, config: pytest.Config, pipe: int) -> None:
        self._config = config
        self._pipe = os.fdopen(pipe, "wb")

    def send(self, kind: str, content: object) -> None:
        """Send one message; raises BrokenPipeError when the parent is gone."""
        message = pickle.dumps((kind, content))
        self._pipe.write(len(message).to_bytes(8, "big") + message)
        self._pipe.flush()

    def pytest_runtest_logreport(self, report: TestReport) -> None:
        """Send a report."""
        self.send("report", self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        """Send a warning that the filters let pass."""
        given = warning_message
        told = (str(given.message), given.category.__name__, given.filename, given.lineno)
        self.send("warning", (told, when, nodeid, location))


class Worker:
    """One forked worker, as its parent sees it."""

    def __init__(self, number: int, session: pytest.Session, stretches: Stretches, others: Iterable[Worker]) -> None:
        self.number = number
        self.has_finished = False
        self._received = b""
        sys.stdout.flush()
        sys.stderr.flush()
        self.pipe, theirs = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            for other in (self, *others):
                os.close(other.pipe)
            _work(number, session, stretches, theirs)
        os.close(theirs)
        os.set_blocking(self.pipe, False)
        # Its end is that of the process: what a test has forked may hold the pipe open for longer.
        self.life = os.pidfd_open(self.pid)

    def messages(self) -> list[tuple[str, Any]]:
        """Return the messages that have arrived."""
        with contextlib.suppress(BlockingIOError):
            while arrived := os.read(self.pipe, 1 << 20):
                self._received += arrived
        found = []
        start = 0
        while len(self._received) >= (begin := start + 8):
            end = begin + int.from_bytes(self._received[start:begin], "big")
            if len(self._received) < end:
                break
            found.append(pickle.loads(self._received[begin:end]))
            start = end
        self._received = self._received[start:]
        return found

    def reap(self) -> int:
        """Wait for its end and return its exit code, below 0 for a signal."""
        os.close(self.life)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _work(number: int, session: pytest.Session, stretches: Stretches, pipe: int) -> NoReturn:
    """Run items until none is left."""
    code = 1
    try:
        _separate(number, session.config)
        forwarder = Forwarder(session.config, pipe)
        session.config.pluginmanager.register(forwarder)
        try:
            index = stretches.take(number)
            while index is not None:
                following = stretches.take(number)
                item = session.items[index]
                after = None if following is None else session.items[following]
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                forwarder.send("finished", index)
                index = following
        finally:
            session._setupstate.teardown_exact(None)
        # Exceptions that nobody has seen fail the run here.
        session.config._ensure_unconfigure()
        forwarder.send("end", None)
        code = 0
    except (KeyboardInterrupt, BrokenPipeError):
        pass
    except BaseException:  # noqa: BLE001 - whatever it is, the output shows it
        capturing = session.config.pluginmanager.getplugin("capturemanager")
        if capturing is not None:
            capturing.stop_global_capturing()
        traceback.print_exc()
    finally:
        os._exit(code)


def _separate(number: int, config: pytest.Config) -> None:
    """Part from what the fork shares with its parent: the terminal, the file of captured output, the folder."""
    # The customary sign that others run beside this process.
    os.environ["PYTEST_XDIST_WORKER"] = f"gw{number}"
    config.pluginmanager.unregister(name="terminalreporter")
    capturing = config.pluginmanager.getplugin("capturemanager")
    if capturing is not None:
        capturing.stop_global_capturing()
        capturing.start_global_capturing()
    folders = config._tmp_path_factory  # type: ignore[attr-defined]
    folders._given_basetemp = folders.getbasetemp() / f"worker-{number}-{os.getpid()}"
    folders._basetemp = None
    folders._exit_stack = contextlib.ExitStack()


class Run:
    """The workers of one test run, and what their parent hears from them."""

    def __init__(self, session: pytest.Session, workers: int) -> None:
        self._session = session
        self._unfinished = set(range(len(session.items)))
        self._stretches = Stretches(len(session.items), workers)
        self._selector = selectors.DefaultSelector()
        self._workers: dict[int, Worker] = {}
        # The parent makes the folder that its workers' folders are in.
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        for number in range(workers):
            self._begin(number)

    def follow(self) -> None:
        """Pass on what the workers report until they have all ended."""
        try:
            while self._workers:
                self._hear_all()
                if self._session.shouldfail or self._session.shouldstop:
                    self._stretches.stop()
        finally:
            self._close()
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)
        if self._unfinished:
            missing = [self._session.items[index].nodeid for index in sorted(self._unfinished)]
            raise RuntimeError(f"no worker has finished {', '.join(missing)}")

    def _begin(self, number: int) -> None:
        worker = Worker(number, self._session, self._stretches, self._workers.values())
        self._workers[number] = worker
        self._selector.register(worker.pipe, selectors.EVENT_READ, worker)
        self._selector.register(worker.life, selectors.EVENT_READ, worker)

    def _hear_all(self) -> None:
        ready = self._selector.select()
        for worker in {key.data.number: key.data for key, _ in ready}.values():
            has_died = any(key.fd == worker.life for key, _ in ready)
            for kind, content in worker.messages():
                self._hear(worker, kind, content)
            if has_died:
                self._forget(worker)
                code = worker.reap()
                if not worker.has_finished:
                    self._replace(worker, code)

    def _hear(self, worker: Worker, kind: str, content: Any) -> None:
        config = self._session.config
        if kind == "report":
            report = config.hook.pytest_report_from_serializable(config=config, data=content)
            config.hook.pytest_runtest_logreport(report=report)
        elif kind == "finished":
            self._unfinished.discard(content)
            item = self._session.items[content]
            config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        elif kind == "warning":
            (text, category, filename, line), when, nodeid, location = content
            message = warnings.WarningMessage(text, type(category, (Warning,), {}), filename, line)
            told = {"warning_message": message, "when": when, "nodeid": nodeid, "location": location}
            config.hook.pytest_warning_recorded.call_historic(kwargs=told)
        else:
            worker.has_finished = True

    def _forget(self, worker: Worker) -> None:
        del self._workers[worker.number]
        self._selector.unregister(worker.pipe)
        self._selector.unregister(worker.life)
        os.close(worker.pipe)

    def _replace(self, worker: Worker, code: int) -> None:
        """Fail the item that a dead worker ran, and begin its successor."""
        running = self._stretches.died(worker.number)
        if running is None or running not in self._unfinished:
            raise RuntimeError(f"worker {worker.number} ended with exit code {code} while it ran no test")
        self._unfinished.discard(running)
        item = self._session.items[running]
        text = f"worker {worker.number} ended with exit code {code} while it ran {item.nodeid}"
        report = TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        self._session.config.hook.pytest_runtest_logreport(report=report)
        self._begin(worker.number)

    def _close(self) -> None:
        """End the workers that are left after an interrupt or a fault: they fail to report, and end their fixtures."""
        self._stretches.stop()
        left = list(self._workers.values())
        for worker in left:
            self._forget(worker)
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in left:
            with selectors.DefaultSelector() as ending:
                ending.register(worker.life, selectors.EVENT_READ)
                if not ending.select(max(0.0, deadline - time.monotonic())):
                    os.kill(worker.pid, signal.SIGKILL)
            worker.reap()
        self._selector.close()
        self._stretches.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--workers``."""
    parser.addoption("--workers", type=int, default=1, help="run the tests in so many forked processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the collected items in workers; leave it to pytest where one is enough or nothing is to be run."""
    option = session.config.option
    workers = min(option.workers, len(session.items))
    if workers < 2 or option.collectonly or option.usepdb or session.testsfailed:
        return None
    terminal = session.config.pluginmanager.getplugin("terminalreporter")
    if terminal is not None:
        # Reports come from several files at a time.
        terminal.showfspath = False
    Run(session, workers).follow()
    return True
