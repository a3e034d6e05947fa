"""Workers of pytest-xdist, forked from one process that has collected the tests: each would collect them for itself.

A collection takes six seconds of a core, and all workers' collections give the same. The process that collects has no
threads, so that it can fork. pytest-xdist starts ``worker_start.py`` in place of an interpreter. That program hands its
input and output to a fork of the collecting process, and the fork is a worker as any other. Where the collecting
process cannot fork (the arguments are wrong, a test module has started a thread), ``worker_start.py`` becomes an
interpreter, and the worker collects for itself and shows what is wrong.

``python -m tests.making.forked_workers DESCRIPTOR DESCRIPTOR ARGUMENTS`` is the collecting process: the descriptors are
those of the sockets that listen for workers and for workers that need agents, the arguments those of pytest. It ends
with its input.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import importlib
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import _pytest.config
import execnet
import pytest
from _pytest.capture import CaptureManager

from tests.making import forked_ostler, worker_start
from tests.making.roomy_stack import call_with_room

FEW = 2
"""From so many workers on, one collection for all is less work."""


@contextlib.contextmanager
def collecting(specs: Sequence[execnet.XSpec], arguments: Sequence[str]) -> Iterator[None]:
    """Have the workers of these specifications forked from a process that collects, as long as this is entered."""
    if len(specs) < FEW or any(not spec.popen or spec.python or spec.chdir for spec in specs):
        yield
        return
    folder = Path(tempfile.mkdtemp(prefix="ostler-workers-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        with (
            _listen(folder / "workers", socket.SOCK_STREAM, len(specs)) as workers,
            _listen(folder / "ostler", socket.SOCK_SEQPACKET, len(specs)) as forks,
        ):
            listeners = (workers.fileno(), forks.fileno())
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, *map(str, listeners), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env={**os.environ, forked_ostler.SHARED: str(folder / "ostler")},
                pass_fds=listeners,
            )
        stack.enter_context(process)
        command = shlex.join([sys.executable, "-I", "-S", worker_start.__file__, str(folder / "workers")])
        for spec in specs:
            spec.python = command
        yield


def _listen(path: Path, kind: socket.SocketKind, most: int) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, kind)
    made.bind(str(path))
    made.listen(most)
    return made


class ForkingCollector:
    """A plugin of the process that collects: it forks a worker for each connection in place of running tests.

    When the first worker needs agents, this process starts the parent that all workers share (``forked_ostler``).
    """

    def __init__(self, listener: socket.socket, forks: socket.socket) -> None:
        self._listener = listener
        self._forks = forks
        self._session: pytest.Session | None = None
        self._reports: list[pytest.CollectReport] = []

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep what workers send: failures and skips."""
        if not report.passed:
            self._reports.append(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Fork workers until the input ends; a worker leaves the tests to pytest-xdist."""
        if self._session is not None:
            return None
        self._session = session
        _capture(session.config).stop_global_capturing()
        sys.stdout.flush()
        if len(list(Path("/proc/self/task").iterdir())) > 1:
            return True
        # Control-C ends the workers, and with them the run.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        workers = []
        parent = None
        forks = self._forks.fileno()
        watched = [self._listener.fileno(), forks, 0]
        while 0 not in (readable := select.select(watched, [], [])[0]):
            if forks in readable:
                watched.remove(forks)
                parent = _start_parent(self._forks)
                # The parent alone listens now: if it dies, workers that ask for agents fail, and do not wait for it.
                self._forks.close()
            if self._listener.fileno() in readable:
                workers.append(self._fork_worker())
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
            os.waitpid(worker, 0)
        if parent is not None:
            # Its input ends.
            parent.communicate()
        return True

    def _fork_worker(self) -> int:
        connection, _ = self._listener.accept()
        with connection:
            _, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
            if not (worker := os.fork()):
                self._become_worker(connection, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
        return worker

    def _become_worker(self, connection: socket.socket, descriptors: Sequence[int]) -> None:
        """Do what ``python -u -c BOOTSTRAP`` does, with the collected tests; never returns."""
        assert self._session is not None
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._listener.close()
            self._forks.close()
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            connection.send(worker_start.FORKED)
            collected = self._session.config
            setattr(_pytest.config, "_prepareconfig", lambda *_: collected)  # noqa: B010 - typed as a function of pytest
            sys.stdin = os.fdopen(0, closefd=False)
            exec(eval(sys.stdin.readline()), {"__name__": "__main__"})
            code = 0
        except BaseException:  # noqa: BLE001 - whatever it is, it is shown
            traceback.print_exc()
        finally:
            atexit._run_exitfuncs()
            sys.stderr.flush()
            os._exit(code)

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> int | None:
        """Run the tests of a worker, as ``_pytest.main.wrap_session`` does after a collection."""
        if self._session is None:
            return None
        capture = _capture(config)
        capture.start_global_capturing()
        capture.suspend_global_capture()
        made: Any = config
        made._tmp_path_factory = pytest.TempPathFactory.from_config(config, _ispytest=True)
        self._tell_collection(config, self._session)
        return _run(config, self._session)

    def _tell_collection(self, config: pytest.Config, session: pytest.Session) -> None:
        """Send what pytest-xdist's part of a worker sends while it collects; it has got the warnings from pytest."""
        plugins = config.pluginmanager.get_plugins()
        (interactor,) = (each for each in plugins if type(each).__name__ == "WorkerInteractor")
        interactor.pytest_sessionstart(session)
        interactor.pytest_collection()
        for report in self._reports:
            interactor.pytest_collectreport(report)
        interactor.pytest_collection_finish(session)
        if not needs_every_report(config.option):
            config.pluginmanager.register(ShortReports(config, interactor))


class ShortReports:
    """A plugin of a worker: it sends one report for each test that passes, in place of three reports and two messages.

    The others cost half a millisecond of processor time for each test, twenty thousand times in a run.
    """

    def __init__(self, config: pytest.Config, interactor: Any) -> None:
        self._interactor = interactor
        hooks = (config.hook.pytest_runtest_logstart, config.hook.pytest_runtest_logreport)
        for hook in (*hooks, config.hook.pytest_runtest_logfinish):
            hook._remove_plugin(interactor)
        # What a worker's own reporter writes, nobody reads.
        if reporter := config.pluginmanager.get_plugin("terminalreporter"):
            for hook in hooks:
                hook._remove_plugin(reporter)

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send what counts, and what does not pass."""
        if report.when == "call" or not report.passed:
            self._interactor.pytest_runtest_logreport(report)


def _start_parent(listener: socket.socket) -> subprocess.Popen[bytes]:
    descriptor = listener.fileno()
    command = [sys.executable, "-m", forked_ostler.__name__, "--listen", str(descriptor)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[descriptor])


def needs_every_report(options: argparse.Namespace) -> bool:
    """True if the run shows durations or what passes, writes the format of JUnit or is verbose."""
    shows_passed = not {"P", "A"}.isdisjoint(options.reportchars or "")
    return options.verbose > 0 or options.durations is not None or bool(options.xmlpath) or shows_passed


def _capture(config: pytest.Config) -> CaptureManager:
    found = config.pluginmanager.get_plugin("capturemanager")
    assert isinstance(found, CaptureManager)
    return found


def _run(config: pytest.Config, session: pytest.Session) -> int:
    session.exitstatus = pytest.ExitCode.OK
    try:
        config.hook.pytest_runtestloop(session=session)
        if session.testsfailed:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif not session.testscollected:
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
    except (KeyboardInterrupt, pytest.exit.Exception):
        session.exitstatus = pytest.ExitCode.INTERRUPTED
        config.hook.pytest_keyboard_interrupt(excinfo=pytest.ExceptionInfo.from_current())
    except BaseException:  # noqa: BLE001 - pytest shows it
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        config.notify_exception(pytest.ExceptionInfo.from_current(), config.option)
    finally:
        os.chdir(session.startpath)
        config.hook.pytest_sessionfinish(session=session, exitstatus=session.exitstatus)
        config._ensure_unconfigure()
    return int(session.exitstatus)


def collect(listener: socket.socket, forks: socket.socket, arguments: Sequence[str]) -> None:
    """Collect as a worker does, and fork workers."""
    # What a worker is told by pytest-xdist; the rest of it follows in the fork.
    sys.argv = ["-c"]
    os.environ["PYTEST_XDIST_WORKER"] = "collector"
    config: Any = _pytest.config._prepareconfig(list(arguments))
    # Not before: pytest rewrites its assertions, as those of all plugins.
    importlib.import_module("xdist.remote").setup_config(config, None)
    config.workerinput = {"workerid": "collector"}
    config.workeroutput = {}
    config.pluginmanager.register(ForkingCollector(listener, forks))
    # The workers are forked from there, and have the same room.
    call_with_room(lambda: config.hook.pytest_cmdline_main(config=config))


if __name__ == "__main__":
    collect(socket.socket(fileno=int(sys.argv[1])), socket.socket(fileno=int(sys.argv[2])), sys.argv[3:])
