"""The claims' CDI files: one per claim, named after it, so that every file with our prefix can be told from others'.

Blocking; for worker threads. The names in such a file carry the claim's UID and are never used for anything else, so a
file that stays behind gives nothing to anybody.
"""

from __future__ import annotations

import os
from pathlib import Path

from driver.claims.errors import Unavailable
from node.files import WriteFailed, write_whole
from node.opening import read_regular

_MODE = 0o644
"""Container runtimes may run as anybody; a spec holds no secret."""


def file_prefix(driver: str) -> str:
    """What the names of the claims' files begin with; readers of other people's specs leave them out."""
    return f"{driver}-claim_"


class ClaimSpecs:
    """Files ``<driver>-claim_<uid>.json`` in ``folder``."""

    def __init__(self, folder: Path, driver: str) -> None:
        self.folder = folder
        self._prefix = file_prefix(driver)

    def path(self, uid: str) -> Path:
        """The claim's file."""
        return self.folder / f"{self._prefix}{uid}.json"

    def ensure(self, uid: str, text: str) -> bool:
        """Have a claim's file with this content, or none if it is empty; whether anything had to be done.

        Raises Unavailable with what to do.
        """
        if not text:
            return self.remove(uid)
        path = self.path(uid)
        data = text.encode()
        try:
            if read_regular(path, len(data)) == data:
                return False
        except OSError:
            pass  # Not there, or not readable: written anew below, where a real fault shows.
        try:
            try:
                write_whole(path, data, _MODE, sweep=False)
            except WriteFailed as error:
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise
                self._make_folder()
                write_whole(path, data, _MODE, sweep=False)
        except (WriteFailed, OSError) as error:
            raise _fault(path, "written", error) from error
        return True

    def remove(self, uid: str) -> bool:
        """Have no file of the claim; whether there was one. Raises Unavailable with what to do."""
        path = self.path(uid)
        try:
            path.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise _fault(path, "removed", error) from error
        return True

    def uids(self) -> frozenset[str]:
        """Claims that have a file; empty where the folder cannot be read."""
        return frozenset(
            name[len(self._prefix) : -len(".json")]
            for name in self._names()
            if name.startswith(self._prefix) and name.endswith(".json")
        )

    def text(self, uid: str) -> str:
        """The content of a claim's file, empty where there is none that can be read, or is as large as none of ours."""
        from node.cdi.spec import LARGEST  # Not at the start, where nothing is prepared yet.

        try:
            return read_regular(self.path(uid), LARGEST).decode()
        except (OSError, ValueError):
            return ""

    def sweep_unfinished(self) -> None:
        """Remove what a killed process was writing; only while no other process of ours writes."""
        for name in self._names():
            if name.startswith(f".{self._prefix}") and name.endswith(".tmp"):
                try:
                    (self.folder / name).unlink(missing_ok=True)
                except OSError:
                    continue  # Hidden from runtimes; the next start tries again.

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.folder)  # noqa: PTH208 - names are all that is wanted
        except OSError:
            return []

    def _make_folder(self) -> None:
        for folder in reversed((self.folder, *self.folder.parents)):
            if not folder.is_dir():
                folder.mkdir(exist_ok=True)
                # The agent's umask keeps its own files private; runtimes must be able to look in here.
                folder.chmod(0o755)


def _fault(path: Path, done: str, error: WriteFailed | OSError) -> Unavailable:
    reason = error.reason if isinstance(error, WriteFailed) else error.strerror or str(error)
    return Unavailable(f"CDI file {path} cannot be {done} ({reason}); check the folder and its disk")
