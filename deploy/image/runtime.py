"""A root file system with the running Python and nothing else: no shell, no package manager, no pip.

``python runtime.py TARGET FOLDER...`` puts there the interpreter, its byte-compiled standard library, and every shared
library that these and the extension modules in the folders load. What they load is not worked out but seen: each is
loaded here, and the kernel's list of mapped files is the answer, on any architecture and wherever the base keeps its
libraries. The base has to have glibc, because the wheels are made for it.

Everything stays at its path, belongs to root, and is written by nobody else.
"""

from __future__ import annotations

import compileall
import ctypes
import os
import py_compile
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

LEFT_OUT = (
    "__pycache__",
    "config-*",
    "dist-packages",
    "distutils",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "tests",
    "tkinter",
    "turtle.py",
    "turtledemo",
    # Modules for terminals and databases, each with a library of its own.
    "curses",
    "dbm",
    "sqlite3",
    "_curses*.so",
    "_dbm*.so",
    "_gdbm*.so",
    "_sqlite3*.so",
    "_tkinter*.so",
    "nis*.so",
    "readline*.so",
    # The standard library's own tests.
    "_test*.so",
    "_ctypes_test*.so",
    "_xx*.so",
    "xx*.so",
)
"""Names in the standard library that a node has no use for."""
LIBRARIES = (
    "libudev.so.1",  # pyudev
    "libgcc_s.so.1",  # loaded by libc when a thread is ended
    "libstdc++.so.6",  # wheels take it for granted
    # Of libc since 2.34, and still named as needed by extension modules and NVIDIA's libraries.
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libutil.so.1",
    "libresolv.so.2",
)
"""Libraries that are loaded by their name while the agent runs."""
USER = 65532
"""User and group that the image runs as by default: the number that images without a shell have for 'not root'."""
_LOADER_FOLDERS = (Path("/lib"), Path("/lib64"), Path("/usr/lib"), Path("/usr/lib64"))


class RuntimeIncomplete(Exception):
    """The base lacks something that the image needs."""


def assemble(target: Path, folders: Iterable[Path]) -> None:
    """Fill ``target``; ``folders`` hold extension modules that it will serve. Raises ``RuntimeIncomplete``."""
    for name in ("bin", "lib", "lib64", "sbin"):
        # A merged /usr stays one: the loader's path in every program begins with /lib or /lib64.
        top = Path("/", name)
        if top.is_symlink():
            _place(target / name).symlink_to(top.readlink())
            (target / name).resolve().mkdir(parents=True, exist_ok=True)
    library = Path(sysconfig.get_path("stdlib"))
    for source in {library, Path(sysconfig.get_path("platstdlib"))}:
        shutil.copytree(source, _inside(target, source), dirs_exist_ok=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
    _copy_interpreter(target)
    # The originals: a second copy of a module that is loaded already would be loaded beside it.
    extensions = [Path("/", copy.relative_to(target)) for copy in _inside(target, library).rglob("*.so")]
    extensions += [found for folder in folders for found in folder.rglob("*.so")]
    for loaded in _loaded(extensions):
        _copy_library(target, loaded)
    _write_accounts(target)
    _write_loader_cache(target)
    _compile(target, library)
    _settle(target)


def _inside(target: Path, path: Path) -> Path:
    return target / path.relative_to("/")


def _place(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _copy_interpreter(target: Path) -> None:
    """The interpreter with the names by which a virtual environment calls it."""
    program = Path(os.path.realpath(sys.executable))
    folder = Path(sys.base_exec_prefix, "bin")
    shutil.copy2(program, _place(_inside(target, program)))
    for name in ("python3", f"python3.{sys.version_info.minor}"):
        link = _place(_inside(target, folder / name))
        if not link.exists():
            link.symlink_to(program)


def _loaded(extensions: Iterable[Path]) -> set[Path]:
    """Every file that is mapped once the interpreter, ``extensions`` and ``LIBRARIES`` are loaded, but these."""
    own = set()
    for extension in extensions:
        own.add(os.path.realpath(extension))
        _load(str(extension))
    for name in LIBRARIES:
        _load(name)
    own.add(os.path.realpath(sys.executable))
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    mapped = {fields[5] for line in lines if len(fields := line.split(maxsplit=5)) == 6}
    return {Path(name) for name in mapped - own if name.startswith("/") and ".so" in Path(name).name}


def _load(name: str) -> None:
    try:
        ctypes.CDLL(name, mode=os.RTLD_LAZY)
    except OSError as error:
        raise RuntimeIncomplete(f"{name} cannot be loaded ({error}); use a base with glibc that has it") from error


def _copy_library(target: Path, library: Path) -> None:
    """A library with every name that it is loaded by; the loader itself also has one in a folder of its own."""
    shutil.copy2(library, _place(_inside(target, library)))
    folders = {library.parent, *(_LOADER_FOLDERS if library.name.startswith(("ld-", "ld.")) else ())}
    for folder in folders:
        for link in folder.glob("*.so.*") if folder.is_dir() else ():
            copy = _inside(target, link)
            if link.is_symlink() and link.resolve() == library.resolve() and not os.path.lexists(copy):
                _place(copy).symlink_to(library)


def _write_accounts(target: Path) -> None:
    users = f"root:x:0:0:root:/:/nologin\nostler:x:{USER}:{USER}:ostler:/:/nologin\n"
    _place(target / "etc/passwd").write_text(users)
    (target / "etc/group").write_text(f"root:x:0:\nostler:x:{USER}:\n")
    (target / "etc/nsswitch.conf").write_text("hosts: files dns\n")


def _write_loader_cache(target: Path) -> None:
    """Libraries outside the loader's default folders are found through its cache, as in the base."""
    program = shutil.which("ldconfig", path="/sbin:/usr/sbin")
    if program is None:
        raise RuntimeIncomplete("the base has no ldconfig; use a base with glibc's own")
    for configuration in (Path("/etc/ld.so.conf"), *sorted(Path("/etc/ld.so.conf.d").glob("*.conf"))):
        if configuration.is_file():
            shutil.copy2(configuration, _place(_inside(target, configuration)))
    subprocess.run([program, "-r", str(target)], check=True)
    shutil.rmtree(target / "var", ignore_errors=True)  # ldconfig's own notes


def _compile(target: Path, library: Path) -> None:
    compiled = compileall.compile_dir(
        _inside(target, library),
        stripdir=target,
        quiet=1,
        workers=0,
        # Nothing in an image changes, so nothing has to be compared with its source at each start.
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    if not compiled:
        raise RuntimeIncomplete(f"modules in {library} do not compile; the messages above say which")


def _settle(target: Path) -> None:
    for folder, names, files in os.walk(target):
        for name in (*names, *files):
            path = Path(folder, name)
            os.chown(path, 0, 0, follow_symlinks=False)
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    target.chmod(0o755)


if __name__ == "__main__":
    assemble(Path(sys.argv[1]), [Path(folder) for folder in sys.argv[2:]])
