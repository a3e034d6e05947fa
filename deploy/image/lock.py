"""The part of the lock file that runs on nodes, so that an installation has the versions that the tests have run with.

``python lock.py requirements.lock`` prints it, for the image and for the service (``systemd/install.sh``); it uses the
standard library alone. The lock file covers development, too, and says behind each package
what asked for it; followed from ostler's own dependencies those remarks give the rest. Nothing is resolved anew, so the
subset cannot have other versions, and every hash stays.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = "ostler (pyproject.toml)"
"""How the lock file names what ostler itself asks for; its development group is named otherwise."""


class LockFileError(Exception):
    """The file is not a lock file that says what asked for each package."""


def runtime_subset(lock: str) -> str:
    """The entries of ``lock`` that ostler needs at run time, unchanged and in order; raises ``LockFileError``."""
    entries = [entry for entry in re.split(r"(?m)^(?=[^#\s])", lock) if re.match(r"[^#\s]", entry)]
    for entry in entries:
        if not re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*==\S", entry):
            line = entry.splitlines()[0]
            raise LockFileError(f"not understood in the lock file: {line!r}; make it anew with 'make lock'")
    asked_by = {_name(entry): _asked_by(entry) for entry in entries}
    wanted = {ROOT}
    while True:
        found = {name for name, askers in asked_by.items() if wanted & askers} | wanted
        if found == wanted:
            break
        wanted = found
    chosen = [entry for entry in entries if _name(entry) in wanted]
    if not chosen:
        raise LockFileError(f"no package says '# via {ROOT}'; make the lock file anew with 'make lock'")
    return "".join(chosen)


def _name(entry: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", entry, maxsplit=1)[0]


def _asked_by(entry: str) -> set[str]:
    remarks = (line.strip().removeprefix("#").strip() for line in entry.splitlines() if line.startswith("    #"))
    return {remark.removeprefix("via").strip() for remark in remarks}


if __name__ == "__main__":
    sys.stdout.write(runtime_subset(Path(sys.argv[1]).read_text(encoding="utf-8")))
