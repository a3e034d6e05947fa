"""The pools and classes that a command works on, from a cluster, its snapshots, recorded nodes or DevicePool documents.

A file with a document of devmgmtproto holds such documents; every other one holds a cluster's objects. Both can be
given together; the pools of both then count.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kube.bodies import text_at
from node.named_files import read_named_file
from ostler.cli.exits import CommandFailed, Exit
from ostler.drawing.text import plain
from ostler.explain.documents import MAX_BYTES
from ostler.explain.files import STDIN, SUFFIXES
from ostler.pools.source import classes_of, pools_of, read_input, read_source
from scheduling.api.versions import with_defaults
from scheduling.explain.state import Kind, State, merge, objects_at
from scheduling.pools.claim_documents import DeviceClaim, Document
from scheduling.pools.documented import documented_pools
from scheduling.pools.documents import API_VERSION, DevicePool, PoolDeviceClass
from scheduling.pools.fields import DocumentError
from scheduling.pools.published import PublishedPool
from scheduling.pools.published_classes import ClusterClasses
from scheduling.pools.reading import read_text, title_of
from scheduling.pools.text import parse_documents

_GROUP = API_VERSION.partition("/")[0].encode()


@dataclass(frozen=True, slots=True)
class PoolDocuments:
    """Documents of files, by kind."""

    pools: tuple[DevicePool, ...] = ()
    classes: tuple[PoolDeviceClass, ...] = ()
    claims: tuple[DeviceClaim, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolSupply:
    """All pools with what is in use of them, and the classes that needs can name."""

    origin: str
    pools: tuple[PublishedPool, ...]
    classes: ClusterClasses


def read_supply(arguments: argparse.Namespace, written: PoolDocuments = PoolDocuments()) -> PoolSupply:
    """What ``--from`` names, or the cluster; ``written``: pools and classes to treat as published as well.

    Raises ``CommandFailed``.
    """
    documented, others = _parted(arguments.origin)
    documents = _joined([written, read_documents(documented)])
    state = State()
    if others or not arguments.origin:
        state = read_source(argparse.Namespace(**{**vars(arguments), "origin": others}))
    published = pools_of(state)
    pools = (*published, *documented_pools(documents.pools, documents.classes, documents.claims))
    names = Counter(each.document.metadata.name for each in pools)
    twice = next((name for name, times in names.items() if times > 1), None) if documents.pools else None
    if twice is not None:
        raise CommandFailed(f"DevicePool {twice} has the name of another pool; rename one of the two", Exit.USAGE)
    ordered = sorted(pools, key=lambda each: (each.node is None, each.node or "", each.driver, each.name))
    origin = ", ".join(arguments.origin) or state.origin
    return PoolSupply(origin, tuple(ordered), classes_of(state, pools, documents.classes))


def read_objects(arguments: argparse.Namespace) -> State:
    """What ``--from`` names, or the cluster, as objects of v1; DevicePool documents become their slices.

    Raises ``CommandFailed``.
    """
    documented, others = _parted(arguments.origin)
    state = State()
    if others or not arguments.origin:
        state = read_source(argparse.Namespace(**{**vars(arguments), "origin": others}))
    if not documented:
        return state
    # Here and not above: only documents need it.
    from scheduling.pools.conversion import convert

    given = read_documents(documented)
    conversion = convert((*given.pools, *given.classes, *given.claims))
    for lost in conversion.lost:
        sys.stderr.write(f"lost: {plain(str(lost))}\n")
    objects = [with_defaults(each) for each in conversion.objects]
    of_kind = {kind: tuple(each for each in objects if each["kind"] == kind) for kind in Kind}
    made = State(slices=of_kind[Kind.SLICE], classes=of_kind[Kind.CLASS], claims=of_kind[Kind.CLAIM])
    return merge(state, made)


def read_documents(paths: Sequence[str]) -> PoolDocuments:
    """The documents of files, folders and ``-``. Raises ``CommandFailed`` with all faults of all files."""
    found: dict[tuple[str, str], Document] = {}
    faults: list[str] = []
    for path in _files(paths):
        try:
            documents = read_text(read_input(path), path)
        except DocumentError as error:
            faults += [f"{error.document}: {problem}" for problem in error.problems]
            continue
        for each in documents:
            key = (type(each).__name__, title_of(each))
            if found.setdefault(key, each) != each:
                faults.append(f"{path}: {each.kind} {title_of(each)} is given twice with different contents; keep one")
    if faults:
        raise CommandFailed("\n".join(faults), Exit.USAGE)
    return _by_kind(found.values())


def read_template_names(paths: Sequence[str]) -> set[str]:
    """The claims (`namespace/name`, or the name) that Pods of the files use as templates."""
    found: set[str] = set()
    for path in _files([each for each in paths if each != STDIN]):
        for body in parse_documents(read_input(path), path):
            if not isinstance(body, dict) or body.get("kind") != "Pod":
                continue
            namespace = text_at(body, "metadata", "namespace")
            for entry in objects_at(body, "spec", "deviceClaims"):
                name = text_at(entry, "template", "claimName")
                found |= {f"{namespace}/{name}" if namespace else name} if name else set()
    return found


def _by_kind(documents: Iterable[Document]) -> PoolDocuments:
    known = tuple(documents)
    return PoolDocuments(
        tuple(each for each in known if isinstance(each, DevicePool)),
        tuple(each for each in known if isinstance(each, PoolDeviceClass)),
        tuple(each for each in known if isinstance(each, DeviceClaim)),
    )


def _joined(several: Sequence[PoolDocuments]) -> PoolDocuments:
    """All of them; of two documents with one name the first counts."""
    found: dict[tuple[str, str], Document] = {}
    for each in several:
        documents: tuple[Document, ...] = (*each.pools, *each.classes, *each.claims)
        for one in documents:
            found.setdefault((type(one).__name__, title_of(one)), one)
    return _by_kind(found.values())


def _parted(origins: Sequence[str]) -> tuple[list[str], list[str]]:
    """Files of documents, and the rest: files of a cluster's objects, names of recorded nodes, what does not exist."""
    documented: list[str] = []
    others: list[str] = []
    for name in origins:
        inner = _files([name]) if Path(name).is_dir() else [name]
        of_documents = [each for each in inner if _holds_documents(each)]
        documented += of_documents
        others += [name] if not of_documents else [each for each in inner if each not in of_documents]
    return documented, others


def _holds_documents(name: str) -> bool:
    if name == STDIN or not Path(name).is_file():
        return False
    with suppress(OSError):
        return _GROUP in read_named_file(Path(name), MAX_BYTES, fifo=False)
    return False


def _files(paths: Sequence[str]) -> list[str]:
    """The files of folders and the files named."""
    found: list[str] = []
    for name in dict.fromkeys(paths):
        path = Path(name)
        if name != STDIN and path.is_dir():
            found += [str(each) for each in sorted(path.iterdir()) if each.suffix in SUFFIXES and each.is_file()]
        else:
            found.append(name)
    return found
