"""The bytecode of all modules that an agent loads, in one file: a start then opens one file instead of 300.

Finding a module, and opening, checking and reading its file take a third of what loading it takes. The file is a copy
of Python's own ``.pyc`` files without what no agent needs (``ostler.cli.small_code``), lies beside those of ``ostler``
and is made as they are: by an agent that has settled, if it may write there, or by the installation
(``python -m ostler.cli.bytecode``), which copies a part of nvidia-ml-py (``ostler.cli.partial_modules``). Without it
modules are loaded as usual.

Invariants: Bytecode is used for the source file it was made from, and only while that file has the size and the time
it was made at, as with a ``.pyc``; only in an image, whose files never change, is nothing compared. Which file a
module's name means is found as usual: for the first name by Python's own finder, below a package in its folder. A
module whose code cannot be read is loaded as usual, and a settled agent writes its code anew.
Limit: a package or a compiled module that somebody puts beside a source file of the same name later is not seen until
the source file changes.
"""

from __future__ import annotations

# Nothing here may import a module that is not built into the interpreter: it would be loaded without the file.
import _thread
import marshal
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader

import ostler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import CodeType, ModuleType

_SCHEMA = b"ostler bytecode 5\n"
_HEADER = 16
"""Bytes of a ``.pyc`` before its code: Python's number, flags, and the source's time and size (PEP 552)."""
_COMPARED = 0
"""Flags of a ``.pyc`` that Python compares with its source by time and size, not by a hash or not at all."""
_DAMAGED = (OSError, ValueError, EOFError, TypeError, LookupError, AttributeError, SystemError)
"""What reading damaged bytecode raises."""
_GONE = (-1, -1)
"""Time and size of a source file that is missing; no entry has them."""

_LOADED = (
    "encodings.idna",
    "encodings.utf_8_sig",
    "grpc.aio",
    "ostler.cli.bytecode",
    "ostler.cli.imports",
    "ostler.cli.main",
    "ostler.cli.run",
    "pynvml",
    "pyudev",
    "scheduling.api",
    "tokenize",
    "traceback",
    "urllib3",
    "yaml",
)
"""Modules that an agent begins with, loads in functions, or loads by their names."""
_USERS = {"pynvml.py": "node/inventory/nvidia"}
"""Modules of which an installation copies a part, and the folder whose files name all that is used of each."""

Stamp = tuple[int, int] | None
"""A source file's time in seconds and its size, modulo 2**32; None, in images alone: not compared."""
Entry = tuple[int, int, str, Stamp, str]
"""Where the code of a source file is (offset and length), and the rest of its ``Piece``."""
Piece = tuple[bytes, str, Stamp, str]
"""One source file's code, the name of its ``.pyc``, and the source it was made from; of a part also the folder of its
users, which ends with a slash, empty otherwise.

The code is empty if the ``.pyc`` cannot be copied: Python reads that, and no later agent tries to copy it again.
"""


