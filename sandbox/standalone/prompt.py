"""Reads the commands of ``ostler kubelet`` from a person or a script, and prints the answers.

A person gets tables, and the lines of plugin and kubelet between them as they come. A script's answers alone go to
standard output, everything else to standard error; it ends at the first step that fails. As JSON every answer is one
line, so that programs read them as they come.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import stat
import sys
import termios
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final, Literal, Protocol

from sandbox.kubelet.events import KubeletEvent
from sandbox.standalone.commands import Commands, EventViewer
from sandbox.standalone.event_lines import event_document, event_line
from sandbox.standalone.node import StandaloneNode
from sandbox.standalone.views import Answer, plain
from sandbox.standalone.words import completions, usage

Output = Literal["table", "json"]
Write = Callable[[str], None]
PROMPT: Final = "kubelet> "
_LONGEST_LINE: Final = 1 << 16


class ScriptFailed(Exception):
    """A step of a script failed; the text says which and why."""


class Lines(Protocol):
    """A source of commands."""

    def read(self) -> AsyncIterator[tuple[int, str]]:
        """Numbers and texts of the lines, until the end."""


class ScriptConsole:
    """Lines that no command asked for, on standard error."""

    def aside(self, source: str, text: str) -> None:
        """See ``Console``."""
        sys.stderr.write(f"{source} | {plain(text)}\n")
        sys.stderr.flush()


class TerminalConsole:
    """Lines between a person's commands; what is being typed is drawn again below them."""

    def __init__(self) -> None:
        self._is_reading = False

    @contextlib.contextmanager
    def reading(self, *, shown: bool) -> Iterator[None]:
        """Draw what is typed in this block again; ``shown``: it stands behind a prompt."""
        self._is_reading = shown
        try:
            yield
        finally:
            self._is_reading = False

    def aside(self, source: str, text: str) -> None:
        """See ``Console``."""
        line = f"{source} | {plain(text)}\n"
        sys.stdout.write(f"\r\x1b[K{line}{PROMPT}{_typed()}" if self._is_reading else line)
        sys.stdout.flush()


class StreamLines:
    """Lines of a pipe or file, as they come."""

    def __init__(self, text: str | None = None) -> None:
        self._text = text

    async def read(self) -> AsyncIterator[tuple[int, str]]:
        """See ``Lines``."""
        if self._text is not None:
            for number, text in enumerate(self._text.splitlines(), 1):
                yield number, text
            return
        reader = asyncio.StreamReader(limit=_LONGEST_LINE)
        mode = os.fstat(sys.stdin.fileno()).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        else:
            # A file or /dev/null cannot be waited on (epoll refuses them), and need not be.
            reader.feed_data(await asyncio.to_thread(sys.stdin.buffer.read))
            reader.feed_eof()
        number = 1
        try:
            while line := await reader.readline():
                yield number, line.decode(errors="replace")
                number += 1
        except ValueError as error:
            raise ScriptFailed(f"line {number} has more than {_LONGEST_LINE} bytes; write shorter commands") from error


class TerminalLines:
    """Lines of a person at a terminal, with history and completion where Python has readline.

    They are read in a thread of their own, because readline waits in C. It never ends the process: leaving it restores
    the terminal.
    """

    def __init__(self, console: TerminalConsole, node: StandaloneNode) -> None:
        self._console = console
        self._node = node
        self._saved = termios.tcgetattr(sys.stdin.fileno())

    async def read(self) -> AsyncIterator[tuple[int, str]]:
        """See ``Lines``."""
        self._complete()
        number = 0
        while (line := await self.line(PROMPT)) is not None:
            number += 1
            yield number, line
        sys.stdout.write("\n")

    async def line(self, prompt: str) -> str | None:
        """One line, None at the end of the input."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[str | None] = loop.create_future()

        def hand_over(line: str | None) -> None:
            if not found.done():
                found.set_result(line)

        def ask() -> None:
            try:
                line: str | None = input(prompt)
            except EOFError:
                line = None
            # The loop is closed when the session has ended meanwhile.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(hand_over, line)

        with self._console.reading(shown=bool(prompt)):
            threading.Thread(target=ask, name="read the terminal", daemon=True).start()
            try:
                return await found
            except asyncio.CancelledError:
                sys.stdout.write("\n")
                raise

    def close(self) -> None:
        """Put the terminal back as it was."""
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._saved)

    def _complete(self) -> None:
        with contextlib.suppress(ImportError):
            import readline

            def complete(text: str, state: int) -> str | None:
                before = readline.get_line_buffer()[: readline.get_begidx()].split()
                found = completions(self._node, before, text)
                return found[state] if state < len(found) else None

            readline.set_completer(complete)
            readline.set_completer_delims(" ")
            readline.parse_and_bind("tab: complete")


class TerminalViewer(EventViewer):
    """Shows events to a person, until Enter."""

    def __init__(self, console: TerminalConsole, lines: TerminalLines, output: Output) -> None:
        self._console = console
        self._lines = lines
        self._output = output

    async def interrupted(self) -> None:
        """Return at Enter."""
        if self._output == "table":
            sys.stdout.write("watching; Enter ends it\n")
        await self._lines.line("")

    def show(self, event: KubeletEvent) -> None:
        """See ``EventViewer``."""
        sys.stdout.write(_event_text(event, self._output))
        sys.stdout.flush()


class ScriptViewer(EventViewer):
    """Shows events to a script's reader, by ``write``."""

    def __init__(self, output: Output, write: Write) -> None:
        self._output = output
        self._write = write

    def show(self, event: KubeletEvent) -> None:
        """See ``EventViewer``."""
        self._write(_event_text(event, self._output))


