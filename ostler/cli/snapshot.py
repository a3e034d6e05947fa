"""``ostler snapshot``: a cluster's devices, claims and what else decides allocations, as one file."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from ostler.cli.exits import CommandFailed, Exit
from ostler.cli.output import emit
from ostler.drawing.text import plain
from ostler.explain.access import add_access, add_origin, open_cluster
from ostler.explain.snapshot import ORDER, anonymous, as_json, as_yaml, reduced
from scheduling.explain.state import FACTS, ExplainError, State


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Save everything that decides allocations in a cluster: resource slices, claims, templates, device classes,\n"
        "taint rules, nodes, and the pods with claims. 'ostler explain --from FILE' answers from it, anywhere.\n"
        "It contains nothing that may be secret: no environment variables, annotations, images or parameters of\n"
        "drivers. Drivers, classes, devices, requests and selectors are never replaced. Read it before you send it to\n"
        "anybody."
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="write to this file, as JSON if its name ends in .json (default: stdout)",
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    add_origin(parser)
    group = parser.add_argument_group("names")
    group.add_argument(
        "--anonymise",
        "--anonymize",
        action="store_true",
        help="replace names, namespaces, UIDs and labels of pods, claims and templates",
    )
    group.add_argument(
        "--anonymise-nodes",
        "--anonymize-nodes",
        action="store_true",
        help="the same, and names and labels of nodes, pools, slices and taint rules",
    )
    group.add_argument("--names", type=Path, metavar="FILE", help="save which name replaced which, for yourself")
    add_access(parser, namespace=False)
    parser.add_argument(
        "-n",
        "--namespace",
        default="",
        metavar="NAME",
        help="read only this namespace if your account may not read all (default: the context's)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Read, reduce, write."""
    hidden = arguments.anonymise or arguments.anonymise_nodes
    if arguments.names is not None and not hidden:
        raise CommandFailed("--names needs --anonymise: without it no name is replaced")
    for path in (arguments.output, arguments.names):
        _check_free(path, force=arguments.force)
    state = reduced(_read(arguments))
    names: dict[str, dict[str, str]] = {}
    if hidden:
        made = anonymous(state, nodes=arguments.anonymise_nodes)
        state = made.state
        names = {group.value: dict(table) for group, table in made.names.items() if table}
    _write(arguments.output, _text(arguments.output, state, hidden=hidden))
    if arguments.names is not None:
        _write(arguments.names, json.dumps(names, indent=1, ensure_ascii=False) + "\n")
    _report(arguments.output, state)
    return Exit.OK


def _read(arguments: argparse.Namespace) -> State:
    from kube.errors import KubeError
    from ostler.explain.files import read_files

    try:
        if arguments.origin:
            reading = read_files(arguments.origin)
            for note in reading.notes:
                _remark(note)
            return reading.state
        return _read_cluster(arguments)
    except (ExplainError, KubeError) as error:
        raise CommandFailed(str(error)) from error


def _read_cluster(arguments: argparse.Namespace) -> State:
    # Here and not above: files need no client library.
    from ostler.explain.live import ClusterScope, read_cluster

    with open_cluster(arguments) as cluster:
        return read_cluster(cluster.client, cluster.server, ClusterScope(cluster.namespace, everything=True))


def _text(path: Path | None, state: State, *, hidden: bool) -> str:
    taken_at = datetime.now(UTC).replace(microsecond=0).isoformat()
    form = as_json if path is not None and path.suffix == ".json" else as_yaml
    return form(state, taken_at=taken_at, names_replaced=hidden)


def _check_free(path: Path | None, *, force: bool) -> None:
    """Raise ``CommandFailed`` before a cluster is read for nothing."""
    if path is None:
        return
    if path.is_dir():
        raise CommandFailed(f"{path} is a folder; give the name of a file")
    if path.is_file() and not force:
        raise CommandFailed(f"{path} already exists; give another name, or --force to replace it")


def _write(path: Path | None, text: str) -> None:
    if path is None:
        emit(text)
        return
    from node.files import WriteFailed
    from node.named_files import write_named_file

    try:
        write_named_file(path, text.encode("utf-8", "backslashreplace"))
    except WriteFailed as error:
        raise CommandFailed(str(error)) from error


def _report(path: Path | None, state: State) -> None:
    counts = ", ".join(f"{len(state.of(kind))} {FACTS[kind].plural}" for kind in ORDER if state.of(kind))
    _remark(f"{path or 'written'}: {counts or 'no objects'}")
    for note in (*state.truncated, *map(str, state.missing)):
        _remark(f"not in it: {note}")


def _remark(text: str) -> None:
    sys.stderr.write(f"{plain(text)}\n")