class BytecodeFile:
    """An open file of bytecode; empty if there is none, or if another Python or version made it."""

    def __init__(self, path: str | None) -> None:
        self._lock = _thread.allocate_lock()
        """Held to read and to close: a closed descriptor's number may by then belong to another file."""
        self._descriptor = -1
        self._entries: dict[str, Entry] = {}
        if path is not None:
            try:
                self._open(path)
            except _DAMAGED:
                self.close()

    def _open(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        start = _start()
        known = os.read(self._descriptor, len(start) + 16)
        if known[: len(start)] != start:
            raise ValueError
        size, index = (int.from_bytes(known[at : at + 8], "little") for at in (len(start), len(start) + 8))
        if os.fstat(self._descriptor).st_size != size or index > size:
            raise ValueError
        entries = marshal.loads(os.pread(self._descriptor, size - index, index))  # noqa: S302  # as with a .pyc
        if not isinstance(entries, dict) or {*map(len, entries.values())} - {5}:
            raise TypeError
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, source: str) -> Entry | None:
        """The entry of a source file; None if there is none, or the source is not what it was made from."""
        entry = self._entries.get(source)
        return entry if entry is not None and self._is_right(source, entry) else None

    def _is_right(self, source: str, entry: Entry) -> bool:
        _, _, _, stamp, users = entry
        if stamp is not None and stamp != stamp_of(source):
            return False
        # After an upgrade they may use more than the part has.
        return not users or all(self.entry(each) for each in list(self._entries) if each.startswith(users))

    def __contains__(self, source: str) -> bool:
        return source in self._entries

    def code(self, source: str) -> CodeType | None:
        """The code of a source file; None if the file does not have it, is damaged there, or is closed meanwhile."""
        entry = self._entries.get(source)
        if entry is None or not entry[1]:
            return None
        try:
            code: CodeType = marshal.loads(self._read(entry))  # noqa: S302  # as with a .pyc
            if code.co_filename == source:
                return code
        except _DAMAGED:
            pass
        self._entries.pop(source, None)
        return None

    def _read(self, entry: Entry) -> bytes:
        with self._lock:
            return os.pread(self._descriptor, entry[1], entry[0])

    def pieces(self) -> Iterator[tuple[str, Piece]]:
        """The source file and the bytecode of every entry that is still right."""
        for source in list(self._entries):
            entry = self.entry(source)
            if entry is not None:
                yield source, (self._read(entry), *entry[2:])

    def close(self) -> None:
        """Forget the entries; a thread that is loading a module from the file then loads it as usual."""
        with self._lock:
            self._entries = {}
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1


class BytecodeLoader(SourceFileLoader):
    """Python's loader of source files, with code from the file of bytecode."""

    def __init__(self, fullname: str, path: str, file: BytecodeFile) -> None:
        super().__init__(fullname, path)
        self._file = file

    def get_code(self, fullname: str) -> CodeType | None:
        """The module's code."""
        return self._file.code(self.path) or super().get_code(fullname)


class BytecodeFinder:
    """Finds the modules whose bytecode is in the file; stands in ``sys.meta_path`` before Python's own."""

    def __init__(self, file: BytecodeFile) -> None:
        self.file = file

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's spec; None leaves it to the other finders."""
        if path is None:
            return self._first_name(name)
        if len(path) != 1:
            return None
        below = f"{path[0]}/{name.rpartition('.')[2]}"
        for source, folders in ((f"{below}/__init__.py", [below]), (f"{below}.py", None)):
            if source in self.file:
                entry = self.file.entry(source)
                return None if entry is None else self._spec(name, source, entry, folders)
        return None

    def _first_name(self, name: str) -> ModuleSpec | None:
        """Where the name is found depends on ``sys.path``: somebody's module may hide another."""
        found = PathFinder.find_spec(name)
        if found is None or type(found.loader) is not SourceFileLoader or found.origin is None:
            return found
        entry = self.file.entry(found.origin)
        return found if entry is None else self._spec(name, found.origin, entry, found.submodule_search_locations)

    def _spec(self, name: str, source: str, entry: Entry, folders: list[str] | None) -> ModuleSpec:
        loader = BytecodeLoader(name, source, self.file)
        spec = ModuleSpec(name, loader, origin=source, is_package=folders is not None)
        if folders is not None and spec.submodule_search_locations is not None:
            spec.submodule_search_locations.extend(folders)
        spec.has_location = True
        spec.cached = entry[2]
        return spec


def use_bytecode() -> None:
    """Load modules from the file of bytecode from now on, until ``settle``."""
    finders: list[object] = list(sys.meta_path)
    if PathFinder in finders and not any(isinstance(finder, BytecodeFinder) for finder in finders):
        sys.meta_path.insert(finders.index(PathFinder), BytecodeFinder(BytecodeFile(path_of_file())))


