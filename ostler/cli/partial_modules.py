"""Modules of which the file of bytecode has the part that ostler uses; the rest is defined when somebody asks for it.

nvidia-ml-py defines hundreds of structures and functions in one module, of which ostler uses a sixth. Left out are
functions and classes at the top level that neither ostler nor what stays names, and whose decorators are known to do
nothing else; whatever else the module does at its import stays, with the lines of the source.

Invariant: asked for a name that was left out, the module executes all that was left out in its own namespace, once. So
there is one module with one state, and every name can be had while the source is the one the part was made from; of
another source, or if executing fails, nothing is defined, and the name is missing. A source file that does anything
unknown at its top level, or notices its subclasses, is left whole.

Limits: until then ``vars``, ``dir`` and ``from module import *`` lack these names; while they are being defined,
another thread may find one whose neighbours are not there yet. A base class of another module may notice late what
inherits from it.
"""

from __future__ import annotations

import _thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from collections.abc import Collection, Iterable
    from types import CodeType
    from typing import Any

_PLAIN = {"AnnAssign", "Assign", "AugAssign", "ClassDef", "Expr", "FunctionDef", "If", "Import", "ImportFrom", "Try"}
"""Statements that a module may have at its top level; a loop could go through everything that is defined."""
_HANDS_OUT = {"__all__", "__dir__", "__getattr__"}
"""Names of a module that decides itself what it has."""
_NOTICES = {"__init_subclass__", "__set_name__", "__subclasses__", "metaclass"}
"""Names of a module that may do something where a class is defined, or with all that are."""
_DECORATORS = {"convertStrBytes", "throwOnVersionMismatch"}
"""Decorators of nvidia-ml-py, which wrap a function. Another one might register it."""
_ASKED = """
def __getattr__(name, rest={rest!r}, made_from={made_from!r}):
    if name not in rest.split():
        raise AttributeError(f"module {{__name__!r}} has no attribute {{name!r}}")
    from ostler.cli.partial_modules import complete
    return complete(globals(), name, rest.split(), made_from)
"""
"""The names are one text: hundreds of texts in a set would take six times the memory."""
_WHOLE = "__whole__"
"""What a module has once its rest is defined."""
_COMPLETING = _thread.RLock()
"""Held while a module's rest is defined: a second definition would be another class of the same name."""


def part_of(source: bytes, place: str, used: Collection[str]) -> CodeType | None:
    """The code of a source file at ``place`` without the definitions that the names ``used`` do not need.

    None if the module cannot be divided, or nothing would be left out.
    """
    import ast
    from importlib.util import source_hash

    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    definitions = _definitions(module.body)
    if definitions is None:
        return None
    rest = definitions.keys() - _needed(module.body, definitions, used)
    if not rest:
        return None
    asked = ast.parse(_ASKED.format(rest=" ".join(sorted(rest)), made_from=source_hash(source)))
    ast.increment_lineno(asked, source.count(b"\n"))
    module.body = [each for each in module.body if _name(each) not in rest] + asked.body
    return compile(module, place, "exec", dont_inherit=True)


def complete(module: dict[str, Any], name: str, rest: Collection[str], made_from: bytes) -> Any:
    """Define everything that was left out of a module, unless that was done, and return ``name`` of it.

    ``made_from``: the hash of the source that the part was made from. Raises AttributeError alone, as ``hasattr`` and
    ``getattr`` expect.
    """
    with _COMPLETING:
        if _WHOLE not in module:
            try:
                _define(module, rest, made_from)
            except Exception as error:
                raise AttributeError(
                    f"{module['__file__']} was loaded in part, and {name} cannot be defined: {error}"
                ) from error
            module[_WHOLE] = True
    try:
        return module[name]
    except KeyError:
        raise AttributeError(f"module {module['__name__']!r} has no attribute {name!r}") from None


def _define(module: dict[str, Any], rest: Collection[str], made_from: bytes) -> None:
    """Execute what was left out; if that fails, nothing of it stays. A name that was set since keeps its value."""
    import ast
    from importlib.util import source_hash

    place: str = module["__file__"]
    with open(place, "rb") as file:  # noqa: PTH123  # pathlib may not be loaded
        source = file.read()
    if source_hash(source) != made_from:
        raise ValueError("the file has changed since")
    body = [each for each in ast.parse(source).body if _name(each) in rest]
    kept = {name: module[name] for name in rest if name in module}
    try:
        exec(compile(ast.Module(body, []), place, "exec", dont_inherit=True), module)  # noqa: S102  # its own code
    except BaseException:
        for name in rest:
            module.pop(name, None)
        raise
    finally:
        module.update(kept)


def _name(statement: ast.stmt) -> str | None:
    """The name of a function or class that may be left out."""
    import ast

    if isinstance(statement, ast.ClassDef) and not statement.decorator_list and not statement.keywords:
        return statement.name
    if isinstance(statement, ast.FunctionDef) and all(
        isinstance(each, ast.Name) and each.id in _DECORATORS for each in statement.decorator_list
    ):
        return statement.name
    return None


def _definitions(body: Iterable[ast.stmt]) -> dict[str, list[ast.stmt]] | None:
    """What may be left out, by name; None if the module must stay whole."""
    import ast

    found: dict[str, list[ast.stmt]] = {}
    unknown = _HANDS_OUT | _NOTICES
    for statement in body:
        name = _name(statement)
        is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if type(statement).__name__ not in _PLAIN or is_future or unknown & _words(statement, with_own=True):
            return None
        if name is not None:
            found.setdefault(name, []).append(statement)
    return found


def _needed(body: Iterable[ast.stmt], definitions: dict[str, list[ast.stmt]], used: Collection[str]) -> set[str]:
    """The definitions that ``used`` and the statements that stay name, and those that these name in turn."""
    waiting = {name for name in definitions if name in used}
    for statement in body:
        if _name(statement) is None:
            waiting |= definitions.keys() & _words(statement, with_own=True)
    needed: set[str] = set()
    while waiting:
        name = waiting.pop()
        needed.add(name)
        for statement in definitions[name]:
            waiting |= (definitions.keys() & _words(statement)) - needed
    return needed


def _words(statement: ast.stmt, *, with_own: bool = False) -> set[str]:
    """All names in a statement, and texts, which may be names; with the names that it and its parts define."""
    import ast

    found: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        elif isinstance(node, ast.alias):
            found.update((node.name, node.asname or node.name))
        elif isinstance(node, ast.keyword) and node.arg is not None:
            found.add(node.arg)
        elif with_own and isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
    return found
