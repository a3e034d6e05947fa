"""``ostler explain``: why a pod or claim waits, or where it would go, from a live cluster or from files."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ostler.cli.exits import CommandFailed, Exit
from ostler.cli.garbage import uncollected
from ostler.cli.output import add_color, add_format, emit, page_form, print_document
from ostler.cli.progress import Progress, patience
from ostler.explain.access import add_access, add_filename, add_origin, open_cluster
from scheduling.explain.question import Question, parse_questions, questions_about
from scheduling.explain.state import ExplainError, Kind, State, merge
from scheduling.explain.subject import subject_of
from scheduling.explain.verdict import Explanation

if TYPE_CHECKING:
    from kube.discovery import ObjectGetter
    from ostler.explain.live import ClusterScope

TOTAL = 120.0
"""Seconds for all nodes; those that are left then have no answer."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Say on which nodes a pod or claim would get its devices, and which; or what prevents it, for each node and\n"
        "request, the closest node first, and what would help. Changes nothing. Reads the cluster that kubectl would\n"
        "use, or only files (--from). Follows the scheduler of Kubernetes 1.36 and 1.37.\n\n"
        "  ostler explain pod train-0 -n team\n"
        "  ostler explain deployment/web job/train pod/train-0 -n team\n"
        "  ostler explain -f claim.yaml            a manifest, as if it were applied to the cluster\n"
        "  ostler explain claim/gpu --from snapshot.yaml\n\n"
        "exit codes: 0 it fits on a node, 1 on none, 2 the question or an input cannot be used"
    )
    parser.add_argument(
        "question",
        nargs="*",
        metavar="NAME",
        help="pod/NAME, claim/NAME, deployment/NAME, ..., or a name (default: what is in -f)",
    )
    add_filename(parser, "objects to treat as applied; - is stdin")
    add_origin(parser)
    parser.add_argument("--node", action="append", default=[], metavar="NAME", help="check only this node")
    parser.add_argument("--all-nodes", action="store_true", help="name every node, and say why where it does not fit")
    add_color(parser)
    add_format(parser, ("text", "json"))
    add_access(parser)


@uncollected()
def run(arguments: argparse.Namespace) -> int:
    """Explain and print."""
    progress = Progress(sys.stderr, time.monotonic)
    try:
        state, asked, notes = _read(arguments, progress.say)
        if len(asked) > 1:
            notes = (*notes, f"each of the {len(asked)} is judged alone, as if the others took no device")
        verdicts = [_explain(state, each, notes, arguments, progress) for each in asked]
    except ExplainError as error:
        raise CommandFailed(str(error), Exit.USAGE) from error
    finally:
        progress.end()
    _print(verdicts, arguments)
    return Exit.OK if all(verdict.fits for verdict in verdicts) else Exit.FAILED


def _read(
    arguments: argparse.Namespace, say: Callable[[str], None]
) -> tuple[State, tuple[Question, ...], tuple[str, ...]]:
    """The objects, the questions, and what was left out of files."""
    # Here and not above: help needs none of it.
    from ostler.explain.files import FileObjects, read_files

    if arguments.origin:
        base = read_files(arguments.origin)
        over = (
            read_files(arguments.filename, namespace=arguments.namespace)
            if arguments.filename
            else FileObjects(State())
        )
        state = merge(base.state, over.state)
        asked = _questions(arguments, "default", over.state if arguments.filename else state)
        return state, asked, (*base.notes, *over.notes)
    from kube.errors import KubeError
    from ostler.explain.live import read_cluster

    if not arguments.filename and not arguments.question:
        raise ExplainError("nothing to explain: give 'pod NAME', 'claim NAME', or a manifest with -f")
    try:
        with open_cluster(arguments) as cluster:
            over = FileObjects(State())
            if arguments.filename:
                over = read_files(arguments.filename, namespace=cluster.namespace)
            asked = _questions(arguments, cluster.default, over.state)
            live = read_cluster(cluster.client, cluster.server, _wanted(asked, over.state), say)
            made, notes = _read_workloads(cluster.client, asked, over.state)
    except KubeError as error:
        raise ExplainError(str(error)) from error
    return merge(merge(live, made), over.state), asked, (*over.notes, *notes)


def _wanted(asked: Sequence[Question], files: State) -> ClusterScope:
    """The pods and claims to read by name; a question without a kind may be about either."""
    from ostler.explain.live import ClusterScope

    if len(namespaces := {each.namespace for each in asked}) > 1:
        raise ExplainError(
            f"the objects are in several namespaces ({', '.join(sorted(namespaces))}); ask about one at a time"
        )
    direct = [each for each in asked if not each.workload]
    pods = tuple(each.name for each in direct if each.kind in (None, Kind.POD) and not _has(files, each))
    claims = tuple(each.name for each in direct if each.kind in (None, Kind.CLAIM) and not _has(files, each))
    return ClusterScope(asked[0].namespace, pods, claims)


def _has(files: State, asked: Question) -> bool:
    return asked.kind is not None and files.find(asked.kind, asked.name, asked.namespace) is not None


def _read_workloads(client: ObjectGetter, asked: Sequence[Question], files: State) -> tuple[State, tuple[str, ...]]:
    """One pod of each workload in question that is in no file, and for how many pods its answer counts."""
    from ostler.explain.workloads import read_workload

    wanted = [each for each in asked if each.workload and not _has(files, each)]
    found = [read_workload(client, each.workload, each.namespace, each.name) for each in wanted]
    return State(pods=tuple(pod for pod, _ in found)), tuple(note for _, note in found)


def _questions(arguments: argparse.Namespace, default: str, files: State) -> tuple[Question, ...]:
    if arguments.question:
        return parse_questions(arguments.question, arguments.namespace, default)
    return questions_about(files)


def _explain(
    state: State, asked: Question, notes: tuple[str, ...], arguments: argparse.Namespace, progress: Progress
) -> Explanation:
    from ostler.explain.parameters import refusals
    from scheduling.explain.survey import survey

    subject = subject_of(state, asked)
    subject = replace(subject, notes=(*subject.notes, *notes))
    return survey(state, subject, arguments.node, progress.nodes, patience(TOTAL), parameters=refusals)


def _print(verdicts: Sequence[Explanation], arguments: argparse.Namespace) -> None:
    if arguments.output == "json":
        from ostler.explain.forms import document

        documents = [document(verdict) for verdict in verdicts]
        print_document(documents[0] if len(documents) == 1 else documents, "json")
        return
    from ostler.explain.forms import draw

    width, colour = page_form(arguments.color)
    pages = [draw(verdict, width=width, colour=colour, all_nodes=arguments.all_nodes) for verdict in verdicts]
    emit("\n".join(pages))
