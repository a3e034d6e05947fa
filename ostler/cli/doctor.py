"""``ostler doctor``: is this node as the agent needs it, and if not, what to do."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from ostler.cli.exits import CommandFailed, Exit
from ostler.cli.options import add_settings, given_flags, read_settings
from ostler.cli.output import add_format, print_document
from ostler.config.errors import ConfigErrors
from ostler.config.load import Loaded, load
from ostler.config.overrides import OVERRIDES
from ostler.config.settings import Settings
from ostler.doctor.examination import NAMES, chosen, document, examine, text, worst
from ostler.doctor.node import NodeView
from ostler.doctor.reading import processes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Check this node: configuration, limits, drivers, events, NICs, CDI, the agent, the kubelet and registration.\n"
        "Every check says what it found and, if something is wrong, what to do. Changes nothing on the node. Works\n"
        "without a running agent and, seeing less, without root. Exit code 1 if a check has failed.\n\n"
        f"checks: {', '.join(NAMES)}"
    )
    parser.add_argument("checks", nargs="*", metavar="CHECK", help="run only these checks (default: all)")
    add_format(parser, ("text", "json"))
    add_settings(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check and print."""
    unknown = [name for name in arguments.checks if name not in NAMES]
    if unknown:
        raise CommandFailed(f"no such check: {', '.join(unknown)}; 'ostler doctor --help' lists them", Exit.USAGE)
    _take_over_flags(arguments)
    view = _view(arguments)
    results = examine(chosen(arguments.checks), view)
    if arguments.output == "json":
        print_document(document(results, view.settings.node_name), "json")
    else:
        sys.stdout.write(text(results, colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR")))
    sys.stdout.flush()
    return Exit.FAILED if worst(results).bad else Exit.OK


def _take_over_flags(arguments: argparse.Namespace) -> None:
    """In the agent's own pod, use the agent's own value for each flag that is not given.

    Whoever types 'kubectl exec' into that pod means that agent, and a chart gives settings as flags.
    """
    if not os.environ.get("KUBERNETES_SERVICE_HOST"):
        return
    given = given_flags(arguments)
    running = [process for process in processes(Path(given.get("--proc-root", "/proc"))) if process.runs_agent]
    if len(running) != 1:
        return
    found = {override.flag: running[0].flag(override.flag) for override in OVERRIDES if override.flag not in given}
    taken = {flag: value for flag, value in found.items() if value is not None}
    vars(arguments).update(taken)
    config = running[0].flag("--config")
    if arguments.config is None and config is not None:
        arguments.config = Path(config)
        taken["--config"] = config
    if taken:
        sys.stderr.write(f"with the flags of the agent (process {running[0].pid}): {' '.join(sorted(taken))}\n")


def _view(arguments: argparse.Namespace) -> NodeView:
    """The node by its settings. If the configuration is not usable, one check says so, and the others use defaults."""
    try:
        return NodeView(read_settings(arguments))
    except CommandFailed as error:
        problems = tuple(str(error).splitlines()[1:])
    try:
        loaded = load(None, given_flags(arguments), os.environ)
    except ConfigErrors:
        # A flag or variable is wrong; the problems already name it.
        loaded = Loaded(Settings())
    return NodeView(loaded, problems=problems)
