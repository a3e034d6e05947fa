"""Bytecode without docstrings: an agent never shows one, and those of all its modules take 1.5 MB of its memory.

Everything else stays: asserts, names, the lines of tracebacks, and a text that the module itself assigns to ``__doc__``
or reads there. As with ``python -OO``, ``__doc__`` is None.
"""

from __future__ import annotations

import itertools
import sys
from opcode import opmap
from types import CodeType

_FUNCTION = 0x1
"""CO_OPTIMIZED: neither a class nor a module."""
_LOADS = {opmap[name] for name in ("LOAD_CONST", "RETURN_CONST") if name in opmap}
"""Instructions that use a constant by its number."""
_OF_CLASSES = {"__module__", "__qualname__", "__firstlineno__", "__type_params__"}
"""Names that Python itself stores in a class before its docstring."""
_IS_KNOWN = sys.version_info < (3, 14)
"""Whether this Python's functions have their docstring, or None, as the first constant. Newer ones keep docstrings."""


def without_docstrings(code: CodeType) -> CodeType:
    """The same code, in which functions, classes and the module have no docstring."""
    constants = [without_docstrings(each) if isinstance(each, CodeType) else each for each in code.co_consts]
    number = _docstring(code) if _IS_KNOWN else None
    if number is not None:
        constants[number] = None
    return code.replace(co_consts=tuple(constants))


def _docstring(code: CodeType) -> int | None:
    """The number of the constant that is the docstring and nothing else; None if there is none."""
    instructions = instructions_of(code.co_code)
    used = [number for operation, number in instructions if operation in _LOADS]
    if code.co_flags & _FUNCTION:
        number = 0 if _is_documented(code) else None
        return None if number in used else number
    stored = [code.co_names[name] for operation, name in instructions if operation == opmap["STORE_NAME"]]
    first = next((name for name in stored if name not in _OF_CLASSES), None)
    if first != "__doc__" or stored.count(first) > 1 or _reads_docstring(code):
        # The name is assigned, or its text is used while the module is loaded.
        return None
    for at, ((operation, number), (following, name)) in enumerate(itertools.pairwise(instructions)):
        if operation in _LOADS and following == opmap["STORE_NAME"] and code.co_names[name] == "__doc__":
            is_text = used.count(number) == 1 and isinstance(code.co_consts[number], str)
            return number if is_text and not _is_assigned(code, at) else None
    return None


def _is_assigned(code: CodeType, at: int) -> bool:
    """Whether an assignment in the source stores what this instruction loads: its name stands beside its value.

    A docstring is loaded and stored at one place. Under ``-X no_debug_ranges`` no place is known: it counts as one.
    """
    operations = zip(code.co_code[::2], code.co_positions(), strict=True)
    places = [place for operation, place in operations if operation != opmap["EXTENDED_ARG"]]
    return places[at] != places[at + 1]


def _reads_docstring(code: CodeType) -> bool:
    """Whether the module or class, or a function in it, reads the name ``__doc__``."""
    if "__doc__" in code.co_names:
        for operation, argument in instructions_of(code.co_code):
            # The lowest bit of a global's number says how it is called.
            number = {opmap["LOAD_NAME"]: argument, opmap["LOAD_GLOBAL"]: argument >> 1}.get(operation)
            if number is not None and code.co_names[number] == "__doc__":
                return True
    return any(_reads_docstring(each) for each in code.co_consts if isinstance(each, CodeType))


def _is_documented(code: CodeType) -> bool:
    """Whether the first constant of a function is its docstring; of comprehensions it may be any text."""
    return not code.co_name.startswith("<") and bool(code.co_consts) and isinstance(code.co_consts[0], str)


def instructions_of(compiled: bytes) -> list[tuple[int, int]]:
    """Operations with their arguments, caches among them, whose operation is 0."""
    found, extended = [], 0
    for at in range(0, len(compiled), 2):
        operation, argument = compiled[at], compiled[at + 1] | extended
        extended = argument << 8 if operation == opmap["EXTENDED_ARG"] else 0
        if operation != opmap["EXTENDED_ARG"]:
            found.append((operation, argument))
    return found
