"""Shell text of a document as single commands, words apart: as much of the shell's grammar as documents use.

Known: comments, continued lines, pipes, ``&&``, ``;``, redirections, variables in front of a command, here-documents
(their text is left out), and the prompts ``$`` and ``#``. In a block with prompts, lines without one are output.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

_HERE = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?")
_PROMPT = re.compile(r"^[$] ", re.MULTILINE)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_ENDS = ("|", "||", "&&", ";", "&", "(", ")", "|&")


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One command: its words, with the variables given in front of it."""

    words: tuple[str, ...]
    variables: tuple[str, ...] = ()

    def __str__(self) -> str:
        return shlex.join((*self.variables, *self.words))


def commands(text: str) -> Iterator[ShellCommand]:
    """The commands of a block; raises ``ValueError`` for text that no shell reads."""
    for line in lines(text):
        yield from _split(line)


def lines(text: str) -> Iterator[str]:
    """The lines to type, continued ones in one, without here-documents and output."""
    prompted = _PROMPT.search(text) is not None
    waiting = iter(text.replace("\\\n", " ").splitlines())
    for written in waiting:
        if prompted and not written.startswith("$ "):
            continue
        line = written.removeprefix("$ ")
        here = _HERE.search(line)
        for inner in waiting if here else ():
            if here and inner.strip() == here[1]:
                break
        if line.strip():
            yield _HERE.sub("", line)


def _split(line: str) -> Iterator[ShellCommand]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;()<>")
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    skip = False
    for word in [*_uncommented(lexer), ";"]:
        if skip:
            skip = False
        elif word in _ENDS:
            if words:
                yield _command(words)
            words = []
        elif set(word) & set("<>") and set(word) <= set("<>&|"):
            skip = True  # what follows is a file's name
            if words and words[-1] in ("1", "2"):
                words.pop()
        else:
            words.append(word)


def _uncommented(lexer: shlex.shlex) -> Iterator[str]:
    """Words up to a comment; a ``#`` inside a word begins none."""
    for word in lexer:
        if word.startswith("#"):
            return
        yield word


def _command(words: list[str]) -> ShellCommand:
    count = next((number for number, word in enumerate(words) if not _ASSIGNMENT.fullmatch(word)), len(words))
    return ShellCommand(tuple(words[count:]), tuple(words[:count]))
