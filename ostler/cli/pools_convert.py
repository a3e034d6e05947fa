"""``ostler pools convert``: documents of pools as objects of resource.k8s.io/v1 and back, with what is lost by name."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ostler.cli.exits import CommandFailed, Exit
from ostler.cli.garbage import uncollected
from ostler.cli.output import add_format, emit, print_document
from ostler.drawing.text import plain
from ostler.explain.access import add_filename
from ostler.pools.source import add_source

if TYPE_CHECKING:
    from scheduling.pools.claim_documents import Document
    from scheduling.pools.lost import Lost


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "With -f: print DevicePool, DeviceClass and DeviceClaim documents as the ResourceSlices, DeviceClasses and\n"
        "ResourceClaims that mean the same in Kubernetes. A converted claim never gets devices that its document\n"
        "would not allow; one that cannot be expressed is left out. A claim that a Pod in the files uses as template\n"
        "becomes a ResourceClaimTemplate. Without -f, the way back: what a cluster, a snapshot or a recorded node\n"
        "publishes (--from), as documents. What is lost is named on standard error, with JSON also in the output.\n\n"
        "  ostler pools convert -f pools.yaml -f need.yaml\n"
        "  ostler pools convert -f need.yaml --templates | kubectl apply -f -\n"
        "  ostler pools convert --from snapshot.yaml > pools.yaml\n\n"
        "exit codes: 0 everything is converted, 1 something is left out, 2 an input cannot be used"
    )
    add_filename(parser, "documents to convert; a file, a folder, or - for stdin")
    parser.add_argument("--templates", action="store_true", help="make a ResourceClaimTemplate of every claim")
    add_format(parser, ("yaml", "json"))
    add_source(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read, convert and print."""
    if not arguments.filename:
        return _way_back(arguments)
    # Here and not above: help needs none of it.
    from ostler.pools.supply import read_documents, read_template_names
    from scheduling.pools.conversion import convert
    from scheduling.pools.reading import title_of

    if arguments.origin:
        raise CommandFailed("give documents with -f or what is published with --from, not both", Exit.USAGE)
    found = read_documents(arguments.filename)
    documents: tuple[Document, ...] = (*found.pools, *found.classes, *found.claims)
    if not documents:
        names = ", ".join(arguments.filename)
        raise CommandFailed(
            f"{names}: there is no DevicePool, DeviceClass or DeviceClaim of devmgmtproto.k8s.io", Exit.USAGE
        )
    templates = {title_of(each) for each in found.claims} if arguments.templates else None
    conversion = convert(documents, read_template_names(arguments.filename) if templates is None else templates)
    print_objects(conversion.objects, conversion.lost, arguments.output)
    return Exit.FAILED if any(each.left_out for each in conversion.lost) else Exit.OK


@uncollected()
def _way_back(arguments: argparse.Namespace) -> int:
    """Print what the cluster publishes, as documents."""
    from ostler.pools.source import pools_of
    from ostler.pools.supply import read_objects
    from scheduling.allocator.reading import AllocationError
    from scheduling.pools.published_documents import published_documents
    from scheduling.pools.reading import encode

    state = read_objects(arguments)
    try:
        found = published_documents(pools_of(state), state.classes, state.claims)
    except AllocationError as error:
        raise CommandFailed(str(error), Exit.USAGE) from error
    print_objects(tuple(map(encode, found.documents)), tuple(found.lost), arguments.output)
    return Exit.FAILED if any(each.left_out for each in found.lost) else Exit.OK


def print_objects(objects: tuple[dict[str, object], ...], lost: tuple[Lost, ...], form: str) -> None:
    """Print objects; what is lost goes to standard error, and into the document with JSON."""
    if form == "json":
        entries = [
            {"document": each.document, "field": each.field, "why": each.why, "leftOut": each.left_out} for each in lost
        ]
        print_document({"objects": list(objects), "lost": entries}, "json")
        return
    for number, each in enumerate(objects):
        emit("---\n" if number else "")
        print_document(each, "yaml")
    for one in lost:
        sys.stderr.write(f"lost: {plain(str(one))}\n")
