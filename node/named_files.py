"""Files that people name, in a configuration or on a command line: a FIFO that nobody opens does not hold them up.

Such a file may be a link, and what the link leads to is meant. It may also be a descriptor that this process was
started with: ``/dev/stdin``, or ``/dev/fd/63``, as the shell writes ``<(command)``; a person who names one means that
very pipe or file.
"""

from __future__ import annotations

import errno
import os
import re
import select
import stat
import time
from pathlib import Path

from node.files import WriteFailed, write_whole
from node.opening import NotRegular, content, read_regular

WRITER_WAIT = 1.0
"""Seconds that a FIFO on the command line is given to be opened by whoever writes into it."""
_STEP = 0.02
_INHERITED = r"/dev/stdin|(/dev|/proc/self)/fd/[0-9]{1,6}"
_OUTPUT = r"/dev/(?P<name>stdout|stderr)|(/dev|/proc/self)/fd/(?P<number>[0-9]{1,6})"
_NUMBERS = {"stdout": 1, "stderr": 2}


def read_named_file(path: Path, limit: int, *, fifo: bool = False) -> bytes:
    """The content of a file that a person names; raises ``OSError``, also for more than ``limit`` bytes.

    ``fifo``: whether it may be a FIFO that somebody writes into.
    """
    if re.fullmatch(_INHERITED, str(path)):
        return _read_stream(path, limit)
    if fifo and stat.S_ISFIFO(path.stat().st_mode):
        return _read_stream(path, limit)
    return read_regular(path, limit, links=True)


def write_named_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write the file that a person names: whole, or into the device or pipe that is there. Raises WriteFailed."""
    inherited = re.fullmatch(_OUTPUT, str(path))
    try:
        if inherited:
            _write_into(os.dup(_NUMBERS.get(inherited["name"]) or int(inherited["number"])), data)
        elif not path.exists() or path.is_file():
            write_whole(Path(os.path.realpath(path)), data, mode)
        else:
            # Where nobody reads a FIFO this fails at once, instead of waiting for ever.
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
            os.set_blocking(descriptor, True)
            _write_into(descriptor, data)
    except WriteFailed as error:
        raise WriteFailed(path, error.reason) from error
    except OSError as error:
        nobody = error.errno == errno.ENXIO and path.is_fifo()
        raise WriteFailed(
            path, "no process reads from this pipe" if nobody else error.strerror or str(error)
        ) from error


def _write_into(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _read_stream(path: Path, limit: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise NotRegular(path, "a folder")
        begin = _first_byte(descriptor) if stat.S_ISFIFO(status.st_mode) else b""
        os.set_blocking(descriptor, True)
        return content(descriptor, path, limit, begin)
    finally:
        os.close(descriptor)


def _first_byte(pipe: int) -> bytes:
    """Of a pipe, none where its writer is slow or ended; raises ``TimeoutError`` if nobody opens it for writing."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    end = time.monotonic() + WRITER_WAIT
    while True:
        try:
            begin = os.read(pipe, 1)
        except BlockingIOError:
            return b""
        # Nothing to read: there was a writer if the pipe is hung up, else there is none yet.
        if begin or poll.poll(0):
            return begin
        if time.monotonic() > end:
            raise TimeoutError(errno.ETIMEDOUT, "no process writes into this pipe")
        time.sleep(_STEP)
