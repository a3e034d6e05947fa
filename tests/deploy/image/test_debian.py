"""The image says which Debian packages its files are of, as scanners read it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from deploy.image.debian import RELEASE, STATUS, record

LIBC = "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.36-9\nDescription: C\n library\n"
ZLIB = "Package: zlib1g\nStatus: install ok installed\nArchitecture: amd64\nSource: zlib\nVersion: 1:1.2\n"


def debian(folder: Path, owned: Mapping[str, str]) -> Path:
    """A system with two packages; ``owned``: their lists of files."""
    info = folder / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    (folder / "var/lib/dpkg/status").write_text(f"{LIBC}\n{ZLIB}\n")
    for name, files in owned.items():
        (info / f"{name}.list").write_text(files)
    (folder / "etc").mkdir()
    (folder / RELEASE).write_text("ID=debian\nVERSION_ID=12\n")
    return folder


def image(folder: Path, *paths: str) -> Path:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    return folder


def test_packages_of_the_files_that_are_there_are_named_with_those_files(tmp_path: Path) -> None:
    system = debian(
        tmp_path / "system", {"libc6:amd64": "/.\n/usr/lib/libc.so.6\n", "zlib1g:amd64": "/usr/lib/libz.so\n"}
    )
    target = image(tmp_path / "image", "usr/lib/libc.so.6", "usr/local/bin/python3.11")
    assert record(target, system) == ["libc6"]
    assert (target / STATUS / "libc6").read_text() == LIBC
    md5 = hashlib.md5(b"usr/lib/libc.so.6", usedforsecurity=False).hexdigest()
    assert (target / STATUS / "libc6.md5sums").read_text() == f"{md5}  usr/lib/libc.so.6\n"
    assert "VERSION_ID=12" in (target / RELEASE).read_text()


def test_a_file_that_its_package_lists_below_lib_is_found_below_usr(tmp_path: Path) -> None:
    system = debian(tmp_path / "system", {"libc6:amd64": "/lib/x86_64-linux-gnu/libc.so.6\n"})
    target = image(tmp_path / "image", "usr/lib/x86_64-linux-gnu/libc.so.6")
    assert record(target, system) == ["libc6"]


def test_an_image_made_of_such_an_image_names_the_same_packages(tmp_path: Path) -> None:
    system = debian(tmp_path / "system", {"libc6:amd64": "/usr/lib/libc.so.6\n", "zlib1g:amd64": "/usr/lib/libz.so\n"})
    first = image(tmp_path / "first", "usr/lib/libc.so.6", "usr/lib/libz.so")
    assert record(first, system) == ["libc6", "zlib1g"]
    second = image(tmp_path / "second", "usr/lib/libz.so")
    assert record(second, first) == ["zlib1g"]
    assert (second / STATUS / "zlib1g").read_text() == ZLIB


def test_a_system_without_packages_gives_none(tmp_path: Path) -> None:
    target = image(tmp_path / "image", "usr/lib/libc.so.6")
    assert record(target, tmp_path) == []
    assert not (target / "var").exists()
    assert not (target / RELEASE).exists()
