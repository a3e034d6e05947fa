"""The file with the bytecode of all modules: what is loaded from it, and when it is not used."""

from __future__ import annotations

import compileall
import importlib.util
import marshal
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from py_compile import PycInvalidationMode
from types import FunctionType

import pytest

import node.values
from ostler.cli.bytecode import (
    BytecodeFile,
    BytecodeFinder,
    BytecodeLoader,
    compiled,
    settle,
    staged_code,
    write_bytecode,
)

LOADED = """
import sys
from ostler.cli.bytecode import settle, use_bytecode
use_bytecode()
import json.scanner, logging, node.files
loaders = {name: type(getattr(module, "__loader__", None)).__name__ for name, module in sys.modules.items()}
print(*(name for name, loader in loaders.items() if loader == "BytecodeLoader"))
settle()
"""
"""Prints the modules that were loaded from the file, and then does what a settled agent does."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A package with two modules and another one inside."""
    package = tmp_path / "alpha"
    (package / "inner").mkdir(parents=True)
    for name in ("__init__", "one", "two", "inner/__init__"):
        (package / f"{name}.py").write_text(f"NAME = {name!r}\n")
    return package


def sources(folder: Path) -> dict[str, str]:
    return {str(path): importlib.util.cache_from_source(str(path)) for path in folder.rglob("*.py")}


def written(
    folder: Path, mode: PycInvalidationMode = PycInvalidationMode.TIMESTAMP, strip: Path | None = None
) -> BytecodeFinder:
    """A finder with the bytecode of the folder, which has no ``.pyc`` files any more."""
    compileall.compile_dir(folder, quiet=1, stripdir=strip, invalidation_mode=mode)
    path = str(folder.parent / "file.bytecode")
    write_bytecode(path, dict(compiled(sources(folder))))
    for cached in sources(folder).values():
        os.remove(cached)  # noqa: PTH107
    return BytecodeFinder(BytecodeFile(path))


def load(finder: BytecodeFinder, name: str, folder: Path) -> Mapping[str, object] | None:
    """What is in the module once it is loaded; None if the finder does not find it."""
    spec = finder.find_spec(name, [str(folder)])
    if spec is None:
        return None
    assert isinstance(spec.loader, BytecodeLoader)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)


def test_a_module_is_loaded_from_the_file_and_looks_as_usual(folder: Path) -> None:
    finder = written(folder)
    found = load(finder, "alpha.one", folder)
    assert found is not None
    expected = importlib.util.cache_from_source(str(folder / "one.py"))
    assert (found["NAME"], found["__file__"], found["__cached__"]) == ("one", str(folder / "one.py"), expected)
    assert not Path(expected).exists(), "Python's loader would have written it"
    inner = load(finder, "alpha.inner", folder)
    assert inner is not None
    assert (inner["NAME"], inner["__path__"]) == ("inner/__init__", [str(folder / "inner")])


def test_a_source_file_that_changed_is_loaded_as_usual(folder: Path) -> None:
    finder = written(folder)
    (folder / "one.py").write_text("NAME = 'another one'\n")
    assert load(finder, "alpha.one", folder) is None
    assert load(finder, "alpha.two", folder) is not None


def test_a_source_file_of_another_time_is_loaded_as_usual(folder: Path) -> None:
    finder = written(folder)
    os.utime(folder / "one.py", (1e9, 1e9))
    assert load(finder, "alpha.one", folder) is None


def test_a_source_file_that_went_away_is_not_found(folder: Path) -> None:
    finder = written(folder)
    (folder / "one.py").unlink()
    assert load(finder, "alpha.one", folder) is None


@pytest.mark.parametrize("mode", [PycInvalidationMode.UNCHECKED_HASH, PycInvalidationMode.CHECKED_HASH])
def test_bytecode_that_python_does_not_compare_by_time_is_not_in_the_file(
    folder: Path, mode: PycInvalidationMode
) -> None:
    finder = written(folder, mode)
    one = folder / "one.py"
    before = one.stat()
    one.write_text("NAME = 'two'\n")
    os.utime(one, ns=(before.st_atime_ns, before.st_mtime_ns))
    found = load(finder, "alpha.one", folder)
    assert found is not None
    assert found["NAME"] == "two"
    assert finder.file.entry(str(one)) is not None, "a settled agent would read its .pyc after every start"


