"""The code of a source file without what no agent needs of it, for the file of bytecode (``ostler.cli.bytecode``)."""

from __future__ import annotations

from types import CodeType

import ostler
from ostler.cli.annotations import without_annotations
from ostler.cli.docstrings import without_docstrings
from ostler.cli.line_tables import without_columns

OWN = (
    "driver",
    "kube",
    "node",
    "ostler/admin",
    "ostler/agent",
    "ostler/config",
    "ostler/metrics",
    "plugin",
    "protos",
    "scheduling/api",
)
"""Packages of which an agent may load any module later. None of them reads the annotations of functions."""


def small_code(source: str, code: CodeType) -> CodeType:
    """The code of a source file without what no agent needs of it."""
    small = without_columns(without_docstrings(code))
    # Other packages, and those of ours that no agent loads, may read the annotations of their functions.
    return without_annotations(small) if source.startswith(own_folders()) else small


def own_folders() -> tuple[str, ...]:
    """The folders of these packages; each ends with a slash."""
    root = ostler.__path__[0].rpartition("/")[0]
    return tuple(f"{root}/{package}/" for package in OWN)


def named(source: str, code: CodeType) -> CodeType:
    """The code of a source file under the file's name, as Python's loader renames it.

    Whoever installs a package below another root, or by a relative path, compiles it under another name.
    """
    return code if code.co_filename == source else _renamed(code, code.co_filename, source)


def _renamed(code: CodeType, name: str, source: str) -> CodeType:
    constants = tuple(_renamed(each, name, source) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=source if code.co_filename == name else code.co_filename, co_consts=constants)