def settle() -> None:
    """Stop using the file; where modules were loaded that it does not have, write it anew if Python would."""
    import logging

    from node.files import WriteFailed

    finders = [finder for finder in sys.meta_path if isinstance(finder, BytecodeFinder)]
    # A new list: another thread may be going through the old one.
    sys.meta_path = [finder for finder in sys.meta_path if not isinstance(finder, BytecodeFinder)]
    for finder in finders:
        try:
            _add_missing(finder.file)
        except (*_DAMAGED, ImportError, SyntaxError, WriteFailed) as error:
            # A full disk, no free descriptor, pip at work: the next start is slower, and only the log says why.
            logging.getLogger("ostler.agent").info("the file of bytecode is not written: %s", error)
        finally:
            finder.file.close()


def _add_missing(file: BytecodeFile) -> None:
    path = path_of_file()
    if path is None or sys.dont_write_bytecode or not os.access(path.rpartition("/")[0], os.W_OK):
        return
    missing = {source: cached for source, cached in _loaded().items() if file.entry(source) is None}
    found = dict(compiled(missing)) if missing else {}
    if found:
        write_bytecode(path, dict(file.pieces()) | found)


def path_of_file() -> str | None:
    """Where the file lies: beside the bytecode of ``ostler``, by the same rules; None if Python keeps none."""
    cached: str | None = getattr(ostler.__spec__, "cached", None)
    if cached is None:
        return None
    folder, _, name = cached.rpartition("/")
    return f"{folder}/{name.replace('__init__', 'agent', 1).removesuffix('.pyc')}.bytecode"


def stamp_of(source: str) -> Stamp:
    """The time and size of a source file that is there; of one that is missing, what no file has."""
    try:
        status = os.stat(source)  # noqa: PTH116  # pathlib is not loaded yet
    except OSError:
        return _GONE
    return int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF


def _start() -> bytes:
    """What such a file begins with: bytecode belongs to one version of Python."""
    return _SCHEMA + sys.version.encode() + b"\n"


def _loaded() -> dict[str, str]:
    """The source files of the loaded modules of Python, of ostler and of gRPC's neighbours, and their ``.pyc`` files.

    Modules from elsewhere (a ``sitecustomize``) are not the same ones at every start. The command, ``__main__``, is
    loaded before the file is open.
    """
    homes = [os.path.dirname(os.__file__), *(os.path.dirname(folder) for folder in ostler.__path__)]  # noqa: PTH120
    grpc = sys.modules.get("grpc")
    if grpc is not None:
        homes += [os.path.dirname(folder) for folder in grpc.__path__]  # noqa: PTH120
    modules = [module for name, module in list(sys.modules.items()) if name != "__main__"]
    specs = [getattr(module, "__spec__", None) for module in modules]
    return {
        spec.origin: spec.cached
        for spec in specs
        if spec is not None
        and isinstance(spec.loader, SourceFileLoader)
        and spec.cached
        and spec.origin.startswith(tuple(f"{home}/" for home in homes))
    }


def compiled(sources: Mapping[str, str]) -> Iterator[tuple[str, Piece]]:
    """The bytecode of those source files whose ``.pyc`` Python itself would use; a damaged one is skipped."""
    for source, cached in sources.items():
        stamp = stamp_of(source)
        try:
            code = _copied(source, cached, stamp)
        except _DAMAGED:
            continue
        if code is not None and stamp != _GONE:
            yield source, (code, cached, stamp, "")


def _copied(source: str, cached: str, stamp: Stamp) -> bytes | None:
    """The code of a ``.pyc``, empty if it cannot be copied; None if Python would make the ``.pyc`` anew."""
    with open(cached, "rb") as file:  # noqa: PTH123  # as above
        content = file.read()
    # Loaded by then, or by a command that takes no part in the start.
    from importlib.util import MAGIC_NUMBER

    from ostler.cli.shared_constants import marshalled
    from ostler.cli.small_code import named, small_code

    flags, time, size = (int.from_bytes(content[at : at + 4], "little") for at in (4, 8, 12))
    if content[:4] != MAGIC_NUMBER or (flags == _COMPARED and (time, size) != stamp):
        return None
    if flags != _COMPARED:
        # By time and size alone nobody would notice that its source is another.
        return b""
    code: CodeType = marshal.loads(content[_HEADER:])  # noqa: S302  # as Python loads it
    return marshalled(small_code(source, named(source, code)))