def test_bytecode_of_a_source_file_that_is_missing_is_not_in_the_file(folder: Path) -> None:
    compileall.compile_dir(folder, quiet=1, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
    known = sources(folder)
    (folder / "one.py").unlink()
    assert str(folder / "one.py") not in dict(compiled(known))


def test_a_pyc_that_is_damaged_is_skipped(folder: Path) -> None:
    compileall.compile_dir(folder, quiet=1)
    known = sources(folder)
    os.truncate(known[str(folder / "one.py")], 40)
    Path(known[str(folder / "two.py")]).unlink()
    assert set(dict(compiled(known))) == {str(folder / "__init__.py"), str(folder / "inner/__init__.py")}


def test_an_image_gets_the_bytecode_of_what_lies_elsewhere_while_it_is_built(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "file.bytecode"
    write_bytecode(str(path), dict(staged_code(sources(folder), str(tmp_path))))
    file = BytecodeFile(str(path))
    place = "/alpha/inner/__init__.py"
    assert file.entry(place) is not None, "there is no such source file, and nothing is compared"
    code = file.code(place)
    assert code is not None
    assert code.co_filename == place
    assert len(file) == 4


def test_an_image_gets_the_bytecode_of_its_own_root(folder: Path) -> None:
    assert set(dict(staged_code(sources(folder), "/"))) == set(sources(folder))


def test_a_module_of_an_earlier_folder_hides_one_in_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finder = written(folder)
    earlier = folder.parent / "earlier"
    earlier.mkdir()
    monkeypatch.setattr(sys, "path", [str(earlier), str(folder)])
    found = finder.find_spec("one")
    assert found is not None
    assert (found.origin, type(found.loader)) == (str(folder / "one.py"), BytecodeLoader)
    (earlier / "one.py").write_text("NAME = 'earlier'\n")
    importlib.invalidate_caches()
    found = finder.find_spec("one")
    assert found is not None
    assert found.origin == str(earlier / "one.py")


def test_code_compiled_under_another_name_is_that_of_its_file(folder: Path) -> None:
    (folder / "one.py").write_text("NAME = 'one'\ndef function():\n    return lambda: 1\n")
    finder = written(folder, strip=folder.parent)
    found = load(finder, "alpha.one", folder)
    assert found is not None
    assert found["NAME"] == "one"
    assert isinstance(function := found["function"], FunctionType)
    assert {function.__code__.co_filename, function().__code__.co_filename} == {str(folder / "one.py")}
    assert b"" not in {code for _, (code, *_) in finder.file.pieces()}


def test_a_part_is_used_while_its_users_are_what_they_were(folder: Path) -> None:
    file = written(folder).file
    part, users = str(folder / "one.py"), f"{folder}/inner/"
    pieces = dict(file.pieces())
    pieces[part] = (*pieces[part][:3], users)
    path = str(folder.parent / "parts.bytecode")
    write_bytecode(path, pieces)
    assert BytecodeFile(path).entry(part) is not None
    (folder / "two.py").write_text("it does not use it")
    assert BytecodeFile(path).entry(part) is not None
    (folder / "inner" / "__init__.py").write_text("it uses more")
    changed = BytecodeFile(path)
    assert changed.entry(part) is None
    assert part not in dict(changed.pieces()), "the next file has the whole of it"


def with_index(content: bytes, index: list[str] | dict[str, int] | dict[str, tuple[int, int]]) -> bytes:
    """The file with something else in place of its index."""
    sizes = content.index(sys.version.encode()) + len(sys.version.encode()) + 1
    begin = int.from_bytes(content[sizes + 8 : sizes + 16], "little")
    other = marshal.dumps(index)
    size = (begin + len(other)).to_bytes(8, "little")
    return content[:sizes] + size + content[sizes + 8 : begin] + other


def with_index_nowhere(content: bytes) -> bytes:
    """The file with an index that begins after its end."""
    at = content.index(sys.version.encode()) + len(sys.version.encode()) + 9
    return content[:at] + b"\xff" * 8 + content[at + 8 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: content.replace(sys.version.encode(), b"2" * len(sys.version)),
        lambda content: content.replace(b"ostler bytecode ", b"ostler bytecode 0"),
        lambda content: with_index(content, ["no", "mapping"]),
        lambda content: with_index(content, {"/alpha.py": (1, 2)}),
        lambda content: with_index(content, {"/alpha.py": 1}),
        with_index_nowhere,
    ],
)
def test_a_file_that_is_not_whole_or_of_another_python_is_not_used(
    folder: Path, damage: Callable[[bytes], bytes]
) -> None:
    written(folder)
    path = folder.parent / "file.bytecode"
    assert len(BytecodeFile(str(path))) == 4
    path.write_bytes(damage(path.read_bytes()))
    assert len(BytecodeFile(str(path))) == 0


@pytest.mark.parametrize(
    "instead",
    [b"\0" * 50, marshal.dumps("text"), marshal.dumps((lambda: 1).__code__)],
    ids=["zeros", "no code", "code of another file"],
)
def test_code_that_is_damaged_is_loaded_as_usual_and_made_anew(folder: Path, instead: bytes) -> None:
    finder = written(folder)
    one = str(folder / "one.py")
    entry = finder.file.entry(one)
    assert entry is not None
    with (folder.parent / "file.bytecode").open("r+b") as file:
        file.seek(entry[0])
        file.write(instead[: entry[1]])
    found = load(finder, "alpha.one", folder)
    assert found is not None
    assert found["NAME"] == "one"
    assert finder.file.entry(one) is None
    assert finder.file.entry(str(folder / "two.py")) is not None


def test_the_file_is_not_closed_while_a_module_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finder = written(folder)
    closing = threading.Thread(target=finder.file.close)
    read = os.pread

    def slowly(descriptor: int, size: int, offset: int) -> bytes:
        closing.start()
        # As long as closing takes, if it does not wait.
        closing.join(0.1)
        return read(descriptor, size, offset)

    monkeypatch.setattr("ostler.cli.bytecode.os.pread", slowly)
    code = finder.file.code(str(folder / "one.py"))
    closing.join()
    monkeypatch.undo()
    assert code is not None
    found = load(finder, "alpha.two", folder)
    assert found is None, "the file is closed"


def test_a_thread_that_looks_for_a_module_meanwhile_goes_through_all_finders(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finder = written(folder)
    before: list[object] = [finder, *sys.meta_path]
    monkeypatch.setattr(sys, "meta_path", before)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    settle()
    assert before[0] is finder
    assert sys.meta_path == before[1:]
    assert len(finder.file) == 0


def test_a_file_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert len(BytecodeFile(str(tmp_path / "none"))) == 0
    assert len(BytecodeFile(None)) == 0


def printed(prefix: Path, *words: str, **environment: str) -> str:
    """What an interpreter prints that keeps all its bytecode below ``prefix``, whatever the checkout has."""
    known = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = {**known, "PYTHONPYCACHEPREFIX": str(prefix), **environment}
    command = (sys.executable, *words)
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def loaded(prefix: Path, before: str = "", after: str = "", **environment: str) -> set[str]:
    """What a process loads from the file below ``prefix``, where its bytecode is, and what it prints else.

    ``before`` and ``after`` are what it does before and after it settles.
    """
    done = LOADED.replace("settle()\n", f"{before}\nsettle()\n{after}\n")
    return set(printed(prefix, "-c", done, **environment).split())


def test_a_settled_agent_writes_the_file_once_and_the_next_start_uses_it(tmp_path: Path) -> None:
    assert loaded(tmp_path) == set()
    (file,) = tmp_path.rglob("*.bytecode")
    first = file.stat()
    assert file.stat().st_mode & 0o777 == 0o644
    assert {"json", "json.scanner", "logging", "node", "node.files", "node.opening"} <= loaded(tmp_path)
    assert file.stat().st_ino == first.st_ino, "nothing was missing"


def test_an_agent_that_has_nothing_to_write_loads_nothing_for_it(tmp_path: Path) -> None:
    after = "print('ostler.cli.docstrings' in sys.modules)"
    assert "True" in loaded(tmp_path, after=after)
    assert "False" in loaded(tmp_path, after=after)


def test_an_agent_without_a_free_descriptor_settles(tmp_path: Path) -> None:
    before = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))"
    assert loaded(tmp_path, before, "print('settled')") == {"settled"}
    assert not list(tmp_path.rglob("*.bytecode"))


