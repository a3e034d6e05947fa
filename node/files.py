"""Files written whole, and records that know whether they are what was written.

``write_whole`` leaves either the old content or the new one, whatever happens in between: power cut, full disk, kill.
A record is a JSON document ``{"schema":...,"sha256":...,"data":...}`` whose hash is taken over the raw bytes of
``data``: a later version that writes the same data in another order or with new fields never takes an old file for
damaged. A damaged record is set aside and reported, so that its owner rebuilds it and never stops because of it.

Writer and reader share their bounds (``MAX_RECORD``, ``MAX_DEPTH``, ``MAX_VALUES``): what could not be read again is
never written. What is set aside is bounded as well, in number for each folder and in size for each file, for a state
folder is a disk that others need.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from operator import attrgetter
from pathlib import Path
from typing import TypeAlias

from node.documents import DocumentLimits, DocumentRefused, check_count, is_deeper, parse_json
from node.opening import NotRegular, TooLarge, open_regular, read_regular
from node.values import Value, value

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"

_LAYOUT = re.compile(rb'\{"schema":("(?:[^"\\]|\\.){0,200}"),"sha256":"([0-9a-f]{64})","data":(.*)\}\n', re.DOTALL)
MAX_RECORD = 16 << 20
"""Bytes of a record, many times what the largest node needs; more is neither read nor written: memory is limited."""
MAX_DEPTH = 100
"""Levels of lists and mappings in a record's data; a document around it has one more."""
MAX_VALUES = 1_000_000
"""Values of a record's data, each of which takes 60 to 100 bytes of memory."""
MOST_ASIDE = 8
"""Files set aside that a folder keeps, the newest ones."""
MAX_ASIDE = 1 << 20
"""Bytes that a file keeps when it is set aside: its beginning, for a person who looks for the reason."""
_ASIDE = r"(?P<name>.+)\.damaged-(?P<number>[0-9]{1,9})"
_LIMITS = DocumentLimits(depth=MAX_DEPTH + 1, values=MAX_VALUES)
_LEFTOVER_AGE = 600.0
"""Seconds after which a temporary file of ours belongs to a process that died while writing."""


class FileError(Exception):
    """A file could not be written or understood; ``path`` says which."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path


class WriteFailed(FileError):
    """The file was not written; what was there before still is."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, f"{path} cannot be written: {reason}")
        self.reason = reason


class ReadFailed(FileError):
    """The file is there and cannot be read."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, f"{path} cannot be read: {reason}")


class RecordDamaged(FileError):
    """The file's content is not what was written; ``aside`` is where it was moved, None if it could not be moved."""

    def __init__(self, path: Path, reason: str, aside: Path | None) -> None:
        where = f"it was set aside as {aside.name}" if aside is not None else "it could not be set aside"
        super().__init__(path, f"{path} is damaged: {reason}; {where}")
        self.reason = reason
        self.aside = aside


class RecordSchemaUnknown(FileError):
    """The record was written by another version of the agent; it is left alone."""

    def __init__(self, path: Path, found: str, known: str) -> None:
        super().__init__(path, f"{path} has schema {found}, this version knows {known}; the file is left as it is")
        self.found = found
        self.known = known


def write_whole(
    path: Path, data: bytes, mode: int = 0o600, *, durable: bool = True, sweep: bool = True, replaceable: bool = False
) -> None:
    """Replace the file's content in one step and return when it is on the disk.

    The temporary file is hidden and ends in ``.tmp``: a watcher of .json or .yaml files never sees it. ``durable``:
    whether it outlives a power cut; without, it outlives only a kill, and costs nothing to wait for. ``replaceable``:
    whether it is written again before anybody needs it after a power cut, which then may leave the file of before, or
    none, but never half a file. ``sweep``: whether what killed writers of this name left is removed, for which the
    whole folder is looked through. Raises WriteFailed, with the temporary file removed.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")
    try:
        try:
            written = _write_temporary(temporary, data, mode, durable=durable)
            temporary.rename(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        if durable and not replaceable:
            _sync_folder(path.parent)
    except OSError as error:
        raise WriteFailed(path, error.strerror or str(error)) from error
    if sweep:
        _remove_leftovers(path, written)


def write_record(path: Path, schema: str, data: JsonValue, *, durable: bool = True, sweep: bool = True) -> None:
    """Write ``data`` as a record; ``schema`` is a name with a version at its end (``identities/v1``).

    ``durable`` and ``sweep`` as for ``write_whole``. Raises WriteFailed, also for data that ``read_record`` refuses.
    """
    if is_deeper(data, MAX_DEPTH):
        raise WriteFailed(path, f"its data nests deeper than {MAX_DEPTH} levels, which no reader accepts")
    raw = json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
    try:
        check_count(raw, _LIMITS)
    except DocumentRefused as error:
        raise WriteFailed(path, f"its data has {error}, which no reader accepts") from error
    head = f'{{"schema":{json.dumps(schema)},"sha256":"{hashlib.sha256(raw).hexdigest()}","data":'
    record = head.encode() + raw + b"}\n"
    if len(record) > MAX_RECORD:
        raise WriteFailed(path, f"the record is {len(record)} bytes; the limit is {MAX_RECORD}")
    write_whole(path, record, durable=durable, sweep=sweep)


def read_record(path: Path, schema: str) -> JsonValue:
    """The data of a record; None when there is no such file.

    Raises ReadFailed, RecordSchemaUnknown (file left alone) or RecordDamaged (file moved to ``<name>.damaged-<n>``).
    """
    try:
        content = read_regular(path, MAX_RECORD)
    except FileNotFoundError:
        return None
    except (NotRegular, TooLarge) as error:
        raise RecordDamaged(path, str(error.strerror), set_aside(path)) from error
    except OSError as error:
        raise ReadFailed(path, error.strerror or str(error)) from error
    try:
        found = _schema_of(content)
        if found != schema and _family(found) == _family(schema):
            raise RecordSchemaUnknown(path, found, schema)
        return _data_of(content, found, schema)
    except ValueError as error:
        raise RecordDamaged(path, str(error), set_aside(path)) from error


def _write_temporary(temporary: Path, data: bytes, mode: int, *, durable: bool) -> float:
    """Write, and sync if ``durable``; returns the file's time, in the clock of its file system."""
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        os.fchmod(descriptor, mode)  # The umask must not decide who may read.
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if durable:
            os.fsync(descriptor)
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_leftovers(path: Path, now: float) -> None:
    """Remove temporary files of this name that a killed process left; young ones may be another writer's."""
    literal = re.sub(r"([*?[])", r"[\1]", path.name)
    for leftover in path.parent.glob(f".{literal}.*.tmp"):
        # A leftover that cannot be read or removed harms nothing; the next write tries again.
        with contextlib.suppress(OSError):
            if leftover.stat().st_mtime < now - _LEFTOVER_AGE:
                leftover.unlink()


