"""``ostler pools claim``: the ResourceClaimTemplate to apply for a need, and the devices it would get now."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ostler.cli.exits import CommandFailed, Exit
from ostler.cli.output import emit, print_document
from ostler.drawing.text import plain
from ostler.pools.source import add_source

if TYPE_CHECKING:
    from scheduling.pools.claim_writer import CompilerInput
    from scheduling.pools.compiler import CompiledClaim
    from scheduling.pools.documents import DeviceClaim, PoolDeviceClass


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Print the ResourceClaimTemplate to apply for a need, and the node and devices that it would get now. Ranges\n"
        "and sums become alternatives (firstAvailable). Reads the cluster that kubectl would use, or files (--from),\n"
        "and changes nothing. What it would get stands in comments, so the output can be applied as it is.\n\n"
        "  ostler pools claim -f need.yaml\n"
        '  ostler pools claim "1..8 gpu, memory>=128Gi total, same pcieRoot" --from snapshot.yaml\n\n'
        "exit codes: 0 a node has the devices now, 1 none has them, 2 the need or an input cannot be used"
    )
    parser.add_argument("need", nargs="?", default="", metavar="NEED", help="a need in its short form")
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        default=[],
        metavar="FILE",
        help="DeviceClaim documents, and DeviceClass documents that they name; - is stdin",
    )
    parser.add_argument("--node", action="append", default=[], metavar="NAME", help="promise only this node's devices")
    parser.add_argument(
        "-o", "--output", choices=("yaml", "json"), default="yaml", help="output format (default: yaml)"
    )
    add_source(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compile and print."""
    # Here and not above: help needs none of it.
    from ostler.pools.supply import read_documents

    if bool(arguments.need) == bool(arguments.filename):
        raise CommandFailed("give a need either in its short form or as a file with -f", Exit.USAGE)
    if arguments.need:
        return run_need(arguments.need, arguments)
    given = read_documents(arguments.filename)
    if not given.claims:
        raise CommandFailed(f"{', '.join(arguments.filename)}: there is no DeviceClaim", Exit.USAGE)
    return _run(given.claims, given.classes, arguments)


def run_need(text: str, arguments: argparse.Namespace) -> int:
    """The same for a need in its short form."""
    from scheduling.pools.need import NeedError, need_of

    try:
        claim = need_of(text)
    except NeedError as error:
        raise CommandFailed(f"the need cannot be read: {error}", Exit.USAGE) from error
    return _run([claim], (), arguments)


def _run(claims: Sequence[DeviceClaim], written: Sequence[PoolDeviceClass], arguments: argparse.Namespace) -> int:
    from ostler.explain.files import uncollected
    from scheduling.allocator.reading import AllocationError
    from scheduling.pools.compiler import compile_claim
    from scheduling.pools.lost import LeftOut
    from scheduling.pools.matching import MatchingError
    from scheduling.pools.reading import title_of
    from scheduling.pools.ways import SearchGaveUp

    nodes = getattr(arguments, "node", [])
    found: list[CompiledClaim] = []
    with uncollected():
        cluster, classes = _input(arguments, written)
        unknown = next((each for each in nodes if each not in cluster.node_names), None)
        if unknown is not None:
            raise CommandFailed(f"there is no node {unknown}; the nodes are: {_some(cluster.node_names)}", Exit.USAGE)
        for claim in claims:
            try:
                found.append(compile_claim(claim, cluster, list(nodes) or None))
            except (LeftOut, MatchingError, AllocationError, SearchGaveUp) as error:
                raise CommandFailed(f"DeviceClaim {title_of(claim)}: {error}", Exit.USAGE) from error
    if arguments.output == "json":
        documents = [{**_document(each), "classes": classes} for each in found]
        print_document(documents[0] if len(documents) == 1 else documents, "json")
    else:
        for number, body in enumerate(classes):
            emit("---\n" if number else "# the class that the claim names\n")
            print_document(body, "yaml")
        for number, each in enumerate(found):
            emit("---\n" if number or classes else "")
            _print(each)
    return Exit.OK if all(each.node is not None for each in found) else Exit.FAILED


def _input(
    arguments: argparse.Namespace, written: Sequence[PoolDeviceClass]
) -> tuple[CompilerInput, list[dict[str, Any]]]:
    """The cluster, and the classes that must be applied because it does not have them."""
    from ostler.pools.source import features, pools_of
    from ostler.pools.supply import read_objects
    from scheduling.allocator.allocated import AllocatedState, allocation_results
    from scheduling.allocator.pools import SliceIndex
    from scheduling.allocator.reading import AllocationError
    from scheduling.explain.cluster import apply
    from scheduling.explain.state import name_of
    from scheduling.pools.claim_writer import CompilerInput
    from scheduling.pools.live_names import written_class
    from scheduling.pools.lost import LeftOut
    from scheduling.pools.published_classes import ClusterClasses

    state = read_objects(arguments)
    pools = pools_of(state)
    classes: list[dict[str, Any]] = []
    for each in written:
        try:
            classes.append(written_class(each, pools))
        except LeftOut as error:
            raise CommandFailed(f"DeviceClass {each.metadata.name}: {error}", Exit.USAGE) from error
    try:
        known = ClusterClasses(state.classes, pools, features(state), written)
        held = [each for each in state.claims if allocation_results(each)]
        cluster = CompilerInput(
            pools,
            known,
            {**{name_of(each): each for each in state.classes}, **{each["metadata"]["name"]: each for each in classes}},
            SliceIndex(apply(state.taint_rules, state.slices).slices),
            AllocatedState.of_claims(held),
            state.nodes,
            features(state),
        )
    except AllocationError as error:
        raise CommandFailed(str(error), Exit.USAGE) from error
    return cluster, classes


def _document(compiled: CompiledClaim) -> dict[str, Any]:
    return {
        "template": compiled.template,
        "node": compiled.node,
        "exact": compiled.exact,
        "devices": [
            {
                "request": each.request,
                "driver": each.driver,
                "pool": each.pool,
                "device": each.device,
                "amounts": dict(each.amounts),
            }
            for each in compiled.devices
        ],
        "lost": [{"document": each.document, "field": each.field, "why": each.why} for each in compiled.lost],
    }


def _print(compiled: CompiledClaim) -> None:
    """The template, with what it gets as comments before it."""
    lines = []
    if compiled.node is None:
        lines.append("no node has these devices now; 'ostler pools explain' says why")
    else:
        lines.append(f"on node {compiled.node} it gets now:")
        for each in compiled.devices:
            amounts = "".join(f", {name} {amount}" for name, amount in each.amounts.items())
            lines.append(f"  {each.request}: {each.device} of pool {each.pool} ({each.driver}){amounts}")
    if compiled.exact:
        lines.append("it names what these devices have, because their sum cannot be said in general")
    lines += [f"lost: {each.field}: {each.why}" for each in compiled.lost]
    emit("".join(f"# {plain(line)}\n" for line in lines))
    print_document(compiled.template, "yaml")


def _some(names: Sequence[str], most: int = 10) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more or "none"
