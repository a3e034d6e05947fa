"""Records in an image which Debian packages its files come from, for scanners and the SBOM.

``python debian.py TARGET`` looks at the files in ``TARGET`` that were copied from this system at the same path. For the
packages that own them it writes ``var/lib/dpkg/status.d``, as images without a package manager do: the package's own
entry, and beside it the files that were taken, with their MD5 sums. Only a part of a package may be there. A file that
no package owns (a Python built from source) gives no entry, and a system that is no Debian gives none at all.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

STATUS = "var/lib/dpkg/status.d"
"""Folder in which such images, and images made of them, keep an entry for each package."""
RELEASE = "etc/os-release"
"""The file that names the distribution."""


def record(target: Path, system: Path = Path("/")) -> list[str]:
    """Write the packages of the files in ``target``; their names. ``system``: where the files were copied from."""
    wanted = {spelling: path for path in _files(target) for spelling in _spellings(path)}
    entries = _entries(system)
    taken: dict[str, set[str]] = {}
    for package, listed in _listings(system):
        if package in entries and (found := {wanted[path] for path in listed if path in wanted}):
            taken.setdefault(package, set()).update(found)
    folder = target / STATUS
    for package, paths in sorted(taken.items()):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / package).write_text(entries[package].strip() + "\n", encoding="utf-8")
        sums = "".join(f"{_md5(target / path)}  {path}\n" for path in sorted(paths))
        (folder / f"{package}.md5sums").write_text(sums, encoding="utf-8")
    if taken and (system / RELEASE).is_file():
        (target / RELEASE).parent.mkdir(exist_ok=True)
        shutil.copyfile(system / RELEASE, target / RELEASE)
    return sorted(taken)


def _files(target: Path) -> Iterator[str]:
    """Paths of regular files, as from the root and without ``/`` before it."""
    for path in target.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield str(path.relative_to(target))


def _spellings(path: str) -> tuple[str, str]:
    """How a package may list a file: where ``/lib`` is a link to ``/usr/lib``, by either name."""
    return path, path.removeprefix("usr/")


def _entries(system: Path) -> dict[str, str]:
    """The record of each installed package, by its name; an image's own packages have the same form."""
    status = system / "var/lib/dpkg/status"
    texts = status.read_text(encoding="utf-8").split("\n\n") if status.is_file() else []
    texts += [path.read_text(encoding="utf-8") for path in _of_image(system) if path.suffix != ".md5sums"]
    named = ((re.search(r"(?m)^Package: (\S+)$", text), text) for text in texts)
    return {found[1]: text for found, text in named if found is not None}


def _listings(system: Path) -> Iterator[tuple[str, list[str]]]:
    """The files of each package, without ``/`` before them."""
    for path in sorted((system / "var/lib/dpkg/info").glob("*.list")):
        lines = path.read_text(encoding="utf-8").splitlines()
        # Packages of several architectures may be there: NAME:ARCHITECTURE.list.
        yield path.stem.partition(":")[0], [line.lstrip("/") for line in lines]
    for path in _of_image(system):
        if path.suffix == ".md5sums":
            yield path.stem, [line.partition("  ")[2] for line in path.read_text(encoding="utf-8").splitlines()]


def _of_image(system: Path) -> list[Path]:
    folder = system / STATUS
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


if __name__ == "__main__":
    record(Path(sys.argv[1]))
