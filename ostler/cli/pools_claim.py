"""``ostler pools claim``: the ResourceClaimTemplate to apply for a need, and the devices it would get now."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ostler.cli.exits import CommandFailed, Exit
from ostler.cli.garbage import uncollected
from ostler.cli.output import add_format, emit, print_document
from ostler.drawing.text import plain
from ostler.pools.needs import add_need, check_nodes, claims_in, short_need

if TYPE_CHECKING:
    from scheduling.pools.claim_documents import DeviceClaim
    from scheduling.pools.claim_writer import CompilerInput
    from scheduling.pools.compiler import CompiledClaim
    from scheduling.pools.documents import PoolDeviceClass


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Print the ResourceClaimTemplate to apply for a need, and the node and devices that it would get now. Ranges\n"
        "and sums become alternatives (firstAvailable). Reads the cluster that kubectl would use, or files (--from),\n"
        "and changes nothing. What it would get stands in comments, so the output can be applied as it is. Of several\n"
        "claims each is promised what those before it leave.\n\n"
        "  ostler pools claim -f need.yaml\n"
        '  ostler pools claim "1..8 gpu, memory>=128Gi total, same pcieRoot" --from snapshot.yaml\n\n'
        "exit codes: 0 a node has the devices now, 1 none has them, 2 the need or an input cannot be used"
    )
    add_need(
        parser,
        documents="DeviceClaim documents, and DeviceClass documents that they name",
        node="promise only devices of this node",
    )
    add_format(parser, ("yaml", "json"))


def run(arguments: argparse.Namespace) -> int:
    """Compile and print."""
    # Here and not above: help needs none of it.
    from ostler.pools.supply import read_documents

    if bool(arguments.need) == bool(arguments.filename):
        raise CommandFailed("give a need either in its short form or as a file with -f", Exit.USAGE)
    if arguments.need:
        return run_need(arguments.need, arguments)
    given = read_documents(arguments.filename)
    return _run(claims_in(given, arguments.filename), given.classes, arguments)


def run_need(text: str, arguments: argparse.Namespace) -> int:
    """Compile a need in its short form, and print."""
    return _run([short_need(text)], (), arguments)


@uncollected()
def _run(claims: Sequence[DeviceClaim], written: Sequence[PoolDeviceClass], arguments: argparse.Namespace) -> int:
    from scheduling.allocator.reading import AllocationError
    from scheduling.pools.compiler import compile_claims
    from scheduling.pools.lost import LeftOut
    from scheduling.pools.matching import MatchingError
    from scheduling.pools.reading import title_of
    from scheduling.pools.ways import SearchGaveUp

    nodes = getattr(arguments, "node", [])
    found: list[CompiledClaim] = []
    cluster = _cluster(arguments, written)
    check_nodes(nodes, cluster.node_names)
    try:
        for each in compile_claims(claims, cluster, nodes or None):
            found.append(each)  # noqa: PERF402 - those before a failure tell which claim fails
    except (LeftOut, MatchingError, AllocationError, SearchGaveUp) as error:
        raise CommandFailed(f"DeviceClaim {title_of(claims[len(found)])}: {error}", Exit.USAGE) from error
    _print(found, cluster.made_classes, arguments.output)
    return Exit.OK if all(each.node is not None for each in found) else Exit.FAILED


def _cluster(arguments: argparse.Namespace, written: Sequence[PoolDeviceClass]) -> CompilerInput:
    """The published objects, with the classes of documents."""
    from ostler.pools.source import features, index_of
    from ostler.pools.supply import read_objects
    from scheduling.allocator.reading import AllocationError
    from scheduling.pools.claim_writer import CompilerInput
    from scheduling.pools.lost import LeftOut

    state = read_objects(arguments)
    try:
        return CompilerInput.of(
            index_of(state),
            state.classes,
            written=written,
            claims=state.claims,
            nodes=state.nodes,
            features=features(state),
        )
    except (AllocationError, LeftOut) as error:
        raise CommandFailed(str(error), Exit.USAGE) from error


def _print(found: Sequence[CompiledClaim], classes: Sequence[Mapping[str, object]], form: str) -> None:
    """The templates, and the ``classes`` that must be applied because the cluster does not have them."""
    if form == "json":
        documents = [{**_document(each), "classes": list(classes)} for each in found]
        print_document(documents[0] if len(documents) == 1 else documents, "json")
        return
    for number, body in enumerate(classes):
        emit("---\n" if number else "# the class that the claim names\n")
        print_document(dict(body), "yaml")
    taken = False
    for number, each in enumerate(found):
        emit("---\n" if number or classes else "")
        _print_template(each, beside_others=taken)
        taken = taken or each.node is not None


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


def _print_template(compiled: CompiledClaim, *, beside_others: bool) -> None:
    """The template, after comments on what it gets; ``beside_others``: earlier claims get devices, too."""
    lines = []
    if compiled.node is None:
        others = " beside those of the claims before it" if beside_others else ""
        lines.append(f"no node has these devices now{others}; 'ostler pools explain' says why")
    else:
        lines.append(f"on node {compiled.node} it gets now:")
        for each in compiled.devices:
            amounts = "".join(f", {name} {amount}" for name, amount in each.amounts.items())
            lines.append(f"  {each.request}: {each.device} of pool {each.pool} ({each.driver}){amounts}")
    if compiled.exact:
        lines.append("it names exactly these devices, because a claim cannot express the sum in general")
    lines += [f"lost: {each.field}: {each.why}" for each in compiled.lost]
    emit("".join(f"# {plain(line)}\n" for line in lines))
    print_document(compiled.template, "yaml")
