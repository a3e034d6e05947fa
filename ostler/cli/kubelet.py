"""``ostler kubelet``: any device plugin or DRA driver against the embedded kubelet, at a prompt or by a script."""

from __future__ import annotations

import argparse
import asyncio
import re
import signal
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path

from node.documents import DocumentRefused
from node.inventory.recordings.source import RecordingError
from node.named_files import read_named_file
from ostler.cli.exits import CommandFailed, Exit
from ostler.cli.output import add_format, emit
from sandbox.kubelet.errors import KubeletError
from sandbox.kubelet.generations import GENERATIONS
from sandbox.kubelet.plugin_process import GRACE_SECONDS
from sandbox.kubelet.topology import POLICIES, SCOPES, TopologyConfigError, TopologyManager
from sandbox.nodes import UnknownNodeError, recording
from sandbox.standalone.machine import MachineError, NumaTopology, numa_topology, own_topology, recorded_topology
from sandbox.standalone.node import StandaloneNode
from sandbox.standalone.prompt import (
    ScriptConsole,
    ScriptFailed,
    ScriptViewer,
    Session,
    StreamLines,
    TerminalConsole,
    TerminalLines,
    TerminalViewer,
)
from sandbox.standalone.settings import WAIT_SECONDS, StandaloneError, StandaloneSettings

CALL_SECONDS = 30.0
"""How long a plugin may take for a call, unless the caller says otherwise; a real kubelet sets no limit."""
MAX_SCRIPT = 1 << 20
"""Bytes of a script."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Run an embedded kubelet without a cluster: device plugins and DRA drivers register with it, pods of ordinary\n"
        "manifests are admitted, and it shows what each container gets. COMMAND is started with the kubelet's folder\n"
        "at /var/lib/kubelet, in a mount namespace of its own; without COMMAND, start plugins yourself with the\n"
        "folders below --root. {node}, {cdi}, {state} and {kubeconfig} in COMMAND stand for name and files.\n"
        "What to do comes from the terminal, from -f, or from standard input ('help' lists the commands)."
    )
    parser.add_argument("plugin", nargs="*", metavar="-- COMMAND", help="the plugin's command and its arguments")
    parser.add_argument("-f", "--file", type=Path, metavar="SCRIPT", help="commands to run, one a line")
    add_format(parser, ("table", "json"))
    parser.add_argument(
        "--root", type=Path, metavar="DIR", help="the kubelet's folder, which stays (default: a temporary folder)"
    )
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="a variable for COMMAND; can be repeated"
    )
    parser.add_argument("--node-name", default="node", metavar="NAME", help="name of the node (default: %(default)s)")
    parser.add_argument(
        "--with-apiserver",
        action="store_true",
        help="have an API server's stand-in, with scheduling of claims: what DRA drivers and pods with claims need",
    )
    parser.add_argument(
        "--wait",
        type=_seconds,
        default=WAIT_SECONDS,
        metavar="SECONDS",
        help="how long COMMAND may take to register (default: %(default)g)",
    )
    _add_kubelet(parser)


def _add_kubelet(parser: argparse.ArgumentParser) -> None:
    kubelet = parser.add_argument_group("the kubelet")
    kubelet.add_argument(
        "--generation", choices=GENERATIONS, default="1.36", help="behave as this release (default: %(default)s)"
    )
    machine = kubelet.add_mutually_exclusive_group()
    machine.add_argument(
        "--numa", metavar="FILE", help="the machine's NUMA nodes: a file, or their number (default: this machine's)"
    )
    machine.add_argument("--node", metavar="RECORDED", help="the NUMA nodes of a recorded node, by name or file")
    kubelet.add_argument(
        "--topology-policy",
        choices=POLICIES,
        default="none",
        metavar="POLICY",
        help="none, best-effort, restricted or single-numa-node (default: %(default)s)",
    )
    kubelet.add_argument(
        "--topology-scope",
        choices=SCOPES,
        default="container",
        metavar="SCOPE",
        help="container or pod (default: %(default)s)",
    )
    kubelet.add_argument(
        "--topology-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="prefer-closest-numa-nodes or max-allowable-numa-nodes; can be repeated",
    )
    kubelet.add_argument(
        "--seed",
        type=int,
        metavar="NUMBER",
        help="choose devices at random, as real kubelets do, but the same at every run (default: by their ids)",
    )
    kubelet.add_argument(
        "--call-timeout",
        type=_seconds,
        default=CALL_SECONDS,
        metavar="SECONDS",
        help="how long the plugin may take for a call; 0: for ever, as in real kubelets (default: %(default)g)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run until ``quit``, the end of the script or input, or a signal."""
    # Started without a standard input, nobody can type, and there is nothing to run.
    script = "" if arguments.file is None and sys.stdin is None else _script(arguments.file)
    person = script is None and sys.stdin.isatty()
    try:
        settings = _settings(arguments)
        console = TerminalConsole() if person else ScriptConsole()
        node = StandaloneNode(settings, console)
        if isinstance(console, TerminalConsole):
            work = _at_the_terminal(node, console, arguments)
        else:
            name = str(arguments.file) if arguments.file is not None else "standard input"
            work = _by_script(node, StreamLines(script), name, arguments)
        asyncio.run(_until_signalled(node, work))
    except asyncio.CancelledError:
        if not person:
            raise CommandFailed("ended by a signal before the script was complete") from None
        sys.stdout.write("ended\n")
    except (MachineError, RecordingError) as error:
        raise CommandFailed(str(error), Exit.USAGE) from error
    except (StandaloneError, KubeletError, ScriptFailed) as error:
        raise CommandFailed(str(error)) from error
    return Exit.OK


