"""Structured log lines on standard error, as key=value text or JSON, one per decision.

The standard library's logging with one formatter of our own: structlog would cost 6.6 MB on every node. Fields are what
callers give as ``extra``; times are UTC.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sys
from datetime import UTC, datetime
from functools import lru_cache

from ostler.config.settings import LogFormat, LogSettings

_PLAIN = re.compile(r'[^\s"=\x00-\x1f\x7f]+')
"""What needs no quotes."""
SHORT = 64
"""Most characters of a text whose quoted form is remembered."""
_as_json = json.encoder.encode_basestring_ascii
"""A text as ``json.dumps`` writes it, without finding out that it is one."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _fields(record: logging.LogRecord) -> dict[str, object]:
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    fields: dict[str, object] = {
        "time": moment.replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name.removeprefix("ostler."),
        "msg": record.getMessage(),
    }
    fields |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
    if record.exc_info:
        fields["traceback"] = logging.Formatter().formatException(record.exc_info)
    return fields


_ENCODER = json.JSONEncoder(default=str)


def _encoded(value: object) -> str:
    if isinstance(value, list):
        # Lists of ids, which every Allocate logs, in a quarter of the encoder's time.
        with contextlib.suppress(TypeError):
            return f"[{', '.join(map(_as_json, value))}]"
    return _ENCODER.encode(value)


def _quote(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else _as_json(text)


_quote_word = lru_cache(maxsize=256)(_quote)
"""For short texts: the same messages, parts and names come again and again."""


def _quoted(value: object) -> str:
    if isinstance(value, str):
        return _quote_word(value) if len(value) <= SHORT else _quote(value)
    return _quote(_encoded(value))


class TextFormatter(logging.Formatter):
    """``time=... level=... msg="..." key=value``; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line."""
        fields = _fields(record)
        traceback = fields.pop("traceback", None)
        line = " ".join([f"{key}={_quoted(value)}" for key, value in fields.items()])
        return f"{line}\n{traceback}" if traceback else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line; values that JSON does not know become text."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line."""
        return json.dumps(_fields(record), default=str, ensure_ascii=False)


_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}


class JournalFormatter(logging.Formatter):
    """Another formatter's lines with their priority before each (sd-daemon(3)), for ``journalctl -p warning``."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        """One record; the journal takes each line for an entry of its own."""
        priority = f"<{_PRIORITIES.get(record.levelno, 6)}>"
        return "\n".join(priority + line for line in self._inner.format(record).split("\n"))


def is_journal(descriptor: int, variable: str) -> bool:
    """Whether the journal reads the descriptor; ``variable`` is ``$JOURNAL_STREAM``, its device and inode number."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return variable == f"{status.st_dev}:{status.st_ino}"


def configure(settings: LogSettings) -> None:
    """Log to standard error as the settings say; may be called again to change them."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = JsonFormatter() if settings.format is LogFormat.JSON else TextFormatter()
    journal = is_journal(2, os.environ.get("JOURNAL_STREAM", ""))
    handler.setFormatter(JournalFormatter(formatter) if journal else formatter)
    # No line names its thread, process or place in the code, and finding them costs a third of a line.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001 - the way that the documentation of logging names
    # asyncio reports what ended a task that nobody waits for; it must be found where all else is.
    for name, level in (("ostler", settings.level.upper()), ("asyncio", "WARNING")):
        root = logging.getLogger(name)
        root.handlers[:] = [handler]
        root.setLevel(level)
        root.propagate = False
