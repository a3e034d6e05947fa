"""Objects out of files, folders and standard input: manifests, kubectl's output, snapshots.

Every fault of every file is found before anything is refused; a fault names file, line, object and field. What is
well-formed but says nothing about devices is a note.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from node.given import read_given
from node.opening import TooLarge
from ostler.explain.reading.collection import Collection, Text
from ostler.explain.reading.documents import MAX_BYTES, documents, too_large
from scheduling.explain.state import BadInput, Fault, Kind, State

STDIN = "-"
SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Reading:
    """What files hold. ``notes``: what was left out; ``places``: where objects stand, by kind, namespace and name."""

    state: State
    notes: tuple[str, ...] = ()
    places: dict[tuple[Kind, str, str], str] = field(default_factory=dict)


def read_files(paths: Sequence[str], stdin: BinaryIO | None = None, namespace: str = "") -> Reading:
    """All objects of files, folders (their .yaml, .yml and .json files) and ``-``; raises ``BadInput``.

    ``namespace``: of objects that name none, as with kubectl's ``-n``; "" leaves them without, which is ``default``.
    """
    collection = Collection(namespace)
    faults: list[Fault] = []
    for source, data in _contents(paths, stdin, faults):
        try:
            for document in documents(source, data):
                collection.add(Text(source, data, document))
        except BadInput as error:
            # Its end cannot be read; what stands before it and the other files are still checked.
            faults.extend(error.faults)
    if faults or collection.faults:
        raise BadInput([*faults, *collection.faults])
    return Reading(collection.state(_origin(paths)), collection.notes(), collection.places)


def _origin(paths: Sequence[str]) -> str:
    names = ["standard input" if path == STDIN else path for path in dict.fromkeys(paths)]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _contents(paths: Sequence[str], stdin: BinaryIO | None, faults: list[Fault]) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of every file, each file once; of one that is too large no more than shows it."""
    done: set[str] = set()
    for name in dict.fromkeys(paths):
        if name == STDIN:
            yield "standard input", (stdin or sys.stdin.buffer).read(MAX_BYTES + 1)
            continue
        try:
            for path in _files(Path(name)):
                # Not Path.resolve(), which ends with a RuntimeError in a loop of links; opening it says what is wrong.
                real = os.path.realpath(path)
                if real not in done:
                    done.add(real)
                    yield str(path), read_given(path, MAX_BYTES, fifo=True)
        except TooLarge as error:
            faults.append(too_large(error.filename))
        except OSError as error:
            problem = f"cannot be read ({error.strerror or error})"
            faults.append(Fault(name, problem, "give a file or folder that exists and that you may read"))
        except _NoFiles:
            faults.append(Fault(name, "the folder holds no objects", f"put {', '.join(SUFFIXES)} files into it"))


class _NoFiles(Exception):
    """A folder without files of ours."""


def _files(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return (path,)
    found = sorted(inner for inner in path.iterdir() if inner.suffix in SUFFIXES and inner.is_file())
    if not found:
        raise _NoFiles
    return found
