"""``ostler run``: the agent itself, until a signal ends it.

The end is bounded by a thread, because a driver call that hangs must not keep the process; while the agent hands over
to a standby the bound is that of the hand-over. A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from node.inventory.source import Source
from node.lock import LockError
from node.rules import Door
from ostler.agent.agent import Agent
from ostler.agent.grpc_threads import GrpcThreads
from ostler.agent.handover import LINGER, KubeletTaken
from ostler.cli.exits import CommandFailed, Exit
from ostler.cli.options import add_settings, read_settings
from ostler.cli.scanning import sources_of
from ostler.config.errors import Note, NoteKind, ReloadFailed
from ostler.config.load import Loaded
from ostler.config.settings import Settings
from ostler.config.settings_builder import needs_node_name
from ostler.logs import configure

if TYPE_CHECKING:
    import argparse

log = logging.getLogger("ostler.agent")

GRACE = 0.8
"""Seconds from a signal to the end of what decides and writes, however the hardware hangs; mostly of the process."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Run the agent on this node: find devices, register with the kubelet, serve them.\n"
        "SIGTERM and SIGINT end it cleanly within a second; SIGHUP reads the configuration again.\n"
        "A second instance on the same node waits as standby until the first one ends. The first one then answers\n"
        f"the kubelet for up to {LINGER:g} more seconds, until the kubelet has switched over. A second signal ends it\n"
        "at once."
    )
    add_settings(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run until a signal; raises ``CommandFailed`` when a part of the agent failed."""
    # Sockets and state are root's alone; what others must read is given its mode explicitly.
    os.umask(0o077)
    # Whoever ends a process that hangs by SIGABRT, as systemd's watchdog does, finds in the log where it hung.
    faulthandler.enable(2)
    loaded = read_settings(arguments)
    missing = _missing(loaded.settings, loaded.settings.node_name)
    if missing:
        raise CommandFailed(f"the configuration is not usable\n{missing}", Exit.CONFIG)
    configure(loaded.settings.log)
    for note in loaded.notes:
        level = logging.WARNING if note.kind in (NoteKind.FAULT, NoteKind.IDLE) else logging.INFO
        log.log(level, "configuration", extra={"note": str(note)})
    sources = sources_of(loaded.settings)
    # Otherwise asyncio takes the signal first, and Python describes its handler when ours follows: that takes 4 ms.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        asyncio.run(_run(arguments, loaded, sources))
    except* (LockError, KubeletTaken) as refused:
        # No traceback: the message says what is wrong and where.
        _leave(Exit.FAILED, refused)
    except* Exception as faults:
        log.critical("the agent failed", exc_info=faults)
        _leave(Exit.FAILED, faults)
    _leave(Exit.OK)
    return Exit.OK


async def _run(arguments: argparse.Namespace, first: Loaded, sources: tuple[Source, ...]) -> None:
    def load_again() -> Settings:
        try:
            loaded = read_settings(arguments)
        except CommandFailed as error:
            raise ReloadFailed(str(error)) from error
        # At the start the agent serves without the faulty file; now it goes on with the old one.
        faults = [str(note) for note in loaded.notes if note.kind is NoteKind.FAULT]
        if faults:
            raise ReloadFailed("\n".join(faults))
        # The name itself takes effect with a restart only.
        missing = _missing(loaded.settings, first.settings.node_name)
        if missing:
            raise ReloadFailed(missing)
        agent.noted(_by_kind(loaded.notes))
        return loaded.settings

    threads = GrpcThreads()
    agent = Agent(first.settings, sources, load_again)
    agent.noted(_by_kind(first.notes))
    running = asyncio.create_task(agent.run(), name="agent")
    reloads: set[asyncio.Task[None]] = set()

    def reload() -> None:
        task = asyncio.create_task(_reload(agent), name="reload")
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, _end, agent, running, signal.SIGTERM)
    loop.add_signal_handler(signal.SIGINT, _end, agent, running, signal.SIGINT)
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        await running
    except asyncio.CancelledError:
        log.info("ended")
    finally:
        threads.release()


def _missing(settings: Settings, node_name: str) -> str:
    """Why these settings need a node name that is not given, with the fix; empty if nothing is missing."""
    by_node = settings.kubernetes.door_by_node
    if node_name or not (by_node or any(rule.door.has(Door.DRA) for rule in settings.rules)):
        return ""
    fix = "start the agent with --node-name NAME, in a pod with OSTLER_NODE_NAME from spec.nodeName"
    return f"nodeName: is not given, but {needs_node_name(settings.rules)}; {fix}"


def _by_kind(notes: Iterable[Note]) -> Counter[str]:
    return Counter(note.kind.value for note in notes)


async def _reload(agent: Agent) -> None:
    try:
        await agent.reload()
    except ReloadFailed as error:
        log.warning("the configuration is not usable, the old one stays in force", extra={"problems": str(error)})


def _end(agent: Agent, running: asyncio.Task[None], number: signal.Signals) -> None:
    handing_over = agent.handover.begin()
    log.info("ending", extra={"signal": number.name, "to": "a standby"} if handing_over else {"signal": number.name})
    running.cancel()
    _after(GRACE, _overdue, agent if handing_over else None)


def _overdue(agent: Agent | None) -> None:
    """In a thread of its own: end the process, unless only the kubelet is waited for."""
    if agent is not None and agent.handover.lingering:
        _after(LINGER + GRACE, _overdue, None)
    else:
        _leave(Exit.FAILED)


def _after(seconds: float, call: Callable[[Agent | None], None], agent: Agent | None) -> None:
    deadline = threading.Timer(seconds, call, (agent,))
    deadline.daemon = True
    deadline.start()


def _leaves(fault: BaseException) -> Iterator[BaseException]:
    """The single faults inside nested groups."""
    if isinstance(fault, BaseExceptionGroup):
        for inner in fault.exceptions:
            yield from _leaves(inner)
    else:
        yield fault


def _leave(code: Exit, faults: BaseException | None = None) -> None:
    """End the process now: a worker thread that hangs in a driver call would otherwise keep it for ever."""
    if faults is not None:
        for fault in _leaves(faults):
            sys.stderr.write(f"ostler: the agent failed: {str(fault) or type(fault).__name__}\n")
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
