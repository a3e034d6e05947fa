"""The folder that container runtimes read CDI specs from: ours are written whole there, and swept when stale.

A record in the state folder says which files we wrote and with what content. Only such a file, and only while it still
has that content, is ever deleted; a folder like /var/run/cdi also holds the specs of others. The record is written
before the files and holds the old content beside the new one until the new one is there, so that a kill in between
leaves a record too many and never a file too many.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from node.cdi.spec import LARGEST, CdiError, Spec, encode
from node.files import (
    FileError,
    JsonValue,
    RecordSchemaUnknown,
    WriteFailed,
    read_record,
    write_record,
    write_whole,
)
from node.opening import TooLarge, read_regular

log = logging.getLogger("ostler.cdi")

SCHEMA = "ostler.dev/cdi-files/v1"
MODE = 0o644
"""Container runtimes may run as anybody; a spec holds no secret."""


@dataclass(frozen=True, slots=True)
class SpecFileChange:
    """The fate of a file: ``written``, ``removed``, or ``left`` because somebody else changed it."""

    name: str
    action: str

    def __str__(self) -> str:
        return f"{self.name} {self.action}"


class CdiDirectory:
    """Our files in ``path``, remembered in ``record``; for one thread at a time."""

    def __init__(self, path: Path, record: Path) -> None:
        self.path = path
        self._record_path = record
        self._record: dict[str, tuple[str, ...]] | None = None
        self._foreign_record = False

    @property
    def owns_files(self) -> bool:
        """Whether there may be files of ours; reads the record at the first call."""
        return bool(self._load())

    def sync(self, desired: Mapping[str, Spec]) -> tuple[SpecFileChange, ...]:
        """Make our files in the folder exactly ``desired`` (by file name).

        Raises ``CdiError`` for a spec that is not valid and for a folder or disk that does not take it; existing files
        stay whole.
        """
        wanted = {name: encode(spec) for name, spec in sorted(desired.items())}
        digests = {name: _digest(data) for name, data in wanted.items()}
        known = self._load()
        both = {name: tuple(dict.fromkeys((*known.get(name, ()), digest))) for name, digest in digests.items()}
        self._save({**known, **both})
        changes = [SpecFileChange(name, "written") for name, data in wanted.items() if self._write(name, data)]
        changes += [self._sweep(name, known[name]) for name in sorted(known.keys() - wanted.keys())]
        self._save({name: (digest,) for name, digest in digests.items()})
        return tuple(changes)

    def _write(self, name: str, data: bytes) -> bool:
        path = self.path / name
        try:
            if read_regular(path, len(data)) == data:
                return False
        except OSError:
            pass  # Not there, or not readable: written again below, where a real fault shows.
        try:
            _make_folder(self.path)
            write_whole(path, data, MODE)
        except (WriteFailed, OSError) as error:
            problem = f"cannot be written ({_reason(error)})"
            raise CdiError(f"file {path}", problem, "check the folder and the disk") from error
        return True

    def _sweep(self, name: str, digests: tuple[str, ...]) -> SpecFileChange:
        path = self.path / name
        try:
            if _digest(read_regular(path, LARGEST)) not in digests:
                return SpecFileChange(name, "left in place, because another program changed it")
            path.unlink()
        except FileNotFoundError:
            return SpecFileChange(name, "was gone already")
        except TooLarge:
            return SpecFileChange(name, "left in place, because another program changed it")
        except OSError as error:
            raise CdiError(f"file {path}", f"cannot be removed ({_reason(error)})", "check the folder") from error
        return SpecFileChange(name, "removed")

    def _load(self) -> dict[str, tuple[str, ...]]:
        if self._record is None:
            try:
                document = read_record(self._record_path, SCHEMA)
            except FileError as error:
                # Nothing of ours is known then, so nothing is swept; the wanted specs are written anyway.
                log.warning("the record of CDI files is unusable", extra={"reason": str(error)})
                # A newer agent's record must survive a downgrade.
                self._foreign_record = isinstance(error, RecordSchemaUnknown)
                document = None
            self._record = _parsed(document)
        return self._record

    def _save(self, record: dict[str, tuple[str, ...]]) -> None:
        if record == self._record:
            return
        if self._foreign_record:
            self._record = record
            return
        try:
            self._record_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_record(self._record_path, SCHEMA, {"files": {name: list(each) for name, each in record.items()}})
        except (WriteFailed, OSError) as error:
            problem = f"cannot be written ({_reason(error)})"
            where = f"record {self._record_path}"
            raise CdiError(where, problem, "check the state folder and the disk") from error
        self._record = record


def _make_folder(path: Path) -> None:
    for folder in reversed((path, *path.parents)):
        if not folder.is_dir():
            folder.mkdir(exist_ok=True)
            # The agent's umask keeps its own files private; runtimes must be able to look in here.
            folder.chmod(0o755)


def _parsed(document: JsonValue) -> dict[str, tuple[str, ...]]:
    """Digests by file name; entries of the wrong form are dropped."""
    files = document.get("files") if isinstance(document, dict) else None
    pairs = files.items() if isinstance(files, dict) else ()
    return {name: tuple(str(each) for each in digests) for name, digests in pairs if isinstance(digests, list)}


def _reason(error: WriteFailed | OSError) -> str:
    return error.reason if isinstance(error, WriteFailed) else error.strerror or str(error)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
