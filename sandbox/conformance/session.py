"""One run of conformance: the folders, the program in them, the testbed, and the verdicts."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.conformance.plugin_rules import PLUGIN_RULES
from sandbox.conformance.plugin_testbed import ConformancePace, PluginTestbed
from sandbox.conformance.rule import RuleVerdict, chosen, judge
from sandbox.conformance.subject import CommandProgram

OnVerdict = Callable[[RuleVerdict], None]


@dataclass(frozen=True, slots=True)
class JudgedSubject:
    """What is judged: a command, or what serves ``socket``. ``log`` gets the lines that the command writes."""

    command: Sequence[str] = ()
    socket: Path | None = None
    log: Callable[[str], None] = lambda _: None


async def judge_plugin(
    subject: JudgedSubject, names: Sequence[str], pace: ConformancePace, on_verdict: OnVerdict
) -> list[RuleVerdict]:
    """Judge a device plugin by the rules of these names, all without names; raises ``UnknownRule``."""
    rules = chosen(PLUGIN_RULES, names)
    # Short, because sockets' paths may have 107 bytes only.
    root = Path(tempfile.mkdtemp(prefix="ostler-", dir="/tmp"))
    program = None
    if subject.command:
        program = CommandProgram(subject.command, root, grace=pace.grace, environment={}, folders={}, log=subject.log)
    bed = PluginTestbed(root, program, pace, subject.socket)
    try:
        return await judge(rules, bed, on_verdict)
    finally:
        await bed.discard()
        if program is not None:
            await program.close()
        shutil.rmtree(root, ignore_errors=True)
