"""Recorded nodes that are shipped: realistic hardware for the sandbox and for tests, by name.

The files are recorded nodes like any other (``node.inventory.recordings.source``), so they can be copied and edited.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent


class UnknownNodeError(LookupError):
    """No shipped node has this name; ``known`` are those that exist."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"no shipped node is called {name!r}; known: {', '.join(known)}")


@cache
def names() -> tuple[str, ...]:
    """Names of the shipped nodes, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def recording(source: str) -> Path:
    """The file of a recorded node, by its path or by the name of a shipped one. Raises UnknownNodeError."""
    return Path(source) if "/" in source or source.endswith((".yaml", ".yml")) else path(source)


def path(name: str) -> Path:
    """The file of a shipped node. Raises UnknownNodeError."""
    if name not in names():
        raise UnknownNodeError(name, names())
    return _FOLDER / f"{name}.yaml"
