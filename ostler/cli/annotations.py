"""Bytecode without the annotations of functions, for packages that do not read them: ostler's take 0.5 MB of memory.

Those of classes stay: values are made of them. So does whatever is not plain text, as in a module without
``from __future__ import annotations``.
"""

from __future__ import annotations

import sys
from collections import Counter
from opcode import hasconst, opmap
from types import CodeType

from ostler.cli.docstrings import instructions_of

_IS_KNOWN = sys.version_info < (3, 13)
"""Whether this Python's functions get their annotations as it is known here. Those of newer ones keep them."""
_FUNCTION = 0x1
"""CO_OPTIMIZED: neither a class nor a module."""
_ANNOTATED, _CLOSED_OVER = 0x04, 0x08
"""Flags of MAKE_FUNCTION: a tuple of names and annotations, and one of cells, lie below the code on the stack."""


def without_annotations(code: CodeType) -> CodeType:
    """The same code, in which functions have no annotations, and constants that nothing uses are None."""
    if not _IS_KNOWN:
        return code
    constants = [without_annotations(each) if isinstance(each, CodeType) else each for each in code.co_consts]
    instructions = instructions_of(code.co_code)
    used = Counter(number for operation, number in instructions if operation in hasconst)
    for number, count in _annotations(code, instructions).items():
        if used[number] == count:
            constants[number] = ()
    # The first constant of a function is its docstring. The texts of which Python has made a tuple are left over.
    for number in range(code.co_flags & _FUNCTION, len(constants)):
        if number not in used:
            constants[number] = None
    return code.replace(co_consts=tuple(constants))


def _annotations(code: CodeType, instructions: list[tuple[int, int]]) -> Counter[int]:
    """How often each constant that is a tuple of texts is the annotations of a function."""
    found: Counter[int] = Counter()
    for at, (operation, flags) in enumerate(instructions):
        if operation == opmap["MAKE_FUNCTION"] and flags & _ANNOTATED:
            before = at - 2
            if flags & _CLOSED_OVER:
                # BUILD_TUPLE of so many cells, each of which was loaded.
                before -= 1 + instructions[before][1]
            loaded, number = instructions[before]
            if loaded == opmap["LOAD_CONST"] and _is_texts(code.co_consts[number]):
                found[number] += 1
    return found


def _is_texts(constant: object) -> bool:
    return isinstance(constant, tuple) and all(isinstance(each, str) for each in constant)