async def _at_the_terminal(node: StandaloneNode, console: TerminalConsole, arguments: argparse.Namespace) -> None:
    lines = TerminalLines(console, node)
    try:
        async with node:
            print(_banner(node))
            if node.plugin is not None:
                try:
                    await node.registered()
                except StandaloneError as error:
                    print(error)
            print("'help' lists the commands, 'quit' ends.")
            watching = TerminalViewer(console, lines, arguments.output)
            await Session(node, watching, arguments.output, emit).interact(lines)
    finally:
        lines.close()


async def _by_script(node: StandaloneNode, lines: StreamLines, name: str, arguments: argparse.Namespace) -> None:
    async with node:
        if node.plugin is not None:
            await node.registered()
        else:
            sys.stderr.write(f"{_banner(node)}\n")
        await Session(node, ScriptViewer(arguments.output, emit), arguments.output, emit).follow(lines, name)


def _banner(node: StandaloneNode) -> str:
    settings, topology = node.settings, node.settings.topology
    nodes = ", ".join(str(each) for each in sorted(topology.numa_nodes))
    policy = f"topology policy {topology.policy}, scope {topology.scope}"
    lines = [f"kubelet {settings.generation} in {node.folder}: NUMA nodes {nodes}, {policy}"]
    if node.plugin is not None:
        lines.append(f"{node.plugin} runs as process {node.plugin.pid}")
    else:
        lines.append(
            f"start a plugin with {node.folder}/device-plugins or {node.folder}/plugins_registry as its folder, "
            "or give its command after '--'"
        )
    if node.cluster is not None:
        lines.append(f"API server: {node.folder}/kubeconfig")
    return "\n".join(lines)


async def _until_signalled(node: StandaloneNode, work: Coroutine[object, object, None]) -> None:
    """Do the work until a signal cancels it. A signal while the node is closing kills the plugin; closing goes on.

    Closing is never cancelled: what it has not ended yet would stay behind.
    """
    running = asyncio.ensure_future(work)
    signalled = False

    def on_signal() -> None:
        nonlocal signalled
        if signalled or node.is_closing:
            node.hasten()
        else:
            running.cancel()
        signalled = True

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    await running


def _settings(arguments: argparse.Namespace) -> StandaloneSettings:
    machine = _machine(arguments)
    if not _NAME.fullmatch(arguments.node_name):
        raise CommandFailed(
            f"--node-name: {arguments.node_name!r} is not a valid node name; use only lower-case letters, digits, "
            "'-' and '.'",
            Exit.USAGE,
        )
    return StandaloneSettings(
        root=arguments.root,
        topology=_topology(arguments, machine),
        generation=arguments.generation,
        api_server=arguments.with_apiserver,
        command=arguments.plugin,
        environment=_pairs("--env", arguments.env),
        node_name=arguments.node_name,
        call_timeout=arguments.call_timeout or None,
        wait=arguments.wait,
        grace=GRACE_SECONDS,
        seed=arguments.seed,
    )


def _topology(arguments: argparse.Namespace, machine: NumaTopology) -> TopologyManager:
    try:
        return TopologyManager(
            arguments.topology_policy,
            arguments.topology_scope,
            options=_pairs("--topology-option", arguments.topology_option),
            numa_nodes=machine.nodes,
            distances=machine.distances,
        )
    except TopologyConfigError as error:
        raise CommandFailed(
            f"--topology-option: the kubelet would not start: {error}; use prefer-closest-numa-nodes=true (with "
            "distances between the NUMA nodes) or max-allowable-numa-nodes=NUMBER (for more than 8 of them)",
            Exit.USAGE,
        ) from error


def _machine(arguments: argparse.Namespace) -> NumaTopology:
    if arguments.numa is not None:
        return numa_topology(arguments.numa)
    if arguments.node is None:
        return own_topology()
    try:
        return recorded_topology(recording(arguments.node))
    except UnknownNodeError as error:
        raise CommandFailed(f"--node: {error}, or the path of a recording", Exit.USAGE) from error


def _script(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return read_named_file(file, MAX_SCRIPT, fifo=True).decode()
    except (OSError, DocumentRefused) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise CommandFailed(f"{file}: {reason}", Exit.USAGE) from error
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{file}: is not UTF-8 text: {error.reason} at byte {error.start}", Exit.USAGE) from error


def _pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise CommandFailed(f"{option}: {each!r} must be NAME=VALUE", Exit.USAGE)
        pairs[name] = value
    return pairs


def _seconds(text: str) -> float:
    """The type of an option that is a time."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86400:
        raise argparse.ArgumentTypeError(f"must be 0 to 86400 seconds, is {text!r}")
    return seconds
