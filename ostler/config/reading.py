"""A configuration file, or one that it names: its name in messages, and its bytes or why there are none."""

from __future__ import annotations

from pathlib import Path

from node.given import read_given
from node.opening import NotRegular, TooLarge
from ostler.config.document import MAX_BYTES, clipped
from ostler.config.errors import ConfigErrors, Origin

MAX_PATH = 4096
"""Characters of a file's path that messages show."""


def source_name(path: Path) -> str:
    """The file's name in messages."""
    return clipped(str(path), MAX_PATH)


def read_bytes(path: Path, source: str, *, missing: str = "correct the path") -> bytes:
    """The content of a file; raises ``ConfigErrors`` with ``source`` as the file's name.

    It may be a link, as every file of a mounted ConfigMap is, and ``/dev/fd/63``, as the shell writes ``<(command)``.
    ``missing``: what to do about a file that does not exist.
    """
    try:
        return read_given(path, MAX_BYTES)
    except NotRegular as error:
        if error.kind == "a folder":
            raise _unreadable(source, "is a directory", "give the file inside it") from error
        raise _unreadable(source, f"is {error.kind}, not a regular file", "give a regular file") from error
    except TooLarge as error:
        raise _unreadable(source, f"cannot be read: {error.strerror}", "no configuration needs as many") from error
    except FileNotFoundError as error:
        raise _unreadable(source, "does not exist", missing) from error
    except PermissionError as error:
        raise _unreadable(source, "may not be read", "check its permissions and who runs this") from error
    except OSError as error:
        raise _unreadable(source, f"cannot be read ({error.strerror})", "check the path and what is there") from error
    except ValueError as error:  # a zero byte in the path
        raise _unreadable(source, "is no path", "correct the path") from error


def _unreadable(source: str, problem: str, fix: str) -> ConfigErrors:
    return ConfigErrors([Origin(source).error(problem, fix)])
