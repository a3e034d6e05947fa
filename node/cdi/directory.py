"""The folder that container runtimes read CDI specs from: ours are written whole there, and swept when stale.

A record in the state folder says which files we wrote and with what content. Only such a file, and only while it still
has that content, is ever deleted; a folder like /var/run/cdi also holds the specs of others. The record is written
before the files, so that a kill in between leaves a record too many and never a file too many.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from node.cdi.spec import CdiError, Spec, encode
from node.files import FileError, read_record, write_record, write_whole

log = logging.getLogger("ostler.cdi")

SCHEMA = "ostler.dev/cdi-files/v1"
MODE = 0o644
"""Container runtimes may run as anybody; a spec holds no secret."""


@dataclass(frozen=True, slots=True)
class Change:
    """What was done with a file: ``written``, ``removed``, or ``left`` because somebody else changed it."""

    name: str
    action: str

    def __str__(self) -> str:
        return f"{self.name} {self.action}"


class CdiDirectory:
    """Our files in ``path``, remembered in ``record``; for one thread at a time."""

    def __init__(self, path: Path, record: Path) -> None:
        self.path = path
        self._record_path = record
        self._record: dict[str, str] | None = None

    @property
    def owns_files(self) -> bool:
        """Whether there may be files of ours; reads the record at the first call."""
        return bool(self._load())

    def sync(self, desired: Mapping[str, Spec]) -> tuple[Change, ...]:
        """Have exactly ``desired`` (by file name) of ours in the folder.

        Raises ``CdiError`` for a spec that is not valid and for a folder or disk that does not take it; files that
        are there stay whole.
        """
        wanted = {name: encode(spec) for name, spec in sorted(desired.items())}
        known = self._load()
        self._save({**known, **{name: _digest(data) for name, data in wanted.items()}})
        changes = [Change(name, "written") for name, data in wanted.items() if self._write(name, data)]
        changes += [self._sweep(name, known[name]) for name in sorted(known.keys() - wanted.keys())]
        self._save({name: _digest(data) for name, data in wanted.items()})
        return tuple(changes)

    def _write(self, name: str, data: bytes) -> bool:
        path = self.path / name
        try:
            if path.read_bytes() == data:
                return False
        except OSError:
            pass  # Not there, or not readable: written anew below, where a real fault shows.
        try:
            if not self.path.is_dir():
                self.path.mkdir(parents=True, exist_ok=True)
                # The agent's umask keeps its own files private; runtimes must be able to look in here.
                self.path.chmod(0o755)
            write_whole(path, data, MODE)
        except (FileError, OSError) as error:
            raise CdiError(f"file {path}", f"cannot be written ({error})", "check the folder and the disk") from error
        return True

    def _sweep(self, name: str, digest: str) -> Change:
        path = self.path / name
        try:
            if _digest(path.read_bytes()) != digest:
                return Change(name, "left, somebody else changed it")
            path.unlink()
        except FileNotFoundError:
            return Change(name, "was gone already")
        except OSError as error:
            raise CdiError(f"file {path}", f"cannot be removed ({error.strerror})", "check the folder") from error
        return Change(name, "removed")

    def _load(self) -> dict[str, str]:
        if self._record is None:
            try:
                document = read_record(self._record_path, SCHEMA)
            except FileError as error:
                # Nothing of ours is known then, so nothing is swept; what is wanted is written all the same.
                log.warning("the record of CDI files is not usable", extra={"reason": str(error)})
                document = None
            files = document.get("files") if isinstance(document, dict) else None
            self._record = {str(name): str(digest) for name, digest in files.items()} if isinstance(files, dict) else {}
        return self._record

    def _save(self, record: dict[str, str]) -> None:
        if record == self._record:
            return
        try:
            self._record_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_record(self._record_path, SCHEMA, {"files": dict(record)})
        except (FileError, OSError) as error:
            where = f"record {self._record_path}"
            raise CdiError(where, f"cannot be written ({error})", "check the state folder and the disk") from error
        self._record = record


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