def _schema_of(content: bytes) -> str:
    """Schema of any JSON object that has one: a newer version may use another layout. Raises ValueError."""
    match = _LAYOUT.fullmatch(content)
    try:
        document = parse_json(match.group(1) if match is not None else content, _LIMITS)
    except ValueError as error:
        raise ValueError(f"it is {error}") from error
    found = document.get("schema") if isinstance(document, dict) else document
    if not isinstance(found, str):
        raise ValueError("it names no schema")  # noqa: TRY004 - one exception type for every kind of damage
    return found


def _data_of(content: bytes, found: str, schema: str) -> JsonValue:
    """Raises ValueError when anything is not as it was written."""
    match = _LAYOUT.fullmatch(content)
    if match is None:
        raise ValueError("it was changed after it was written")
    if found != schema:
        raise ValueError(f"it has schema {found!r} instead of {schema!r}")
    raw: bytes = match.group(3)
    if hashlib.sha256(raw).hexdigest().encode() != match.group(2):
        raise ValueError("the hash of its data does not match")
    data: JsonValue = parse_json(raw, _LIMITS)
    return data


def _family(schema: str) -> str | None:
    """The schema's name when it ends in a version, else None."""
    name, _, version = schema.rpartition("/v")
    return name if name and version.isdecimal() else None


def set_aside(path: Path) -> Path | None:
    """Move a file that cannot be used to ``<name>.damaged-<n>``; None when it could not be moved.

    No more than its beginning is kept, and no more such files than the newest of the folder.
    """
    try:
        known = _set_aside_in(path.parent)
        number = 1 + max((each.number for each in known if each.name == path.name), default=0)
        aside = path.with_name(f"{path.name}.damaged-{number}")
        path.rename(aside)
    except OSError:
        return None  # The error that is about to be raised says so.
    # What cannot be shortened or removed stays; the disk itself says so with the next write.
    with contextlib.suppress(OSError):
        _shorten(aside)
    for old in sorted(known, key=attrgetter("order"))[: max(0, len(known) + 1 - MOST_ASIDE)]:
        with contextlib.suppress(OSError):
            old.path.rmdir() if old.path.is_dir() and not old.path.is_symlink() else old.path.unlink()
    return aside


@value
class _Aside(Value):
    """A file that was set aside; ``order`` is later for a newer one."""

    path: Path
    name: str
    number: int
    order: tuple[int, int]


def _set_aside_in(folder: Path) -> list[_Aside]:
    """Raises OSError."""
    found = []
    for path in folder.iterdir():
        match = re.fullmatch(_ASIDE, path.name)
        if match is not None:
            number = int(match["number"])
            # Renaming moves the time of change and none else; numbers distinguish files of one moment.
            found.append(_Aside(path, match["name"], number, (path.lstat().st_ctime_ns, number)))
    return found


def _shorten(path: Path) -> None:
    """Raises OSError."""
    if not path.is_file() or path.is_symlink() or path.lstat().st_size <= MAX_ASIDE:
        return
    if path.lstat().st_nlink > 1:
        path.unlink()  # Its content is another file's as well.
        return
    descriptor = open_regular(path, os.O_WRONLY)
    try:
        os.ftruncate(descriptor, MAX_ASIDE)
    finally:
        os.close(descriptor)
