"""``ostler fit``: how many pods fit a cluster, or how many nodes of a kind they take."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ostler.cli.exits import CommandFailed, Exit
from ostler.cli.garbage import uncollected
from ostler.cli.output import add_color, add_format, emit, page_form, print_document
from ostler.cli.progress import Progress, patience
from ostler.explain.access import add_access, add_filename, add_origin, open_cluster
from scheduling.explain.state import BadQuestion, ExplainError, Kind, State, merge, name_of, namespace_of

if TYPE_CHECKING:
    from ostler.explain.files import FileObjects
    from scheduling.fit.answer import FitAnswer
    from scheduling.fit.fitting import NodeTemplate
    from scheduling.fit.wanted import PodSource

TOTAL = 300.0
"""Seconds for all pods and nodes."""
MOST_COPIES, MOST_NODES = 100_000, 10_000
MOST_PODS = 100_000
"""Pods of one question at most: a manifest may ask for two thousand million replicas."""
MAX = "max"
_KINDS = ((Kind.POD, "pod"), (Kind.CLAIM, "claim"), (Kind.TEMPLATE, "claim"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Say how many of these pods fit the cluster, on which nodes, and why the first that does not fit does not.\n"
        "Pods are placed one after the other, each gets its devices as the scheduler would allocate them, and nothing\n"
        "is moved to make room. Changes nothing. Reads the cluster that kubectl would use, or only files (--from).\n\n"
        "  ostler fit -f pods.yaml                            on the cluster as it is\n"
        "  ostler fit -f pods.yaml --from snapshot.yaml       on a cluster that was saved\n"
        "  ostler fit -f pods.yaml --from h100-sxm-8          how many nodes of this kind it takes\n"
        "  ostler fit -f pods.yaml --from node.yaml --nodes 4 on four nodes that were recorded\n"
        "  ostler fit -f pod.yaml --copies max                how many copies fit\n"
        "  ostler fit '1..8 gpu, memory>=128Gi total'         the claim to apply for a need\n\n"
        "exit codes: 0 everything fits, 1 not everything, 2 an input cannot be used"
    )
    parser.add_argument("need", nargs="?", metavar="NEED", help="a need in its short form, instead of -f")
    add_filename(parser, "pods and workloads to place, and their claims and templates; - is stdin")
    add_origin(parser, "read this file, folder or recorded node instead of a cluster; also the name of a shipped node")
    parser.add_argument(
        "--nodes", metavar="N", help="with a recorded node: so many of it (default: as many as it takes)"
    )
    parser.add_argument(
        "--copies", default="1", metavar="N", help="place everything N times; 'max': as often as possible"
    )
    parser.add_argument("--spread", action="store_true", help="fill nodes evenly, not one after the other")
    parser.add_argument("--config", type=Path, metavar="FILE", help="with a recorded node: the agent's configuration")
    parser.add_argument(
        "--all-nodes", action="store_true", help="name every node, and say why where a pod does not fit"
    )
    add_color(parser)
    add_format(parser, ("table", "json"))
    add_access(parser)


@uncollected()
def run(arguments: argparse.Namespace) -> int:
    """Place and print, or compile a need."""
    if arguments.need is not None:
        return _run_need(arguments)
    progress = Progress(sys.stderr, time.monotonic)
    try:
        copies, nodes = _copies(arguments.copies), _nodes(arguments.nodes)
        if not arguments.filename:
            raise BadQuestion("nothing to place: give pods with -f FILE, or a need such as '2 gpu'")
        answer, noun = _answer(arguments, copies, nodes, progress.say)
    except ExplainError as error:
        raise CommandFailed(str(error), Exit.USAGE) from error
    finally:
        progress.end()
    _print(answer, noun, arguments)
    return Exit.OK if answer.fits else Exit.FAILED


def _run_need(arguments: argparse.Namespace) -> int:
    options = ("-f", arguments.filename), ("--nodes", arguments.nodes), ("--config", arguments.config)
    more = ("--copies", arguments.copies != "1"), ("--spread", arguments.spread), ("--all-nodes", arguments.all_nodes)
    for option, given in (*options, *more):
        if given:
            raise CommandFailed(
                f"{option} is about pods; leave out {option} or the need {arguments.need!r}", Exit.USAGE
            )
    # Here and not above: pods need none of it.
    from ostler.cli.pools_claim import run_need

    return run_need(arguments.need, arguments)


def _copies(text: str) -> int | None:
    if text == MAX:
        return None
    if not _is_number(text, MOST_COPIES):
        raise BadQuestion(f"--copies is {text!r}; it must be a number from 1 to {MOST_COPIES}, or '{MAX}'")
    return int(text)


def _nodes(text: str | None) -> int | None:
    if text is None:
        return None
    if not _is_number(text, MOST_NODES):
        raise BadQuestion(f"--nodes is {text!r}; it must be a number from 1 to {MOST_NODES}")
    return int(text)


def _is_number(text: str, most: int) -> bool:
    return text.isdecimal() and len(text) <= len(str(most)) and 1 <= int(text) <= most


def _answer(
    arguments: argparse.Namespace, copies: int | None, nodes: int | None, say: Callable[[str], None]
) -> tuple[FitAnswer, str]:
    # Here and not above: help needs none of it.
    from ostler.explain.files import read_files
    from ostler.explain.parameters import refusals
    from scheduling.allocator.reading import FatalError
    from scheduling.fit.fitting import FitOptions, fit

    state, notes, template = _read(arguments, nodes, say)
    over = read_files(arguments.filename, namespace=arguments.namespace)
    sources, noun = _sources(over)
    _check_size(sources, copies or 1, noun)
    options = FitOptions(
        copies,
        arguments.spread,
        template,
        patience(TOTAL),
        refusals,
        progress=lambda count: say(f"placing pods: {count} so far"),
    )
    try:
        answer = fit(merge(state, over.state), sources, options)
    except FatalError as error:
        raise BadQuestion(str(error)) from error
    return replace(answer, notes=(*answer.notes, *notes, *over.left_out)), noun


def _read(
    arguments: argparse.Namespace, nodes: int | None, say: Callable[[str], None]
) -> tuple[State, tuple[str, ...], NodeTemplate | None]:
    """The cluster, what was left out of files, and the recorded node."""
    from ostler.explain.recordings import is_recorded
    from scheduling.fit.fitting import NodeTemplate

    recorded = [origin for origin in arguments.origin if is_recorded(origin)]
    if len(recorded) > 1:
        raise BadQuestion(f"--from names {len(recorded)} recorded nodes ({', '.join(recorded)}); give one of them")
    for option, given in (("--nodes", nodes), ("--config", arguments.config)):
        if given is not None and not recorded:
            raise BadQuestion(f"{option} is for a recorded node; add --from NODE, or leave {option} out")
    if not arguments.origin:
        state, notes = _read_cluster(arguments, say)
        return state, notes, None
    state, notes = _read_base([origin for origin in arguments.origin if origin not in recorded])
    if not recorded:
        return state, notes, None
    # Here and not above: it takes most of the agent's modules.
    from ostler.explain.recorded import recorded_node

    found = recorded_node(recorded[0], arguments.config)
    described = state.find(Kind.NODE, found.name)
    node = found.node
    if described is not None:
        # The Node object of the machine that was recorded: its labels, taints and what it has beside devices.
        node = described
        state = state.with_objects(Kind.NODE, tuple(each for each in state.nodes if each is not described))
    classes = State(origin=found.origin, classes=found.classes)
    return merge(classes, state), notes, NodeTemplate(node, found.slices, nodes)


def _read_base(paths: Sequence[str]) -> tuple[State, tuple[str, ...]]:
    from ostler.explain.files import read_files

    if not paths:
        return State(), ()
    found = read_files(paths)
    return found.state, found.left_out


def _read_cluster(arguments: argparse.Namespace, say: Callable[[str], None]) -> tuple[State, tuple[str, ...]]:
    from kube.errors import KubeError
    from ostler.explain.live import ClusterScope, read_cluster

    try:
        with open_cluster(arguments) as cluster:
            arguments.namespace = cluster.namespace
            wanted = ClusterScope(cluster.namespace, everything=True, running=True)
            state = read_cluster(cluster.client, cluster.server, wanted, say)
    except KubeError as error:
        raise BadQuestion(str(error)) from error
    return state, (*(str(missing) for missing in state.missing), *state.truncated)


def _sources(over: FileObjects) -> tuple[list[PodSource], str]:
    """The objects to place: the pods of the files; without any their claims, without these their claim templates."""
    from scheduling.explain.question import Question
    from scheduling.explain.subject import is_allocated
    from scheduling.fit.wanted import PodSource

    for kind, noun in _KINDS:
        found = []
        for body in over.state.of(kind):
            if kind is Kind.CLAIM and is_allocated(body):
                continue  # It already has its devices.
            question = Question(kind, namespace_of(body), name_of(body))
            workload = over.workloads.get((question.namespace, question.name)) if kind is Kind.POD else None
            if workload is None:
                found.append(PodSource(question))
            else:
                title = f"{workload.body['kind']} {question.namespace}/{name_of(workload.body)}"
                found.append(PodSource(question, workload.count, title))
        if found:
            return found, noun
    raise BadQuestion(f"{over.state.origin}: it has no pod, workload, claim or claim template to place")


def _check_size(sources: Sequence[PodSource], copies: int, noun: str) -> None:
    """Raise BadQuestion for more pods than are placed at a time."""
    wanted = copies * sum(each.count or 1 for each in sources)
    if wanted > MOST_PODS:
        most = max(sources, key=lambda each: each.count or 1)
        raise BadQuestion(
            f"{wanted} {noun}s are asked for, {copies * (most.count or 1)} of them by {most}; at most {MOST_PODS} are "
            "placed at a time: ask for fewer replicas or --copies"
        )


def _print(answer: FitAnswer, noun: str, arguments: argparse.Namespace) -> None:
    if arguments.output == "json":
        from ostler.explain.fit_forms import fit_document

        print_document(fit_document(answer, noun), "json")
        return
    from ostler.explain.fit_forms import draw_fit

    width, colour = page_form(arguments.color)
    emit(draw_fit(answer, noun, width=width, colour=colour, all_nodes=arguments.all_nodes))
