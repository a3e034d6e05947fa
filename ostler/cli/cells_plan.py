"""``ostler cells plan``: whether a gang would fit now, and which pods it would preempt."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from kube.bodies import text_at
from ostler.cli.exits import CommandFailed, Exit
from ostler.cli.output import FORMATS, add_format, emit, print_document
from ostler.drawing.text import plain
from ostler.pools.source import add_source

if TYPE_CHECKING:
    from scheduling.cells.pod import CellPod


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Say whether gangs would fit now, where, and which pods they would preempt. A gang is a manifest (-f) with\n"
        "the annotation pod-scheduling-spec, or is described by options. Running pods are those of --pods (what\n"
        "kubectl prints with -o json) or of the cluster. The exit code is 1 if a gang has to wait.\n\n"
        "  ostler cells plan cells.yaml --cluster --vc A --gpus 4 --count 2\n"
        "  ostler cells plan cells.yaml --pods pods.json -f train.yaml\n"
        "  ostler cells plan cells.yaml --vc A --priority -1 --gpus 8 --bad node-3"
    )
    parser.add_argument("file", metavar="FILE", help="the configuration; - for standard input")
    parser.add_argument("-f", "--manifest", metavar="FILE", help="pods to place; - for standard input")
    parser.add_argument("--vc", metavar="NAME", help="the virtual cluster of a gang")
    parser.add_argument("--priority", type=int, default=0, metavar="N", help="-1 for opportunistic (default: 0)")
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help="GPUs of each pod (default: 1)")
    parser.add_argument("--count", type=int, default=1, metavar="N", help="pods of the gang (default: 1)")
    parser.add_argument("--type", default="", metavar="NAME", help="type of the GPUs (default: any)")
    parser.add_argument("--pinned", default="", metavar="ID", help="the pinned cell to use")
    parser.add_argument("--pods", metavar="FILE", help="running pods; - for standard input")
    parser.add_argument(
        "--cluster", action="store_true", help="read pods and nodes of the cluster that kubectl would use"
    )
    parser.add_argument(
        "--bad", action="append", default=[], metavar="NODE", help="take this node for unusable (repeatable)"
    )
    add_format(parser, FORMATS)
    add_source(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read, ask the scheduler and print."""
    # Here and not above: help needs none of it.
    from ostler.cells.drift import configured_nodes
    from ostler.cells.planning import CellPlanner, is_usable
    from ostler.cells.source import read_cells, running_pods
    from ostler.pools.source import read_source
    from scheduling.cells.decision import CellsUserError

    configuration = read_cells(arguments.file)
    known = {each.name for each in configured_nodes(configuration)}
    unknown = next((node for node in arguments.bad if node not in known), None)
    if unknown is not None:
        raise CommandFailed(
            f"--bad {unknown}: no cell is on this node; {arguments.file} has {', '.join(sorted(known))}", Exit.USAGE
        )
    bad = set(arguments.bad)
    running = running_pods(arguments)
    if arguments.cluster or arguments.origin:
        nodes = {text_at(node, "metadata", "name"): node for node in read_source(arguments).nodes}
        bad |= {name for name in known if name not in nodes or not is_usable(nodes[name])}
    planner = CellPlanner(configuration, running, bad)
    for note in planner.notes:
        sys.stderr.write(f"ostler: {plain(note)}\n")
    try:
        plans = planner.plan(_wanted(arguments))
    except CellsUserError as error:
        raise CommandFailed(error.message, Exit.USAGE) from error
    if arguments.output == "table":
        emit("".join(f"{plain(line)}\n" for plan in plans for line in plan.lines()))
    else:
        print_document([plan.document() for plan in plans], arguments.output)
    return Exit.FAILED if any(plan.reason for plan in plans) else Exit.OK


def _wanted(arguments: argparse.Namespace) -> list[CellPod]:
    """The pods to place. Raises ``CommandFailed``."""
    import json

    from ostler.cells.source import read_pods
    from scheduling.cells.pod import ANNOTATION_SPEC, CellPod, PodTextError, read_pod_spec

    if arguments.manifest is not None:
        if arguments.vc is not None:
            raise CommandFailed("--vc and -f both describe gangs; give one of them", Exit.USAGE)
        found = [each.pod for each in read_pods(arguments.manifest) if each.bind_info is None]
        if not found:
            problem = f"no pod without a place has the annotation {ANNOTATION_SPEC}; add it, or describe a gang by --vc"
            raise CommandFailed(f"{arguments.manifest}: {problem}", Exit.USAGE)
        return found
    if arguments.vc is None:
        raise CommandFailed("no gang is given; name its virtual cluster by --vc, or its manifest by -f", Exit.USAGE)
    spec = {
        "virtualCluster": arguments.vc,
        "priority": arguments.priority,
        "leafCellType": arguments.type,
        "leafCellNumber": arguments.gpus,
        "pinnedCellId": arguments.pinned,
        "affinityGroup": {
            "name": "plan",
            "members": [{"podNumber": arguments.count, "leafCellNumber": arguments.gpus}],
        },
    }
    try:
        return [CellPod("plan", "plan", "plan", read_pod_spec({ANNOTATION_SPEC: json.dumps(spec)}, "plan", "plan"))]
    except PodTextError as error:
        raise CommandFailed(error.problem, Exit.USAGE) from error
