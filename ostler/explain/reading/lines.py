"""Where something stands in a text, for messages alone: it costs another reading of the text.

Objects do not remember their lines: for ten thousand devices that would be most of the memory, and nobody asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from node.yaml_text import events

if TYPE_CHECKING:
    import yaml

Path = tuple[str | int, ...]
"""Keys and places in lists, from a document's top."""


def line_at(event: yaml.Event) -> int:
    """The line where an event begins, from 1; 0 where it has none."""
    return event.start_mark.line + 1 if event.start_mark else 0


def line_of(data: bytes, number: int, path: Path) -> int:
    """The line of what ``path`` names in a document, or of the nearest thing above it; 0 where YAML cannot tell.

    Only for messages: it reads the text once more. JSON is found as well, being YAML.
    """
    import yaml

    try:
        return _Finder(number, path).line(events(data.decode("utf-8-sig")))
    except (yaml.YAMLError, UnicodeDecodeError):
        return 0


class _Finder:
    """Follows a path through the events of one document."""

    def __init__(self, number: int, path: Sequence[str | int]) -> None:
        self._number = number
        self._path = path

    def line(self, stream: Iterator[yaml.Event]) -> int:
        import yaml

        stack: list[list[str | int | None]] = []
        document, best, found = -1, 0, 0
        for event in stream:
            if isinstance(event, yaml.DocumentStartEvent):
                document += 1
            if document > self._number:
                break
            if document < self._number or not isinstance(event, (yaml.NodeEvent, yaml.CollectionEndEvent)):
                continue
            if isinstance(event, yaml.CollectionEndEvent):
                stack.pop()
                if found and len(stack) == best:
                    break  # The end of the deepest thing on the path: what is below it is not there.
                self._step(stack)
                continue
            is_key = bool(stack) and stack[-1][0] is None
            if is_key:
                stack[-1][0] = getattr(event, "value", "")
            here = [top[0] for top in stack]
            if len(here) >= best and here == list(self._path[: len(here)]) and (len(here) > best or not found):
                best, found = len(here), line_at(event)
                if best == len(self._path):
                    break
            if isinstance(event, yaml.CollectionStartEvent):
                stack.append([0 if isinstance(event, yaml.SequenceStartEvent) else None])
            elif not is_key:
                self._step(stack)
        return found

    @staticmethod
    def _step(stack: list[list[str | int | None]]) -> None:
        """After a value: the next place of a list, or the next key."""
        if stack:
            top = stack[-1]
            top[0] = top[0] + 1 if isinstance(top[0], int) else None