def test_an_agent_that_cannot_write_the_file_says_why_and_settles(tmp_path: Path) -> None:
    before = """
import os
from ostler.cli.bytecode import path_of_file
os.makedirs(path_of_file())
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
"""
    assert {"bytecode", "written:", "settled"} <= loaded(tmp_path, before, "print('settled')")


def test_an_agent_whose_installation_goes_away_settles(tmp_path: Path) -> None:
    before = "sys.modules['ostler.cli.docstrings'] = None"
    assert loaded(tmp_path, before, "print('settled')") == {"settled"}


def test_no_file_is_written_where_python_writes_no_bytecode(tmp_path: Path) -> None:
    loaded(tmp_path)
    (file,) = tmp_path.rglob("*.bytecode")
    file.unlink()
    assert loaded(tmp_path, PYTHONDONTWRITEBYTECODE="1") == set()
    assert not list(tmp_path.rglob("*.bytecode"))


def test_an_installation_makes_the_file_of_everything_an_agent_loads(installation: Path) -> None:
    assert len(list(installation.rglob("*.bytecode"))) == 1
    lines = LOADED.replace("import json.scanner", "import ostler.cli.run, json.scanner").replace("settle()\n", "")
    assert {"asyncio.events", "plugin.servicer", "ostler.agent.agent"} <= set(
        printed(installation, "-c", lines).split()
    )


