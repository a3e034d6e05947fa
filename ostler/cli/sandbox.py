"""``ostler sandbox``: the agent against an embedded kubelet, on a recorded node or on this machine's devices."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path

from node.inventory.recordings.source import RecordingError
from ostler.cli.exits import CommandFailed, Exit
from sandbox.configuration import configuration
from sandbox.node import SandboxNode
from sandbox.nodes import UnknownNodeError, names, recording
from sandbox.process import AgentFailed
from sandbox.terminal import Prompt, show
from sandbox.tour import tour

HERE = "here"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Run the agent as a separate process against an embedded kubelet, over real sockets, and show what happens:\n"
        "it finds devices, registers resources and gives devices to pods; a device fails and recovers; and the same\n"
        "with claims (DRA), for which the sandbox has its own API server and scheduler. Then a prompt follows.\n"
        f"Recorded nodes: {', '.join(names())}; '{HERE}' uses this machine's own devices; or the path of a recording."
    )
    parser.add_argument("--node", default="h100-sxm-8", metavar="NAME", help="recorded node (default: %(default)s)")
    parser.add_argument("--once", action="store_true", help="print the tour as JSON and end")
    parser.add_argument("--verbose", action="store_true", help="show each step in full, not as a few lines")
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration for the agent")
    parser.add_argument(
        "--mig-strategy", choices=("none", "single", "mixed"), help="how MIG devices are offered (default: mixed)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run until the tour ends (``--once``), or until Ctrl-C."""
    recorded = _recording(arguments.node)
    flags: dict[str, str] = {}
    extra, text = [], None
    if arguments.config is not None:
        extra = ["--config", str(arguments.config)]
    elif arguments.node in names():
        flags["--node-name"] = arguments.node
    if arguments.config is None and arguments.mig_strategy != "single":
        # Resources would override the strategy, and cannot express "single": that one is given as a flag, without NICs.
        # This machine's own devices stay at the plugin door, which its users know.
        text = configuration(
            mig=arguments.mig_strategy != "none", topology=_overrides(recorded), both=recorded is not None
        )
    if text is None and arguments.mig_strategy:
        flags["--mig-strategy"] = arguments.mig_strategy
    try:
        node = SandboxNode(
            recorded,
            arguments=extra,
            flags=flags,
            configuration=text,
            cluster=True,
            network=recorded is not None and text is not None,
        )
    except RecordingError as error:
        raise CommandFailed(str(error)) from error
    try:
        asyncio.run(_until_signalled(_once(node) if arguments.once else _interactive(node, verbose=arguments.verbose)))
    except asyncio.CancelledError:
        return _ended(once=arguments.once)
    except AgentFailed as error:
        raise CommandFailed(str(error)) from error
    except TimeoutError as error:
        raise CommandFailed(f"a resource was not registered in time: {error}; the agent's log is {node.log}") from error
    return Exit.OK


def _recording(name: str) -> Path | None:
    if name == HERE:
        return None
    try:
        return recording(name)
    except UnknownNodeError as error:
        raise CommandFailed(f"{error}, '{HERE}' for this machine, or the path of a recording", Exit.USAGE) from error


def _overrides(recorded: Path | None) -> Path | None:
    """The override file that lies beside a recording."""
    beside = recorded.with_suffix(".topology.xml") if recorded is not None else None
    return beside if beside is not None and beside.exists() else None


async def _until_signalled(work: Coroutine[object, object, None]) -> None:
    """Run it; a signal cancels it, so that the agent's process is never left behind."""
    running = asyncio.ensure_future(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    await running


def _ended(*, once: bool) -> Exit:
    """The exit code after a signal: an incomplete tour is a failure, leaving the prompt is not."""
    if once:
        raise CommandFailed("ended by a signal before the tour was complete")
    sys.stdout.write("\nended\n")
    return Exit.OK


async def _once(node: SandboxNode) -> None:
    document: dict[str, object] = {"node": node.hardware.name if node.hardware is not None else HERE}
    async with node:
        async for step in tour(node):
            document[step.key] = step.seen
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


async def _interactive(node: SandboxNode, *, verbose: bool) -> None:
    sys.stdout.write("starting the agent ...\n")
    async with node:
        async for step in tour(node):
            show(step, verbose=verbose)
        await Prompt(node, verbose=verbose).run()
