"""Asks the judge: a process per kind of case, kept open, one line there and one line back.

Invariant: answers come in the order of the cases. Threads may share a judge; they wait for each other.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Generator, Iterable, Mapping
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
    ``{"timeout": true}``, ``{"panic": text}`` or, for what Kubernetes cannot even read, ``{"input_error": text}``.
    """

    def __init__(self, *, deadline_s: float = 2.0) -> None:
        """``deadline_s``: time for one case."""
        self._deadline_s = deadline_s
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
        """Raises ``JudgeDied``."""
        return next(self.answers(kind, [case]))

    def answers(self, kind: str, cases: Iterable[Mapping[str, Any]]) -> Generator[Json]:
        """The answers to all cases, while they are still being judged; raises ``JudgeDied``.

        Whoever stops reading half-way costs the next question a new process.
        """
        with self._lock:
            process = self._process(kind)
            owed = 0
            try:
                for case in cases:
                    _send(process, case)
                    owed += 1
                    if owed >= WINDOW:
                        owed -= 1
                        yield _receive(process, kind)
                while owed:
                    owed -= 1
                    yield _receive(process, kind)
            finally:
                if owed or process.poll() is not None:
                    _end(process)
                    del self._processes[kind]

    def _process(self, kind: str) -> subprocess.Popen[str]:
        process = self._processes.get(kind)
        if process is None:
            process = self._processes[kind] = subprocess.Popen(
                [str(judge()), "-deadline", f"{self._deadline_s}s", kind],
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
    with process:
        pass
