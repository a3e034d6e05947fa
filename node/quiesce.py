"""Whether the agent must keep its hands off the driver, so that people can replace it.

The state is a file in the state folder, because it has to hold for every instance on the node (a standby has the driver
open, too) and across restarts of the agent, which an upgrade often brings. It does not outlive a reboot: a node that
comes up starts afresh, and the file of an earlier boot is ignored. A file that cannot be read means "not quiesced":
devices that stay away for an unknown reason would be worse than a driver that is busy.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

from node.files import FileError, JsonValue, read_record, write_record
from node.opening import boot_id

log = logging.getLogger("ostler.quiesce")

SCHEMA = "ostler.dev/quiesce/v1"


class Quiesce:
    """The state at ``path``; ``proc`` identifies the boot. Methods may be called from any thread."""

    def __init__(self, path: Path, proc: Path = Path("/proc")) -> None:
        self._path = path
        self._boot = boot_id(proc)
        self._seen: tuple[int, int] | None = None
        self._reason: str | None = None
        # Asked by the loop and by the thread that scans: neither may see a stamp without its reason.
        self._lock = threading.Lock()

    @property
    def reason(self) -> str | None:
        """Why the driver must be left alone; None when it need not be. Looks at the file whenever that has changed."""
        with self._lock:
            stamp = self._stamp()
            if stamp != self._seen:
                self._reason = self._read() if stamp is not None else None
                self._seen = stamp
            return self._reason

    def begin(self, reason: str) -> str:
        """Leave the driver alone from now on.

        Returns in words why the file cannot be written and only this process does; empty where it is.
        """
        problem = ""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_record(self._path, SCHEMA, {"reason": reason, "bootId": self._boot})
        except (FileError, OSError) as error:
            problem = str(error)
            log.warning(
                "quiesce holds for this process only: its file cannot be written",
                extra={"path": str(self._path), "error": problem},
            )
        with self._lock:
            self._seen, self._reason = self._stamp(), reason
        return problem

    def end(self) -> None:
        """The driver may be used again. Raises OSError when the file stays."""
        try:
            self._path.unlink()
        except OSError:
            # A disk that is read-only refuses that for a file that is not there, too.
            if os.path.lexists(self._path):
                raise
        with self._lock:
            self._seen, self._reason = None, None

    def _read(self) -> str | None:
        try:
            data = read_record(self._path, SCHEMA)
        except FileError as error:
            log.warning("the quiesce file cannot be read and is ignored", extra={"error": str(error)})
            return None
        boot, reason = _text(data, "bootId"), _text(data, "reason")
        if boot != self._boot:
            log.info("quiesce ended with the reboot of the node", extra={"path": str(self._path)})
            return None
        return reason

    def _stamp(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)  # noqa: PTH116 - asked every second
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino


def _text(data: JsonValue, key: str) -> str:
    value = data.get(key) if isinstance(data, dict) else None
    return value if isinstance(value, str) else ""