def _event_text(event: KubeletEvent, output: Output) -> str:
    text = json.dumps(event_document(event)) if output == "json" else f"kubelet | {plain(event_line(event))}"
    return f"{text}\n"


class Session:
    """Takes the commands one after the other; ``write`` puts answers out at once, and raises what ends the session."""

    def __init__(self, node: StandaloneNode, watching: EventViewer, output: Output, write: Write) -> None:
        self._commands = Commands(node, watching)
        self._output = output
        self._write = write
        self._last = ""

    async def interact(self, lines: Lines) -> None:
        """Do what a person types, until ``quit`` or the end of the input."""
        async for _, line in lines.read():
            try:
                words = shlex.split(line, comments=True)
            except ValueError as error:
                self._print(line, Answer(problem=f"{error}; close the quotes"))
                continue
            if words in (["quit"], ["exit"]):
                return
            if words:
                self._print(line, await self._answer(words))

    async def follow(self, lines: Lines, name: str) -> None:
        """Do the steps of the script ``name``; raises ``ScriptFailed`` at the first one that fails."""
        async for number, line in lines.read():
            where = f"{name}:{number}: {line.strip()}"
            try:
                words = shlex.split(line, comments=True)
            except ValueError as error:
                raise ScriptFailed(f"{where}: {error}; close the quotes") from error
            if words in (["quit"], ["exit"]):
                return
            if not words:
                continue
            if self._output == "table":
                self._write(f"{PROMPT}{line.strip()}\n")
            answer = await self._answer(words)
            self._print(line, answer)
            if answer.problem:
                raise ScriptFailed(f"{where}: {answer.problem}")

    async def _answer(self, words: Sequence[str]) -> Answer:
        if words[0] == "expect":
            return self._expect(words[1:])
        if words[0] != "!":
            answer = await self._commands.run(words)
            self._remember(answer)
            return answer
        if len(words) == 1:
            return Answer(problem=f"usage: {usage('!')}")
        answer = await self._commands.run(words[1:])
        self._remember(answer)
        if answer.is_mistyped:
            return answer
        if not answer.problem:
            return Answer(answer.document, answer.lines, "the command succeeded, and '!' wants it to fail")
        return Answer({**answer.document, "failed": answer.problem}, [*answer.lines, f"failed: {answer.problem}"])

    def _remember(self, answer: Answer) -> None:
        self._last = "\n".join((*answer.lines, answer.problem, json.dumps(answer.document, ensure_ascii=False)))

    def _expect(self, words: Sequence[str]) -> Answer:
        text = " ".join(words)
        if not text:
            return Answer(problem=f"usage: {usage('expect')}")
        if text in self._last:
            return Answer({"expected": text})
        return Answer({"expected": text}, problem=f"the answer before does not have the text {text!r}")

    def _print(self, line: str, answer: Answer) -> None:
        if self._output == "json":
            document = {"command": line.strip(), "ok": not answer.problem, **answer.document}
            if answer.problem:
                document["problem"] = answer.problem
            self._write(json.dumps(document) + "\n")
        else:
            lines = [*answer.lines, *([f"failed: {answer.problem}"] if answer.problem else [])]
            self._write("".join(f"{plain(each)}\n" for each in lines))


def _typed() -> str:
    """What is being typed at the prompt, where readline knows it."""
    readline = sys.modules.get("readline")
    return str(readline.get_line_buffer()) if readline is not None else ""
