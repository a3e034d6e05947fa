"""What others may import while stand-ins take the places of modules, and what stand-ins of regular expressions do."""

from __future__ import annotations

import copy
import importlib
import pickle
import re
import string
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import ModuleType
from typing import Any

import pytest

from node.stand_ins import Answer, DeferredModule, DeferredPattern, compiling_later, standing_in


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package with the module ``part``, which nobody has imported."""
    name = "imported_meanwhile"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "part.py").write_text("class Failed(Exception):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    for each in (name, f"{name}.part"):
        sys.modules.pop(each, None)


class ImportingFunctions(dict[str, Mapping[str, Answer]]):
    """No functions; whoever asks for a module's finds that another thread has imported the module just before."""

    imported: ModuleType

    def get(self, name: str, default: object = None) -> Mapping[str, Answer]:
        self.imported = importlib.import_module(name)
        return {}


def test_a_module_that_another_thread_imports_while_its_stand_in_is_made_stays(package: str) -> None:
    name, functions = f"{package}.part", ImportingFunctions()
    with standing_in({name: {}}, functions):
        assert sys.modules[name] is functions.imported
    assert importlib.import_module(name) is functions.imported


def test_a_module_that_is_imported_during_the_block_is_no_attribute_of_its_package_until_the_real_one_is(
    package: str,
) -> None:
    name = f"{package}.part"
    with standing_in({name: {}}, {}):
        imported, stand_in = __import__(name), importlib.import_module(name)
        assert isinstance(stand_in, DeferredModule)
        assert not hasattr(imported, "part")
    assert not hasattr(imported, "part")
    failed = stand_in.Failed
    assert imported.part is importlib.import_module(name)
    assert failed is imported.part.Failed


def is_deferred(pattern: object) -> bool:
    return type(pattern) is DeferredPattern


@pytest.fixture
def deferred() -> Any:
    with compiling_later():
        return re.compile(r"(?P<name>[a-z]+)=(\d+)", re.IGNORECASE)


def test_an_expression_of_the_block_is_used_like_a_compiled_one(deferred: Any) -> None:
    assert is_deferred(deferred)
    compiled = re.compile(r"(?P<name>[a-z]+)=(\d+)", re.IGNORECASE)
    text = "One=1, two=2"
    assert deferred.findall(text) == compiled.findall(text) == [("One", "1"), ("two", "2")]
    assert [found["name"] for found in deferred.finditer(text)] == ["One", "two"]
    assert deferred.sub("", text) == re.sub(deferred, "", text) == ", "
    assert deferred.fullmatch("one=") is None
    assert (deferred.pattern, deferred.flags, deferred.groups, deferred.groupindex) == (
        compiled.pattern,
        compiled.flags,
        compiled.groups,
        compiled.groupindex,
    )
    assert isinstance(deferred, re.Pattern)
    assert re.compile(deferred) is deferred
    assert repr(deferred) == repr(compiled)
    assert copy.deepcopy(deferred) == pickle.loads(pickle.dumps(deferred)) == compiled


def test_an_expression_can_be_pickled_and_copied_in_the_block_and_is_compiled_then() -> None:
    with compiling_later():
        deferred: Any = re.compile("a+b", re.IGNORECASE)
        found = [pickle.loads(pickle.dumps(deferred)), copy.copy(deferred), copy.deepcopy(deferred)]
    compiled = re.compile("a+b", re.IGNORECASE)
    assert [(type(each), each) for each in found] == [(re.Pattern, compiled)] * 3


def test_an_expression_that_threads_use_at_once_works_in_each(deferred: Any) -> None:
    together = Barrier(4)

    def find(number: int) -> list[tuple[str, str]]:
        together.wait(60)
        found: list[tuple[str, str]] = deferred.findall(f"one={number}")
        return found

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(find, range(4))) == [[("one", str(number))] for number in range(4)]


def test_an_expression_is_compiled_at_its_first_use_and_outside_the_block_at_once() -> None:
    with compiling_later():
        broken: Any = re.compile("(")
    with pytest.raises(re.error):
        broken.search("text")
    with pytest.raises(re.error):
        re.compile("(")


def test_expressions_of_the_library_work_in_the_block() -> None:
    with compiling_later():

        class Percent(string.Template):
            delimiter = "%"

    assert is_deferred(Percent.pattern)
    assert Percent("%name has %{number}%%").substitute(name="one", number=1) == "one has 1%"


def test_the_block_ends_with_an_error_as_well() -> None:
    with pytest.raises(KeyError), compiling_later():
        raise KeyError
    assert not is_deferred(re.compile("a text of this test"))
