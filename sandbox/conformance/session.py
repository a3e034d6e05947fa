"""One run of conformance: the folders, the program in them, the testbed, and the verdicts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandbox.apiserver.server import ApiServer
from sandbox.conformance.driver_rules import DRIVER_RULES
from sandbox.conformance.driver_testbed import NODE, DriverTestbed
from sandbox.conformance.plugin_rules import PLUGIN_RULES
from sandbox.conformance.plugin_testbed import PluginTestbed
from sandbox.conformance.rule import CannotJudge, RuleVerdict, chosen, judge
from sandbox.conformance.subject import CommandProgram
from sandbox.conformance.testbed import ConformancePace, ProgramTestbed
from sandbox.temporary import SHORT, NoTemporaryFolder, TemporaryFolder

OnVerdict = Callable[[RuleVerdict], None]
PLACEHOLDERS: Final = ("{kubeconfig}", "{node}", "{cdi}", "{state}")
"""What a driver's command may contain; each stands for itself in any word."""
KUBELET: Final = "k"
"""The name of the kubelet's folder."""
_CDI_FOLDERS: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""Where runtimes look for CDI files, in rising priority."""


@dataclass(frozen=True, slots=True)
class JudgedSubject:
    """The subject of a run: a command, or what serves ``socket``. ``log`` gets the lines that the command writes.

    ``change``: a command line of the shell that makes a device of a plugin change; empty for none.
    """

    command: Sequence[str] = ()
    socket: Path | None = None
    change: str = ""
    log: Callable[[str], None] = lambda _: None


async def judge_plugin(
    subject: JudgedSubject, names: Sequence[str], pace: ConformancePace, on_verdict: OnVerdict
) -> list[RuleVerdict]:
    """Judge a device plugin by the rules of these names, all without names; raises ``UnknownRule``."""
    rules = chosen(PLUGIN_RULES, names)
    with _folder() as root:
        kubelet, state = _made(root / KUBELET), _made(root / "state")
        program = _program(subject, kubelet, pace, words={"{state}": str(state)}, environment={}, folders={})
        bed = PluginTestbed(kubelet, program, pace, socket=subject.socket, change=_change(subject), folders=[state])
        async with _ending(bed, program):
            return await judge(rules, bed, on_verdict)


async def judge_driver(
    subject: JudgedSubject, names: Sequence[str], pace: ConformancePace, on_verdict: OnVerdict
) -> list[RuleVerdict]:
    """Judge a DRA driver by the rules of these names, all without names; raises ``UnknownRule``."""
    rules = chosen(DRIVER_RULES, names)
    with _folder() as root, ApiServer() as server:
        kubelet, state = _made(root / KUBELET), _made(root / "state")
        cdi = {seen: _made(root / f"cdi-{number}") for number, seen in enumerate(_CDI_FOLDERS)}
        kubeconfig = str(server.kubeconfig(root / "kubeconfig"))
        words = {"{kubeconfig}": kubeconfig, "{node}": NODE, "{cdi}": str(cdi[_CDI_FOLDERS[-1]]), "{state}": str(state)}
        environment = {"KUBECONFIG": kubeconfig, "NODE_NAME": NODE}
        program = _program(subject, kubelet, pace, words=words, environment=environment, folders=cdi)
        bed = DriverTestbed(kubelet, program, pace, server, cdi=tuple(cdi.values()), state=state, socket=subject.socket)
        async with _ending(bed, program):
            return await judge(rules, bed, on_verdict)


@asynccontextmanager
async def _ending(bed: ProgramTestbed, program: CommandProgram | None) -> AsyncIterator[None]:
    """End the kubelet and the program, whatever happens."""
    try:
        yield
    finally:
        await bed.discard()
        if program is not None:
            await program.close()


def _program(
    subject: JudgedSubject,
    root: Path,
    pace: ConformancePace,
    *,
    words: Mapping[str, str],
    environment: Mapping[str, str],
    folders: Mapping[Path, Path],
) -> CommandProgram | None:
    if not subject.command:
        return None
    command = list(subject.command)
    for placeholder, text in words.items():
        command = [word.replace(placeholder, text) for word in command]
    return CommandProgram(command, root, grace=pace.grace, environment=environment, folders=folders, log=subject.log)


def _change(subject: JudgedSubject) -> Callable[[], Awaitable[None]] | None:
    """The function that runs the subject's command that changes a device; None without one."""

    async def change() -> None:
        pipe, both = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
        process = await asyncio.create_subprocess_shell(subject.change, stdout=pipe, stderr=both)
        output, _ = await process.communicate()
        if process.returncode:
            said = output.decode(errors="replace").strip() or "(no text)"
            raise CannotJudge(f"--change: {subject.change!r} ended with exit code {process.returncode}: {said}")

    return change if subject.change else None


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for the run, which is removed at its end.

    Sockets' paths may have 107 bytes only. So the kubelet's folder in it has a path that is no longer than the one by
    which the program knows it: what the program can serve can be dialled.
    """
    try:
        folder = TemporaryFolder("o", SHORT)
    except NoTemporaryFolder as error:
        raise CannotJudge(f"{error}; free some space there") from error
    try:
        yield folder.path
    finally:
        folder.remove()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
