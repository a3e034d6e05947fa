"""What an installation consists of: packages of the project, and the runtime's part of the lock file.

Run by ``install.sh`` with the interpreter that is to run the agent; uses the standard library alone. The lock file
holds development tools, too, and says of each package who asked for it: what the project itself asks for, and what is
asked for by that, is the runtime. No build backend is needed, and whatever is downloaded has its hash in the lock file.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
PROJECT = "ostler (pyproject.toml)"
"""How the lock file names the project where it asks for a package to run, and not to develop."""
_PINNED = re.compile(r"([a-z0-9][a-z0-9._-]*)==\S+")
_LEFT_OUT = ("__pycache__", "*.pyc", "*.proto")


@dataclass(frozen=True, slots=True)
class Pin:
    """One package of the lock file: ``text`` with version, marker and hashes, and who asked for it (``via``)."""

    name: str
    text: str
    via: frozenset[str]


def pins(lock: str) -> Iterator[Pin]:
    """The packages of a lock file as uv writes it; raises ValueError for a line that it does not write."""
    for block in re.split(r"\n(?=[a-z0-9])", lock):
        lines = block.splitlines()
        pinned = _PINNED.match(lines[0]) if lines else None
        if pinned is None:
            if any(line and not line.startswith("#") for line in lines):
                raise ValueError(f"not understood in the lock file: {lines[0]!r}; make it anew by 'make lock'")
            continue
        comments = [line.strip().removeprefix("#").strip() for line in lines if line.lstrip().startswith("#")]
        via = {comment.removeprefix("via").strip() for comment in comments}
        text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
        yield Pin(pinned.group(1), text, frozenset(via - {""}))


def runtime(lock: str) -> list[Pin]:
    """What the agent needs to run, in the lock file's order; raises ValueError where the file does not say it."""
    every = list(pins(lock))
    wanted = {PROJECT}
    while found := {pin.name for pin in every if pin.via & wanted} - wanted:
        wanted |= found
    needed = [pin for pin in every if pin.name in wanted]
    if not needed:
        raise ValueError(f"the lock file has nothing that {PROJECT} asks for; make it anew by 'make lock'")
    return needed


def packages(source: Path) -> tuple[str, list[Path]]:
    """The project's version and the folders of its packages."""
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))
    names = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return project["project"]["version"], [source / name for name in names]


def identity(source: Path, interpreter: str) -> str:
    """``<version>-<8 hex digits>`` of everything that is installed: the same again is the same folder."""
    version, folders = packages(source)
    summed = hashlib.sha256(interpreter.encode())
    files = [source / "requirements.lock", Path(__file__), Path(__file__).with_name("install.sh")]
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
    """``identity`` and ``requirements`` print; ``copy SITE`` copies the packages."""
    match arguments:
        case ["identity"]:
            print(identity(SOURCE, f"{sys.implementation.cache_tag} {sys.base_prefix}"))
        case ["requirements"]:
            print("\n".join(pin.text for pin in runtime((SOURCE / "requirements.lock").read_text(encoding="utf-8"))))
        case ["copy", site]:
            copy(SOURCE, Path(site))
        case _:
            print("usage: release.py identity | requirements | copy SITE", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
