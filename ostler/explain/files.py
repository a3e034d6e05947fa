"""Reads objects from files, folders and standard input: manifests, kubectl's output, snapshots.

Every fault of every file is found before anything is refused, so that one reading is enough to correct them all; a
fault names file, line, object and field. ``ostler.explain.collection`` takes the objects out of the documents.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from kube.bodies import one_line
from node.named_files import read_named_file
from node.opening import TooLarge
from ostler.explain.collection import SENTENCE, ObjectCollection
from ostler.explain.documents import MAX_BYTES, documents, too_large
from ostler.explain.workloads import WorkloadPods
from scheduling.explain.state import BadInput, InputFault, Kind, State

STDIN = "-"
SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class FileObjects:
    """The objects of files. ``left_out``: notes on what was; ``places``: of objects, by kind, namespace and name.

    ``workloads``: how many pods the files' workloads make, by namespace and name of the one that is in ``state``.
    """

    state: State
    left_out: tuple[str, ...] = ()
    places: dict[tuple[Kind, str, str], str] = field(default_factory=dict)
    workloads: dict[tuple[str, str], WorkloadPods] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """All notes, including those about one pod that represents all of a workload."""
        return (*(one_line(each.note, SENTENCE) for each in self.workloads.values()), *self.left_out)


def read_files(paths: Sequence[str], stdin: BinaryIO | None = None, namespace: str = "") -> FileObjects:
    """All objects of files, folders (their .yaml, .yml and .json files) and ``-``; raises ``BadInput``.

    ``namespace``: of objects that name none, as with kubectl's ``-n``; "" leaves them without, which means ``default``.
    """
    collection = ObjectCollection(namespace)
    faults: list[InputFault] = []
    for source, data in _contents(paths, stdin, faults):
        try:
            for document in documents(source, data):
                collection.add(source, data, document)
        except BadInput as error:
            # The rest of this file cannot be read; the part before it and the other files are still checked.
            faults.extend(error.faults)
    if faults or collection.faults:
        raise BadInput([*faults, *collection.faults])
    return FileObjects(collection.state(_origin(paths)), collection.notes(), collection.places, collection.workloads)


def _origin(paths: Sequence[str]) -> str:
    names = ["standard input" if path == STDIN else path for path in dict.fromkeys(paths)]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _contents(paths: Sequence[str], stdin: BinaryIO | None, faults: list[InputFault]) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of every file, each file once; of one that is too large only enough to show that."""
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
                    yield str(path), read_named_file(path, MAX_BYTES, fifo=True)
        except TooLarge as error:
            faults.append(too_large(error.filename))
        except OSError as error:
            problem = f"cannot be read ({error.strerror or error})"
            faults.append(InputFault(name, problem, "give a file or folder that exists and that you may read"))
        except _NoFiles:
            faults.append(InputFault(name, "the folder holds no objects", f"put {', '.join(SUFFIXES)} files into it"))


class _NoFiles(Exception):
    """A folder without files of ours."""


def _files(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return (path,)
    found = sorted(inner for inner in path.iterdir() if inner.suffix in SUFFIXES and inner.is_file())
    if not found:
        raise _NoFiles
    return found
