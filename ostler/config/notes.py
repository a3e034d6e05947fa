"""What a reader of a configuration should know although nothing is wrong."""

from __future__ import annotations

from enum import StrEnum

from node.values import Value, value
from ostler.config.errors import Origin


class NoteKind(StrEnum):
    """What a note tells."""

    TAKEN = "taken"
    """A value of a foreign format, and the setting that it became."""
    IGNORED = "ignored"
    """A value that has no meaning here, and why."""
    IDLE = "idle"
    """Something of a foreign format that has no effect there either: a resource that never gets a device, a key that
    another one replaces. Its author may think that it has."""
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
