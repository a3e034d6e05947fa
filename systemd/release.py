"""What an installation has besides the packages of the lock file: the project's own, under a name of its content.

Run by ``install.sh`` with the interpreter that is to run the agent; uses the standard library alone, and no build
backend is needed.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tomllib
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
INSTALLS = (
    "requirements.lock",
    "deploy/image/lock.py",
    "deploy/image/packages.py",
    "systemd/install.sh",
    "systemd/places.sh",
    "systemd/release.py",
    "systemd/ostler.service",
)
"""Files that decide, besides the packages, what an installation is; the unit, so that a changed one restarts it."""
_LEFT_OUT = ("__pycache__", "*.pyc", "*.proto")


def packages(source: Path) -> tuple[str, list[Path]]:
    """The project's version and the folders of its packages."""
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))
    names = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return project["project"]["version"], [source / name for name in names]


def identity(source: Path, interpreter: str) -> str:
    """``<version>-<8 hex digits>`` of everything that is installed: the same again is the same folder."""
    version, folders = packages(source)
    summed = hashlib.sha256(interpreter.encode())
    files = [source / name for name in INSTALLS]
    for folder in folders:
        kept = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        files += sorted(path for path in kept if path.suffix not in {".pyc", ".proto"})
    for path in files:
        summed.update(f"{path.relative_to(source)}\0".encode() + path.read_bytes() + b"\0")
    return f"{version}-{summed.hexdigest()[:8]}"


def copy(source: Path, site: Path) -> None:
    """Copy the packages into ``site``, with the record by which tools know what is installed."""
    version, folders = packages(source)
    for folder in folders:
        shutil.copytree(folder, site / folder.name, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    record = site / f"ostler-{version}.dist-info"
    record.mkdir()
    (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: ostler\nVersion: {version}\n", encoding="utf-8")
    (record / "INSTALLER").write_text("make install\n", encoding="utf-8")
    shutil.copy(source / "LICENSE", record / "LICENSE")


def main(arguments: list[str]) -> int:
    """``identity`` prints it; ``copy SITE`` copies the packages."""
    match arguments:
        case ["identity"]:
            print(identity(SOURCE, f"{sys.implementation.cache_tag} {sys.base_prefix}"))
        case ["copy", site]:
            copy(SOURCE, Path(site))
        case _:
            print("usage: release.py identity | copy SITE", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