def staged_code(sources: Mapping[str, str], folder: str) -> Iterator[tuple[str, Piece]]:
    """The bytecode of source files that will lie at their places without ``folder`` (or ``/``), and not change there.

    Compiled anew: the ``.pyc`` files of an image are made before the place is known, and lie elsewhere for some.
    """
    from ostler.cli.shared_constants import marshalled
    from ostler.cli.small_code import small_code

    folder = folder.rstrip("/")
    for source, cached in sources.items():
        place = source.removeprefix(folder)
        with open(source, "rb") as file:  # noqa: PTH123  # as above
            code = compile(file.read(), place, "exec", dont_inherit=True)
        yield place, (marshalled(small_code(source, code)), cached.removeprefix(folder), None, "")


def in_part(source: str, place: str, piece: Piece) -> Piece:
    """The bytecode of a source file that will lie at ``place``, without what ostler does not use of it."""
    import re
    from pathlib import Path

    from ostler.cli.partial_modules import part_of
    from ostler.cli.shared_constants import marshalled
    from ostler.cli.small_code import small_code

    users = _USERS.get(Path(source).name)
    code, cached, stamp, _ = piece
    if users is None or not code:
        return piece
    root = Path(ostler.__path__[0]).parent
    # Every word that stands there, so that no use can be missed.
    used = {word for user in (root / users).rglob("*.py") for word in re.findall(r"\w+", user.read_text("utf-8"))}
    part = part_of(Path(source).read_bytes(), place, used)
    if part is None or (stamp is not None and stamp != stamp_of(source)):
        return piece
    folder = f"{root}/{users}/".removeprefix(source.removesuffix(place))
    return marshalled(small_code(source, part)), cached, stamp, folder


def write_bytecode(path: str, pieces: Mapping[str, Piece]) -> None:
    """Write the file; raises ``WriteFailed``, and then the old one stays."""
    from pathlib import Path

    from node.files import write_whole

    offset = len(_start()) + 16
    entries: dict[str, Entry] = {}
    for source, (code, cached, stamp, users) in pieces.items():
        entries[source] = (offset, len(code), cached, stamp, users)
        offset += len(code)
    index = marshal.dumps(entries)
    sizes = (offset + len(index)).to_bytes(8, "little") + offset.to_bytes(8, "little")
    content = b"".join((_start(), sizes, *(code for code, *_ in pieces.values()), index))
    write_whole(Path(path), content, mode=0o644)


def main(words: Sequence[str] | None = None) -> int:
    """Write the file for an installation whose ``.pyc`` files are there."""
    import argparse
    from importlib import import_module
    from importlib.util import cache_from_source
    from pathlib import Path

    from node.files import WriteFailed
    from ostler.cli.small_code import OWN

    parser = argparse.ArgumentParser(description="Write the file from which agents of this installation load modules.")
    parser.add_argument(
        "--staged",
        metavar="FOLDER",
        help="for an image: modules below this folder will lie at its place, and none will ever change",
    )
    staged: str | None = parser.parse_args(words).staged
    for name in _LOADED:
        import_module(name)
    root = Path(ostler.__path__[0]).parent
    own = [source for package in OWN for source in (root / package).rglob("*.py")]
    # In order, so that the same installation gives the same file.
    sources = dict(sorted({**_loaded(), **{str(source): cache_from_source(str(source)) for source in own}}.items()))
    path = path_of_file()
    if path is None:
        parser.error("this Python keeps no bytecode")
    pieces = dict(compiled(sources) if staged is None else staged_code(sources, staged))
    for source in sources:
        place = source if staged is None else source.removeprefix(staged.rstrip("/"))
        if place in pieces:
            pieces[place] = in_part(source, place, pieces[place])
    try:
        write_bytecode(path, pieces)
    except WriteFailed as error:
        sys.stderr.write(f"ostler: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
