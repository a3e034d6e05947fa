"""``ostler``: parses the command line and hands over to a command's own module, which alone is loaded.

The daemon's start-up time is part of a kubelet restart's window, so nothing is imported here that a command does not
need; an ``ostler run`` that only has settings does not even load argparse. Whatever the agent imports is imported after
``use_bytecode``, so this module itself imports nothing that is not built into the interpreter.
"""

from __future__ import annotations

import gc
import os
import sys

from ostler.cli.bytecode import use_bytecode

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import MutableMapping, Sequence

    from ostler.cli.commands import Command

_EXPERIMENTS = "GRPC_EXPERIMENTS"
_BACKUP_POLL = "GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS"
GRPC_SETTINGS = {
    # gRPC's own remarks (a stream that a peer ended) would appear between our lines.
    "GRPC_VERBOSITY": "ERROR",
    # Servers poll their connections in the thread that waits for calls. By default other threads do it and hand over
    # each step of a call, which costs an Allocate 60 us. A gRPC that no longer knows this name says so and starts.
    _EXPERIMENTS: "-event_engine_listener",
    # With that, gRPC would also look after the connections of clients every 5 s, by a timer that wakes a thread once a
    # second. They need nobody: their own threads still poll them.
    _BACKUP_POLL: "0",
}
"""Environment variables that gRPC reads when it is imported or first used."""
_ARENA_MAX = -8
"""M_ARENA_MAX of mallopt(3)."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    set_up_grpc(os.environ)
    if sys.stdout is None:
        # Started with standard output closed.
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    words = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in words if not word.startswith("-")), None)
    if chosen == "run":
        use_bytecode()
        # Nothing that is imported ever becomes garbage; the agent collects once and starts again when it has settled.
        gc.disable()
        _share_one_heap()
    from ostler.cli.exits import CommandFailed, Exit, complain

    command, arguments = _run_with_settings(words) or _parsed(chosen, words)
    try:
        return _done(chosen, command.run(arguments))
    except CommandFailed as error:
        complain(str(error))
        return error.code
    except BrokenPipeError:
        # The reader of our output went away, as `head` does.
        sys.stderr.close()
        return Exit.OK
    except KeyboardInterrupt:
        return 130


def set_up_grpc(environment: MutableMapping[str, str]) -> None:
    """Add gRPC's settings, except what a person has set.

    Whoever chooses the experiments keeps gRPC's own interval too, which is right only together with them.
    """
    is_chosen = _EXPERIMENTS in environment
    for name, setting in GRPC_SETTINGS.items():
        if not (is_chosen and name == _BACKUP_POLL):
            environment.setdefault(name, setting)


def _share_one_heap() -> None:
    """Have all threads allocate from one heap of the C library.

    A heap of its own would keep up to 2 MB of free pages for each of the threads that load modules or serve calls, and
    only one of them runs Python at a time. Other C libraries have no such setting and need none.
    """
    import contextlib
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)


def _run_with_settings(words: Sequence[str]) -> tuple[Command, argparse.Namespace] | None:
    """The agent's command and its arguments, without argparse; None for any other line."""
    if words[:1] != ["run"]:
        return None
    from ostler.cli.imports import left_out, load_library_ahead

    load_library_ahead()
    with left_out():
        from ostler.cli import options, run
    arguments = options.plain_settings(words[1:])
    return None if arguments is None else (run, arguments)


def _parsed(chosen: str | None, words: Sequence[str]) -> tuple[Command, argparse.Namespace]:
    """The command of a line and its arguments, by argparse; it ends the process for help and for mistakes."""
    from ostler.cli.commands import COMMANDS, command_line, command_named

    arguments = command_line(chosen if chosen in COMMANDS else None).parse_args(words)
    return command_named(arguments.command), arguments


def _done(command: str | None, code: int) -> int:
    """Flush the output, and return the code: at the interpreter's end a full disk would be a traceback."""
    if command != "run":
        from ostler.cli.output import emit

        emit("")
    return code