def test_the_first_agent_of_an_installation_has_nothing_to_write(installation: Path) -> None:
    (file,) = installation.rglob("*.bytecode")
    first = file.stat()
    before = """
import ostler.cli.imports, ostler.cli.main, ostler.cli.run
from importlib.util import find_spec
sys.modules["__main__"].__spec__ = find_spec("ostler.__main__")
"""
    assert {"ostler.cli.imports", "ostler.cli.run"} <= loaded(installation, f"{before}\nprint(*sys.modules)")
    assert file.stat().st_ino == first.st_ino


def test_an_installation_also_copies_what_an_agent_loads_for_its_second_door(installation: Path) -> None:
    second = {"encodings.idna", "stringprep", "pyudev.monitor", "scheduling.api.validation.objects", "urllib3.response"}
    lines = LOADED.replace("import json.scanner", f"import {', '.join(sorted(second))}, json.scanner")
    assert second <= set(printed(installation, "-c", lines.replace("settle()\n", "")).split())


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="newer Pythons keep annotations")
def test_code_of_ostler_has_lines_alone_and_no_annotations_and_that_of_others_keeps_annotations(tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text("from __future__ import annotations\ndef value(given: int) -> int: ...\n")
    found: dict[str, dict[str, object]] = {}
    for source, piece in staged_code(dict.fromkeys((str(other), node.values.__file__), ""), "/"):
        code = marshal.loads(piece[0])
        assert {position[2] for position in code.co_positions()} == {None}
        found[source] = {"__name__": "node.values"}
        exec(code, found[source])
    assert [getattr(names["value"], "__annotations__", None) for names in found.values()] == [
        {"given": "int", "return": "int"},
        {},
    ]
