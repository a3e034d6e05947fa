"""A module of which the file of bytecode has a part is, for whoever uses it, the whole module."""

from __future__ import annotations

import collections
import importlib.util
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import ModuleType

import pytest

from ostler.cli.partial_modules import part_of

SOURCE = '''"""Of the module."""
import functools

LIMIT = 3
made = []

def convertStrBytes(function):
    return functools.wraps(function)(lambda *given: function(*given))

class Base:
    def known(self):
        return LIMIT

class Used(Base):
    fields = ("Named",)

class Named(Base):
    pass

class Unused(Used):
    pass

@convertStrBytes
def used():
    return helper()

def helper():
    return Used().known()

@convertStrBytes
def unused():
    made.append(Unused())
    return made

class Twice:
    number = 1

class Twice:
    number = 2

def noticed():
    pass

made.append(noticed)
'''
DEFINED = {"Base", "Used", "Named", "Unused", "used", "helper", "unused", "Twice", "noticed", "convertStrBytes"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "divided.py"


def divided(path: Path, source: str = SOURCE) -> ModuleType:
    """The module, executed without what the name ``used`` does not need."""
    path.write_text(source)
    code = part_of(source.encode(), str(path), {"used"})
    assert code is not None
    spec = importlib.util.spec_from_file_location("divided", path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    exec(code, vars(module))
    return module


def test_what_neither_its_users_nor_the_rest_of_the_module_names_is_left_out(path: Path) -> None:
    module = divided(path)
    assert DEFINED & vars(module).keys() == {"Base", "Used", "Named", "used", "helper", "noticed", "convertStrBytes"}
    assert (module.used(), module.LIMIT, module.made, module.__doc__) == (3, 3, [module.noticed], "Of the module.")


def test_every_name_can_be_had_and_belongs_to_the_same_module(path: Path) -> None:
    module = divided(path)
    base, used = module.Base, module.used
    assert module.unused() is module.made
    assert type(module.made[-1]) is module.Unused
    assert issubclass(module.Unused, base)
    assert (module.Twice.number, module.Base, module.used) == (2, base, used)
    assert vars(module).keys() >= DEFINED
    assert module.made[0] is module.noticed, "what stayed was executed a second time"


def test_what_somebody_has_put_in_the_place_of_a_name_stays_when_the_rest_is_defined(path: Path) -> None:
    module = divided(path)
    module.unused = fake = object()  # type: ignore[attr-defined]
    assert module.Twice.number == 2
    assert module.unused is fake


def test_a_name_that_the_module_never_had_is_missing_and_defines_nothing(path: Path) -> None:
    module = divided(path)
    with pytest.raises(AttributeError, match="module 'divided' has no attribute 'nonsense'"):
        module.nonsense  # noqa: B018
    assert "Unused" not in vars(module)


def test_lines_of_tracebacks_are_those_of_the_source(path: Path) -> None:
    module = divided(path)
    lines = SOURCE.splitlines()
    assert lines[module.helper.__code__.co_firstlineno - 1] == "def helper():"
    assert lines[module.Unused.known.__code__.co_firstlineno - 1] == "    def known(self):"
    assert module.helper.__code__.co_filename == str(path)


@pytest.mark.parametrize(
    "instead",
    ["LIMIT = 3\n", "def broken(:\n", SOURCE.replace("(Used)", "(New)"), SOURCE.replace("return made", "return 3")],
)
def test_nothing_is_defined_from_a_source_file_that_changed_or_went_away(path: Path, instead: str) -> None:
    module = divided(path)
    few = set(vars(module))
    path.write_text(instead)
    with pytest.raises(
        AttributeError, match=r"divided\.py was loaded in part, .* unused .*: the file has changed since"
    ):
        module.unused  # noqa: B018
    path.unlink()
    with pytest.raises(AttributeError, match=r"unused cannot be defined: .*No such file"):
        module.unused  # noqa: B018
    assert (module.used(), set(vars(module))) == (3, few)
    path.write_text(SOURCE)
    assert module.unused() is module.made


def test_what_cannot_be_executed_is_missing_and_leaves_nothing_behind(path: Path) -> None:
    module = divided(path)
    few, base = set(vars(module)), module.Used
    del module.Used
    assert getattr(module, "Twice", None) is None
    assert set(vars(module)) == few - {"Used"}
    vars(module)["Used"] = base
    assert module.Twice.number == 2


def test_threads_that_ask_at_once_get_the_same_class(path: Path) -> None:
    module = divided(path)
    together = Barrier(4)

    def ask(name: str) -> object:
        together.wait(60)
        return getattr(module, name)

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(ask, ["Unused", "Unused", "Twice", "Unused"]))
    assert found == [module.Unused, module.Unused, module.Twice, module.Unused]


def test_a_name_that_somebody_deletes_from_the_whole_module_is_not_defined_again(path: Path) -> None:
    module = divided(path)
    unused = module.Unused
    del module.Twice
    assert not hasattr(module, "Twice")
    assert module.Unused is unused


@pytest.mark.parametrize(
    "addition",
    [
        "for name in dir(): pass",
        "def __getattr__(name): raise AttributeError(name)",
        "__all__ = ['used']",
        "while made: made.pop()",
        "def broken(:",
        "class Noticing:\n    def __init_subclass__(cls): made.append(cls)",
        "class Named:\n    def __set_name__(self, owner, name): made.append(name)",
        "class Made(metaclass=type): pass",
        "def all_of_them(): return Base.__subclasses__()",
    ],
)
def test_a_module_that_does_something_unknown_stays_whole(addition: str) -> None:
    assert part_of(f"{SOURCE}\n{addition}\n".encode(), "divided.py", {"used"}) is None
    assert part_of(f"from __future__ import annotations\n{SOURCE}".encode(), "divided.py", {"used"}) is None


def test_what_a_decorator_may_register_stays(path: Path) -> None:
    module = divided(path, f"{SOURCE}\ndef register(one): made.append(one)\n@register\ndef registered(): pass\n")
    assert module.made[-1].__name__ == "registered"


def test_a_class_whose_name_an_import_takes_as_well_stays(path: Path) -> None:
    module = divided(path, f"{SOURCE}\nclass OrderedDict: pass\nimport collections as OrderedDict\n")
    module.Unused  # noqa: B018
    assert module.OrderedDict is collections


def test_a_module_without_anything_to_leave_out_stays_whole() -> None:
    assert part_of(b"def used(): pass\n", "divided.py", {"used"}) is None


BINDING = """
import ctypes.util, sys
from ostler.cli.bytecode import use_bytecode
use_bytecode()
import pynvml
few = set(vars(pynvml))
assert pynvml.nvmlDeviceGetName and pynvml.c_nvmlEventData_t
assert set(vars(pynvml)) == few, "what ostler uses is left out"
pynvml.nvmlUnitGetCount
part = dict(vars(pynvml))
sys.meta_path = [finder for finder in sys.meta_path if type(finder).__name__ != "BytecodeFinder"]
del sys.modules["pynvml"]
import pynvml as whole
assert set(part) - {"__getattr__", "__whole__"} == set(vars(whole)), set(part) ^ set(vars(whole))
assert {name: type(found) for name, found in part.items() if name[0] != "_"} == {
    name: type(found) for name, found in vars(whole).items() if name[0] != "_"
}
print(len(few) < len(part))
"""


USERS = """
import pynvml
from ostler.cli.bytecode import BytecodeFile, path_of_file
*_, users = BytecodeFile(path_of_file()).entry(pynvml.__file__)
import node.inventory.nvidia
assert users == node.inventory.nvidia.__file__.removesuffix("__init__.py"), users
"""


def test_an_installation_has_the_part_of_the_nvml_binding_that_is_used(installation: Path) -> None:
    environment = {"PYTHONPYCACHEPREFIX": str(installation), "PATH": "/usr/bin:/bin"}
    said = subprocess.run([sys.executable, "-c", BINDING], check=True, env=environment, capture_output=True, text=True)
    assert said.stdout == "True\n"
    subprocess.run([sys.executable, "-c", USERS], check=True, env=environment)
