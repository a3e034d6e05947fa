"""``ostler conformance``: runs a device plugin or DRA driver and judges it by every rule that it must follow."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

from node.files import WriteFailed
from node.named_files import write_named_file
from node.opening import open_regular
from ostler.cli.exits import CommandFailed, Exit
from ostler.cli.output import add_format, emit, print_document, print_table
from sandbox.conformance.driver_rules import DRIVER_RULES
from sandbox.conformance.plugin_rules import PLUGIN_RULES
from sandbox.conformance.report import HEADER, document, junit, row, summary
from sandbox.conformance.rule import CannotJudge, RuleOutcome, RuleVerdict, UnknownRule
from sandbox.conformance.session import JudgedSubject, judge_driver, judge_plugin
from sandbox.conformance.testbed import CALL_SECONDS, ConformancePace

PLUGIN, DRIVER = "plugin", "driver"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Start a device plugin or DRA driver, drive every rule that the kubelet and its documents set for it, and say\n"
        "which it keeps. The command is run unmodified and finds the kubelet's folders at /var/lib/kubelet.\n\n"
        "  ostler conformance plugin -- /usr/bin/my-plugin --some-flag\n"
        "  ostler conformance plugin --socket /var/lib/kubelet/device-plugins/my.sock\n"
        "  ostler conformance driver -- my-driver --kubeconfig {kubeconfig} --node-name {node}\n"
        "  ostler conformance plugin --list\n\n"
        "A driver is given an API server: {kubeconfig} and {node} in the command, KUBECONFIG and NODE_NAME in its\n"
        "environment. docs/conformance.md explains each rule.\n\n"
        "exit codes: 0 every rule passed or is not applicable, 1 a rule failed, 2 the rules could not be judged"
    )
    parser.add_argument("kind", choices=(PLUGIN, DRIVER), help="what is judged")
    parser.usage = "ostler conformance {plugin,driver} [options] [-- COMMAND ...]"
    parser.set_defaults(words=[])
    parser.add_argument("--socket", type=Path, metavar="PATH", help="judge what serves this socket; start nothing")
    parser.add_argument("--list", action="store_true", dest="only_list", help="list the rules and end")
    parser.add_argument("--rule", action="append", default=[], metavar="NAME", help="judge only this rule (repeatable)")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML to this file, too")
    parser.add_argument("--log", type=Path, metavar="FILE", help="write what the command writes to this file")
    parser.add_argument(
        "--change", default="", metavar="COMMAND", help="a shell command that changes a device of the plugin, once"
    )
    parser.add_argument(
        "--patience",
        type=_seconds,
        default=20.0,
        metavar="SECONDS",
        help="for registering, also again (default: %(default)g)",
    )
    parser.add_argument(
        "--grace",
        type=_seconds,
        default=30.0,
        metavar="SECONDS",
        help="from SIGTERM to SIGKILL, as the pod's terminationGracePeriodSeconds (default: %(default)g)",
    )
    add_format(parser, ("table", "json"))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError(f"is {text!r}; it must be a number of seconds between 0 and 3600")
    return seconds


def run(arguments: argparse.Namespace) -> int:
    """Judge, and print what was seen."""
    kind: str = arguments.kind
    if arguments.only_list:
        return _list(arguments)
    if bool(arguments.words) == (arguments.socket is not None):
        raise CommandFailed(
            f"give either the command after '--' or its socket: ostler conformance {kind} -- COMMAND ..., "
            f"or ostler conformance {kind} --socket PATH",
            Exit.USAGE,
        )
    if arguments.change and (kind != PLUGIN or not arguments.words):
        raise CommandFailed("--change is for a plugin whose command is given", Exit.USAGE)
    subject = shlex.join(arguments.words) if arguments.words else str(arguments.socket)
    try:
        verdicts = asyncio.run(_until_signalled(arguments))
    except UnknownRule as error:
        raise CommandFailed(f"--rule: {error}", Exit.USAGE) from error
    except CannotJudge as error:
        raise CommandFailed(str(error), Exit.USAGE) from error
    except asyncio.CancelledError:
        raise CommandFailed("ended by a signal before all rules were judged", Exit.USAGE) from None
    _report(arguments, subject, verdicts)
    outcomes = {verdict.outcome for verdict in verdicts}
    if RuleOutcome.FAILED in outcomes:
        return Exit.FAILED
    return Exit.USAGE if RuleOutcome.NOT_JUDGED in outcomes else Exit.OK


def _list(arguments: argparse.Namespace) -> int:
    rules = [
        (each.name, each.title, each.source) for each in (PLUGIN_RULES if arguments.kind == PLUGIN else DRIVER_RULES)
    ]
    if arguments.output == "json":
        listed = [
            {"rule": name, "title": title, "source": {"name": source.name, "url": source.url}}
            for name, title, source in rules
        ]
        print_document(listed, "json")
    else:
        header = ("RULE", f"WHAT THE {arguments.kind.upper()} DOES", "SOURCE")
        print_table(header, [(name, title, source.name) for name, title, source in rules])
    return Exit.OK


async def _until_signalled(arguments: argparse.Namespace) -> list[RuleVerdict]:
    """Judge; a signal cancels it, so that the command is never left behind."""
    judging = asyncio.ensure_future(_judge(arguments))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, judging.cancel)
    return await judging


async def _judge(arguments: argparse.Namespace) -> list[RuleVerdict]:
    # A call may take half of the patience, so that a wait never ends before its reason is known.
    call = min(CALL_SECONDS, arguments.patience / 2)
    pace = ConformancePace(patience=arguments.patience, call=call, grace=arguments.grace)
    with ExitStack() as files:
        file: TextIO | None = None
        if arguments.log is not None:
            try:
                descriptor = open_regular(arguments.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, links=True)
                file = files.enter_context(os.fdopen(descriptor, "w", encoding="utf-8", buffering=1))
            except OSError as error:
                raise CommandFailed(f"--log {arguments.log}: {error.strerror or error}", Exit.USAGE) from error

        def log(line: str) -> None:
            if file is not None:
                file.write(f"{line}\n")

        subject = JudgedSubject(arguments.words, arguments.socket, arguments.change, log)
        judge = judge_plugin if arguments.kind == PLUGIN else judge_driver
        return await judge(subject, arguments.rule, pace, _show_progress)


def _show_progress(verdict: RuleVerdict) -> None:
    """Show progress on a terminal; the table follows at the end."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{verdict.outcome.value:>15}  {verdict.rule} ({verdict.seconds:.1f} s)\n")


def _report(arguments: argparse.Namespace, subject: str, verdicts: Sequence[RuleVerdict]) -> None:
    if arguments.output == "json":
        print_document(document(arguments.kind, subject, verdicts), "json")
    else:
        print_table(HEADER, [row(verdict) for verdict in verdicts])
        emit(summary(verdicts) + "\n")
    # Last, so that a file that cannot be written costs nobody the verdicts.
    if arguments.junit is not None:
        try:
            write_named_file(arguments.junit, junit(arguments.kind, subject, verdicts), 0o644)
        except WriteFailed as error:
            raise CommandFailed(f"--junit {arguments.junit}: {error.reason}", Exit.USAGE) from error
