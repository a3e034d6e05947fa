"""Problems of a configuration, as values that say where, what, and what to do; and notes on valid values.

Problems are collected, never raised one at a time: somebody who corrects a file wants to see all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from node.values import Value, value

MAX_SHOWN = 50
"""Problems that the text of ``ConfigErrors`` lists; the rest are counted."""


@value
class Origin(Value):
    """Where a value comes from: a file with line and column (from 1), or a flag or environment variable by its name.

    ``key`` is the path inside the file, such as ``resources[0].devices.kind``, empty for a flag or variable.
    """

    source: str
    line: int | None = None
    column: int | None = None
    key: str = ""

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return f"{place}: {self.key}" if self.key else place

    def error(self, problem: str, fix: str) -> ConfigError:
        """An error of the value at this place."""
        return ConfigError(self, problem, fix)


@value
class ConfigError(Value):
    """One problem of the value at ``origin``. ``str()`` is the line people see: ``FILE:LINE: KEY: problem; fix``."""

    origin: Origin
    problem: str
    fix: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.problem}; {self.fix}"


class ConfigErrors(Exception):
    """The configuration cannot be used; ``errors`` are all of its problems, those of the file in order of lines."""

    def __init__(self, errors: Iterable[ConfigError]) -> None:
        self.errors = tuple(sorted(set(errors), key=_order))
        lines = [str(error) for error in self.errors[:MAX_SHOWN]]
        if len(self.errors) > MAX_SHOWN:
            lines.append(f"and {len(self.errors) - MAX_SHOWN} more problems")
        super().__init__("\n".join(lines))


def _order(error: ConfigError) -> tuple[bool, str, int, int, str]:
    origin = error.origin
    return origin.line is None, origin.source, origin.line or 0, origin.column or 0, str(error)


class NoteKind(StrEnum):
    """The subject of a note."""

    TAKEN = "taken"
    """A value of a foreign format, and the setting that it became."""
    IGNORED = "ignored"
    """A value that has no meaning here, and why."""
    IDLE = "idle"
    """Something in a foreign format without effect in the plugin, too: a resource without devices, a replaced key."""
    REMARK = "remark"
    """Something worth knowing."""
    FAULT = "fault"
    """Something wrong in a file that the configuration names; it is left out, and everything else served."""


@value
class Note(Value):
    """Something a reader of the configuration should know; not an error. ``str()`` is the line people see."""

    kind: NoteKind
    origin: Origin
    text: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.text}"


class ReloadFailed(Exception):
    """The configuration could not be read again; the text names every problem."""
