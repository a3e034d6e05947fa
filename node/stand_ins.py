"""Stand-ins for what modules make at their import and nobody may ever use: other modules, and regular expressions.

A stand-in loads or compiles the real thing when somebody uses it.

Invariant: after ``standing_in`` every one of them can be imported as before. Limits, for every thread that imports one
during the block: ``import module``, ``import package.module as name`` and ``from package.module import name`` find the
stand-in, and ``import package.module`` does not set ``package.module``. That name raises AttributeError until somebody
imports the real module.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

Answer = Callable[..., Any]
"""Answers for a function of a module; None means that the real one has to be asked."""
_NOTHING: Mapping[str, Answer] = {}


def unanswered(*_: object) -> None:
    """Leave it to the real function."""


class DeferredModule(ModuleType):
    """Has what it is given, and imports the real module for any other attribute; may be used by several threads."""

    def __init__(self, name: str, known: Mapping[str, object], functions: Mapping[str, Answer] = _NOTHING) -> None:
        super().__init__(name)
        self.__dict__.update(known)
        self.__dict__.update({called: self._function(called, answer) for called, answer in functions.items()})

    def __getattr__(self, attribute: str) -> object:
        if attribute.startswith("__"):
            # The import system asks for such names, and must not be answered for another module.
            raise AttributeError(f"module {self.__name__!r} has no attribute {attribute!r}")
        found: object = getattr(self._real(), attribute)
        if callable(found):
            # Functions and classes are what calls ask for again; a number may change.
            self.__dict__[attribute] = found
        return found

    def withdraw(self) -> None:
        """Let the next import find the real module."""
        if sys.modules.get(self.__name__) is self:
            sys.modules.pop(self.__name__, None)

    def _real(self) -> ModuleType:
        self.withdraw()
        return importlib.import_module(self.__name__)

    def _function(self, name: str, answer: Answer) -> Callable[..., Any]:
        def function(*arguments: object, **named: object) -> Any:
            answered = answer(*arguments) if not named else None
            return getattr(self._real(), name)(*arguments, **named) if answered is None else answered

        return function


@contextlib.contextmanager
def standing_in(
    deferred: Mapping[str, Mapping[str, object]], functions: Mapping[str, Mapping[str, Answer]]
) -> Iterator[None]:
    """Have stand-ins for these modules in this block, each unless it is loaded already.

    ``deferred``: what they have, by name; ``functions``: which of their functions answer by themselves.
    """
    stand_ins = [
        DeferredModule(name, known, functions.get(name, _NOTHING))
        for name, known in deferred.items()
        if name not in sys.modules
    ]
    try:
        for module in stand_ins:
            # Another thread may have imported the real one meanwhile.
            sys.modules.setdefault(module.__name__, module)
        yield
    finally:
        for module in stand_ins:
            module.withdraw()


class DeferredPattern:
    """A regular expression that is compiled when somebody uses it; may be used by several threads.

    A copy or a pickle of it is compiled. Limits: ``type`` tells it from a compiled one, its hash is its own, it equals
    itself alone, and a mistake shows at its first use.
    """

    def __init__(self, pattern: Any, flags: int | re.RegexFlag) -> None:
        self._written = pattern, flags

    @property  # type: ignore[misc]  # the functions of re shall take it for a compiled one
    def __class__(self) -> type:
        return re.Pattern

    def __getattr__(self, attribute: str) -> object:
        # Compiled each time until a method is asked for; re keeps what it has compiled.
        found: object = getattr(_COMPILE(*self._written), attribute)
        if callable(found):
            self.__dict__[attribute] = found
        return found

    def __repr__(self) -> str:
        return repr(_COMPILE(*self._written))

    def __reduce__(self) -> tuple[object, ...]:
        return _compiled, self._written


_COMPILE = re.compile


def _compiled(pattern: Any, flags: int | re.RegexFlag) -> Any:
    """The function that a pickle names: ``re.compile`` may be another one at that time."""
    return _COMPILE(pattern, flags)


def _deferred(pattern: Any, flags: int | re.RegexFlag = 0) -> Any:
    return DeferredPattern(pattern, flags) if isinstance(pattern, str | bytes) else _COMPILE(pattern, flags)


@contextlib.contextmanager
def compiling_later() -> Iterator[None]:
    """Have ``re.compile`` return stand-ins in this block; most modules compile at their import what few calls need.

    Limits: other threads get stand-ins as well, and a module that imports ``compile`` from ``re`` in the block always
    gets them.
    """
    re.compile = _deferred
    try:
        yield
    finally:
        re.compile = _COMPILE
