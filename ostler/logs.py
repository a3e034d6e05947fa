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
import threading
from datetime import UTC, datetime
from functools import lru_cache
from itertools import filterfalse

from ostler.config.settings import LogFormat, LogSettings

_PLAIN = re.compile(r'[^\s"=\x00-\x1f\x7f]+')
"""Text that needs no quotes."""
SHORT = 64
"""Most characters of a text whose quoted form is remembered."""
FEW = 16
"""Most items of a list whose quoted form is remembered."""
_as_json = json.encoder.encode_basestring_ascii
"""A text as ``json.dumps`` writes it, without finding out that it is one."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@lru_cache(maxsize=1)
def _second(whole: int) -> str:
    return datetime.fromtimestamp(whole, UTC).isoformat().removesuffix("+00:00")


def _moment(created: float) -> str:
    """A Unix time with milliseconds: many lines are of the same second, whose text is made once."""
    whole = int(created)
    # In microseconds first, as datetime does: the float nearest to a millisecond may be a little less than it.
    seconds, micros = divmod(round((created - whole) * 1_000_000), 1_000_000)
    return f"{_second(whole + seconds)}.{micros // 1000:03d}Z"


def _extra(record: logging.LogRecord) -> dict[str, object]:
    """The fields that the caller gives as ``extra``, in its order."""
    content = record.__dict__
    # In C: a record has twenty attributes of its own.
    return {key: content[key] for key in filterfalse(_STANDARD.__contains__, content)}


def _traceback(record: logging.LogRecord) -> str:
    return logging.Formatter().formatException(record.exc_info) if record.exc_info else ""


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = {
        "time": _moment(record.created),
        "level": record.levelname.lower(),
        "logger": record.name.removeprefix("ostler."),
        "msg": record.getMessage(),
    }
    fields |= _extra(record)
    traceback = _traceback(record)
    return fields | {"traceback": traceback} if traceback else fields


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


@lru_cache(maxsize=32)
def _quoted_ids(*ids: str) -> str:
    """Of few ids: pods get the same few sets of devices again."""
    return _quote(_encoded([*ids]))


def _quoted(value: object) -> str:
    if isinstance(value, str):
        return _quote_word(value) if len(value) <= SHORT else _quote(value)
    if isinstance(value, list) and len(value) <= FEW and {*map(type, value)} == {str}:
        return _quoted_ids(*value)
    return _quote(_encoded(value))


@lru_cache(maxsize=256)
def _start(level: str, name: str, message: str) -> str:
    """The part of a line of this kind between its time and its fields."""
    return f"level={_quote(level.lower())} logger={_quote(name.removeprefix('ostler.'))} msg={_quote(message)}"


class TextFormatter(logging.Formatter):
    """``time=... level=... msg="..." key=value``; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line."""
        words = [f"{key}={_quoted(value)}" for key, value in _extra(record).items()]
        message = record.getMessage()
        begin = _start if len(message) <= SHORT else _start.__wrapped__
        line = " ".join([f"time={_moment(record.created)}", begin(record.levelname, record.name, message), *words])
        traceback = _traceback(record)
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


class LineHandler(logging.StreamHandler):  # type: ignore[type-arg]  # at run time it takes none
    """Writes each line at once, as ``StreamHandler`` does, in half of its steps: standard error ends a line itself."""

    def handle(self, record: logging.LogRecord) -> bool:
        """Write one record; nobody adds filters here."""
        try:
            line = self.format(record)
            with self.lock or contextlib.nullcontext():
                self.stream.write(f"{line}\n")
        except RecursionError:
            # As StreamHandler does: there is no stack left to report it.
            raise
        except Exception:  # noqa: BLE001  # as every handler: whoever logs must not fail
            self.handleError(record)
        return True


def is_journal(descriptor: int, variable: str) -> bool:
    """Whether the journal reads the descriptor; ``variable`` is ``$JOURNAL_STREAM``, its device and inode number."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return variable == f"{status.st_dev}:{status.st_ino}"


def configure(settings: LogSettings) -> None:
    """Log to standard error as the settings say; may be called again to change them."""
    handler = LineHandler(sys.stderr)
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
    threading.excepthook = _thread_failed


def _thread_failed(fault: threading.ExceptHookArgs) -> None:
    """Log what ended a thread; Python would print it in lines without fields."""
    if fault.exc_value is not None and not isinstance(fault.exc_value, SystemExit):
        name = fault.thread.name if fault.thread is not None else ""
        error = f"{type(fault.exc_value).__name__}: {fault.exc_value}"
        logging.getLogger("ostler.tasks").error(
            "a thread failed unexpectedly", extra={"task": name, "error": error}, exc_info=fault.exc_value
        )
