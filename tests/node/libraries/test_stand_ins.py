"""What other threads may import while stand-ins take the places of modules."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from node.stand_ins import Answer, DeferredModule, standing_in


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
