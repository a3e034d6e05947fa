"""Where `ostler pools` reads from: the cluster that kubectl would use, or files, snapshots and recorded nodes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ostler.cli.exits import CommandFailed, Exit
from ostler.drawing.text import plain
from ostler.explain.access import add_access, add_origin, open_cluster
from scheduling.allocator.pools import Features, SliceIndex
from scheduling.allocator.reading import AllocationError
from scheduling.explain.cluster import apply, features_of, note_of
from scheduling.explain.state import ExplainError, State, merge
from scheduling.pools.documents import PoolDeviceClass
from scheduling.pools.publication import published_pools
from scheduling.pools.published import PublishedPool
from scheduling.pools.published_classes import ClusterClasses


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add ``--from`` and the options of the cluster."""
    add_origin(
        parser,
        "read this file, folder, snapshot or recorded node instead of a cluster; also the name of a shipped node",
    )
    add_access(parser)


def read_source(arguments: argparse.Namespace) -> State:
    """All objects that decide allocations; notes about what was left out go to standard error."""
    # Here and not above: help and documents need neither.
    from kube.errors import KubeError

    try:
        state = _read_files(arguments.origin) if arguments.origin else _read_cluster(arguments)
    except (ExplainError, KubeError) as error:
        raise CommandFailed(str(error), Exit.USAGE) from error
    for note in (*state.truncated, *map(str, state.missing), note_of(state.server_version)):
        _note(note)
    return state


def _note(text: str) -> None:
    if text:
        sys.stderr.write(f"ostler: {plain(text)}\n")


def _read_files(paths: Sequence[str]) -> State:
    from ostler.explain.files import read_files
    from ostler.explain.recordings import is_recorded

    recorded = [each for each in paths if is_recorded(each)]
    files = [each for each in paths if each not in recorded]
    state = State()
    if files:
        found = read_files(files)
        for note in found.notes:
            _note(note)
        state = found.state
    for each in recorded:
        # Here and not above: it takes most of the agent's modules.
        from ostler.explain.recorded import recorded_node

        state = merge(recorded_node(each).state, state)
    return state


def _read_cluster(arguments: argparse.Namespace) -> State:
    from ostler.explain.live import ClusterScope, read_cluster

    with open_cluster(arguments) as cluster:
        return read_cluster(cluster.client, cluster.server, ClusterScope(cluster.namespace))


def read_input(name: str) -> str:
    """The text of a file or of standard input. Raises ``CommandFailed``."""
    from node.named_files import read_named_file
    from ostler.explain.documents import MAX_BYTES
    from ostler.explain.files import STDIN

    try:
        data = (
            sys.stdin.buffer.read(MAX_BYTES + 1) if name == STDIN else read_named_file(Path(name), MAX_BYTES, fifo=True)
        )
        return data.decode("utf-8-sig")
    except OSError as error:
        why = error.strerror or error
        raise CommandFailed(f"{name}: cannot be read ({why}); give a file that exists", Exit.USAGE) from error
    except UnicodeDecodeError as error:
        byte = f"0x{error.object[error.start]:02x}"
        raise CommandFailed(f"{name}: the byte {byte} is not UTF-8; save the file as UTF-8", Exit.USAGE) from error


def features(state: State) -> Features:
    """The scheduler's features in the cluster that a state is of."""
    return features_of(state.server_version)


def index_of(state: State) -> SliceIndex:
    """The slices of a state, with the taints of its DeviceTaintRules. Raises ``AllocationError``."""
    return SliceIndex(apply(state.taint_rules, state.slices).slices)


def pools_of(state: State) -> tuple[PublishedPool, ...]:
    """The pools of a state, with the taints of its DeviceTaintRules. Raises ``CommandFailed``."""
    try:
        return published_pools(index_of(state), state.claims, state.nodes, features(state))
    except AllocationError as error:
        raise CommandFailed(str(error), Exit.USAGE) from error


def classes_of(state: State, pools: Sequence[PublishedPool], written: Sequence[PoolDeviceClass] = ()) -> ClusterClasses:
    """The classes that needs can name: those of a state, and those ``written`` as documents."""
    try:
        return ClusterClasses(state.classes, pools, features(state), written)
    except AllocationError as error:
        raise CommandFailed(str(error), Exit.USAGE) from error
