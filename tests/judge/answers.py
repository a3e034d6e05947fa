"""Asks the judge: a process per kind of case, kept open, one line there and one line back.

Invariants: answers come in the order of the cases; a case that ends the judge's process (some faults of Go end it as a
whole) costs its own answer and no other. Threads may share a judge; they wait for each other.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.judge.build import judge

Json = dict[str, Any]

WINDOW = 64
"""Cases sent ahead of the answer that is read: few enough that neither pipe fills up while nobody reads."""


class JudgeDied(Exception):
    """The judge ended before it had answered."""


class Judge:
    """What Kubernetes answers to cases of the kinds ``allocate``, ``cel`` and ``quantity``.

    Cases and answers are lines of the vectors (tests/vectors/allocator/README.md). Beside those, an answer is
    ``{"timeout": true}``, ``{"panic": text}``, ``{"died": text}`` where the whole process ended, or
    ``{"input_error": text}`` for what Kubernetes cannot even read.
    """

    def __init__(self, *, deadline_s: float = 2.0, program: Path | None = None) -> None:
        """``deadline_s``: time for one case. ``program``: runs in place of the judge that is built here."""
        self._deadline_s = deadline_s
        self._program = program
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes; a later question starts them anew."""
        with self._lock:
            for process in self._processes.values():
                _end(process)
            self._processes.clear()

    def answer(self, kind: str, case: Mapping[str, Any]) -> Json:
        """The answer to one case."""
        return next(self.answers(kind, [case]))

    def answers(self, kind: str, cases: Iterable[Mapping[str, Any]]) -> Generator[Json]:
        """The answers to all cases, while they are still being judged.

        Whoever stops reading half-way costs the next question a new process.
        """
        with self._lock:
            owed: deque[Mapping[str, Any]] = deque()
            try:
                for case in cases:
                    owed.append(case)
                    yield from self._sent(kind, case, owed)
                while owed:
                    yield from self._received(kind, owed)
            finally:
                process = self._processes.get(kind)
                if process is not None and (owed or process.poll() is not None):
                    self._drop(kind)

    def _sent(self, kind: str, case: Mapping[str, Any], owed: deque[Mapping[str, Any]]) -> Generator[Json]:
        """Send a case that is owed an answer already, and read one where enough are on their way."""
        try:
            _send(self._process(kind), case)
        except BrokenPipeError:
            yield from self._one_by_one(kind, owed)
        else:
            if len(owed) >= WINDOW:
                yield from self._received(kind, owed)

    def _received(self, kind: str, owed: deque[Mapping[str, Any]]) -> Generator[Json]:
        try:
            answer = _receive(self._process(kind), kind)
        except JudgeDied:
            yield from self._one_by_one(kind, owed)
        else:
            owed.popleft()
            yield answer

    def _one_by_one(self, kind: str, owed: deque[Mapping[str, Any]]) -> Generator[Json]:
        """Ask again what a process that died left unanswered: it may have judged cases whose answers it kept back."""
        while owed:
            self._drop(kind)
            case = owed.popleft()
            yield self._alone(kind, case)

    def _alone(self, kind: str, case: Mapping[str, Any]) -> Json:
        process = self._process(kind)
        try:
            _send(process, case)
            return _receive(process, kind)
        except (BrokenPipeError, JudgeDied) as error:
            return {"died": str(error)}

    def _drop(self, kind: str) -> None:
        process = self._processes.pop(kind, None)
        if process is not None:
            _end(process)

    def _process(self, kind: str) -> subprocess.Popen[str]:
        process = self._processes.get(kind)
        if process is None:
            process = self._processes[kind] = subprocess.Popen(
                [str(self._program or judge()), "-deadline", f"{self._deadline_s}s", kind],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                encoding="utf-8",
            )
        return process


def _send(process: subprocess.Popen[str], case: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(case, ensure_ascii=False) + "\n")
    process.stdin.flush()


def _receive(process: subprocess.Popen[str], kind: str) -> Json:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise JudgeDied(f"the judge of {kind!r} ended with exit status {process.wait()} and no answer")
    answer: Json = json.loads(line)
    return answer


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    # What was not sent yet goes nowhere.
    with contextlib.suppress(BrokenPipeError), process:
        pass
