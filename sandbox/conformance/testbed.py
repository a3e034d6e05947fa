"""The part that the testbeds of plugins and drivers share: a program, and the kubelet that it registers with.

The program runs on from rule to rule as long as it is registered. Before each rule the testbed looks: whatever the
previous rule did, everything that has registered once must be registered again, or the program is started again in
empty folders. With only a socket there is neither kubelet nor process, and the rules that need them are not applicable.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from sandbox.conformance.observing_kubelet import ObservingKubelet, PluginType
from sandbox.conformance.rule import NotReady, RuleNotApplicable
from sandbox.conformance.subject import JudgedProgram, ProgramEnd
from sandbox.kubelet.plugin_process import BUILT_IN

Result = TypeVar("Result")
_MOST_OWN_ENDS: Final = 2
"""How often in one wait a program that ended itself is started again."""
_MOST_WAITS: Final = 5
"""How often its patience starts over in one wait."""
CALL_SECONDS: Final = 10.0
"""For one call to the program, unless the caller says otherwise."""
_NAMES: Final = {"DevicePlugin": "plugin", "DRAPlugin": "driver"}


@dataclass(frozen=True, slots=True)
class ConformancePace:
    """Seconds: to register, also again (``patience``); for one call; without a new registration until all count as
    there (``quiet``); from SIGTERM to the end (``grace``); for which a kubelet that restarts is away (``away``); until
    slices that were deleted are back (``slices``: the controller of Kubernetes' own library looks after 30 s).

    ``calls``: how many Allocate calls are the load, as many as a node of 1,000 devices gets. ``streams``: how many
    ListAndWatch streams come and go before a program's size is measured again.
    """

    patience: float = 20.0
    call: float = CALL_SECONDS
    quiet: float = 1.0
    grace: float = 30.0
    away: float = 0.2
    slices: float = 75.0
    calls: int = 1000
    streams: int = 10


class ProgramTestbed:
    """``program`` on a node whose kubelet has its folder in ``root``; None: only its socket is known.

    ``folders``: further ones that are empty at every new start of the program. ``name``: plugin or driver.
    """

    def __init__(
        self,
        root: Path,
        program: JudgedProgram | None,
        pace: ConformancePace,
        expects: PluginType,
        *,
        folders: Sequence[Path] = (),
    ) -> None:
        self.pace = pace
        self.name = _NAMES[expects]
        self._folders = tuple(folders)
        self._program = program
        self._kubelet = ObservingKubelet(root, expects, call_seconds=pace.call, away_seconds=pace.away)
        self._known: frozenset[str] = frozenset()
        self._running = False
        self._lost = False
        self._hopeless = False
        self._own_ends: list[str] = []

    @property
    def has_program(self) -> bool:
        """Whether there is a program to start, and not just a socket."""
        return self._program is not None

    @property
    def kubelet(self) -> ObservingKubelet:
        """The kubelet; raises ``RuleNotApplicable`` if there is none."""
        if self._program is None:
            raise RuleNotApplicable(
                f"it needs a kubelet that the {self.name} registers with; give the command, not a socket"
            )
        return self._kubelet

    @property
    def program(self) -> JudgedProgram:
        """Its process; raises ``RuleNotApplicable`` where only its socket is known."""
        if self._program is None:
            raise RuleNotApplicable(f"it needs the {self.name}'s process; give the command, not a socket")
        return self._program

    async def prepare(self) -> None:
        """Have the program registered with all that it registers; raises ``NotReady``."""
        self._own_ends.clear()
        if self._program is None:
            await self._check_socket()
            return
        if self._running and not self._lost and not self._program.ended() and await self._registered_again():
            return
        await self.begin()

    async def begin(self, *, kubelet: bool = True) -> None:
        """Start the program again, in empty folders; ``kubelet``: with one, and wait until it is registered.

        A program that did not register at its first start is not started again. Raises ``NotReady``.
        """
        if self._hopeless:
            raise NotReady(f"the {self.name} does not register, as was seen before")
        await self.discard()
        for folder in self._own_folders():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o750)
        self._kubelet.make_folders()
        if kubelet:
            await self._kubelet.start()
        self._running, self._lost = True, False
        await self.program.start()
        if not kubelet:
            return
        await self._kubelet.until(lambda: self._kubelet.current() or self.program.ended(), self.pace.patience)
        if not self._kubelet.current():
            ended = self.program.ended()
            problem = (
                f"the {self.name} {ended}{_advice(ended)}"
                if ended
                else f"the {self.name} does not register: {self._why_not()}"
            )
            self._hopeless = not self._known
            raise NotReady(problem)
        if not self._known:
            await self._settle()
        elif not await self._registered_again():
            missing = ", ".join(sorted(self._known - self._kubelet.current().keys()))
            raise NotReady(f"the {self.name} does not register {missing} again after a new start: {self._why_not()}")

    async def discard(self) -> None:
        """End the program and the kubelet."""
        await self._close_clients()
        if self._program is not None and self._running:
            self._running = False
            await self._program.stop()
        await self._kubelet.forget()

    async def own_end_now(self) -> str:
        """See ``Testbed``."""
        program = self._program
        if program is None or not self._running or not await self._kubelet.until(program.ended, self.pace.quiet):
            return ""
        return f"the {self.name} {program.ended()}"

    async def registered_after(
        self, number: int, resources: Iterable[str] | None = None, *, restarts: bool = True
    ) -> str:
        """Wait until the resources (None: all) have registered after this number; returns what is missing, or nothing.

        ``restarts``: a program that ends itself is started again, as Kubernetes does with a container of a DaemonSet;
        ``own_end`` says so. It has its whole patience again then, and after a Register call that the kubelet refused.
        """
        wanted = set(self._known if resources is None else resources)
        own_ends: list[str] = []

        def missing() -> set[str]:
            return wanted - self.kubelet.current(after=number).keys()

        refused = -1
        for _ in range(_MOST_WAITS):
            if refused == self.kubelet.refused:
                break
            refused = self.kubelet.refused
            await self.kubelet.until(lambda: not missing() or self.program.ended(), self.pace.patience)
            if not missing():
                self._own_ends += own_ends
                return ""
            if self.program.ended():
                if not restarts or len(own_ends) == _MOST_OWN_ENDS:
                    break
                own_ends.append(self.program.ended())
                await self.program.start()
                refused = -1
        self._lost = True
        if self.program.ended():
            return f"the {self.name} {self.program.ended()}"
        again = "again " if number else ""
        silent = f"{', '.join(sorted(missing()))} did not register {again}within {self.pace.patience:g} s"
        tried = [each for each in self.kubelet.registrations if each.number > number]
        problem = next((found for each in reversed(tried) if (found := each.problem or each.pending_problem)), "")
        return f"{silent}; it tried: {problem}" if problem else silent

    @property
    def own_end(self) -> str:
        """How the program ended itself during the rule and came back by a new start; mostly empty."""
        if not self._own_ends:
            return ""
        return f"it registered when it was started again, as a DaemonSet does: the {self.name} {self._own_ends[0]}"

    async def rest(self) -> None:
        """Give the program time to continue if nothing shows that it has."""
        await asyncio.sleep(self.pace.quiet)

    @staticmethod
    async def within(seconds: float, work: Awaitable[Result]) -> Result:
        """The result of ``work``; raises TimeoutError after ``seconds``."""
        async with asyncio.timeout(seconds):
            return await work

    async def restart(self, *, killed: bool = False) -> str:
        """End the program by SIGTERM or SIGKILL and start it in its folders; say why it is not back, empty if it is."""
        last = self.kubelet.last_number
        await (self.program.kill() if killed else self.program.stop())
        await self.program.start()
        return await self.registered_after(last, restarts=False)

    @property
    def resources(self) -> frozenset[str]:
        """What has registered since the first start, by name; empty before the first rule."""
        return self._known

    async def end(self) -> tuple[ProgramEnd, list[str]]:
        """End the program by SIGTERM; returns how it ended, and the sockets that it left, as it knows them."""
        # One that has just started may not listen to signals yet.
        await self.rest()
        before = set(_sockets(self.kubelet))
        ended = await self.program.terminate()
        self._running = False
        left = [path for path in _sockets(self.kubelet) if path in before]
        return ended, [self.kubelet.as_known(path) for path in left]

    async def _check_socket(self) -> None:
        """Raise ``CannotJudge`` unless somebody answers at the socket, which is all that is known."""
        raise NotImplementedError

    async def _close_clients(self) -> None:
        """Close every connection to the program."""
        raise NotImplementedError

    def _own_folders(self) -> tuple[Path, ...]:
        """Folders that are empty at every new start of the program."""
        kubelet = self._kubelet
        return (kubelet.device_plugins, kubelet.registry, kubelet.root / "plugins", *self._folders)

    async def _registered_again(self) -> bool:
        """Whether all that is known is registered, or is so in time."""
        return await self._kubelet.until(lambda: self._known <= self._kubelet.current().keys(), self.pace.patience)

    async def _settle(self) -> None:
        """Wait until nothing more registers; what has done so counts from now on."""
        while await self._kubelet.until(lambda: not self._known >= self._kubelet.current().keys(), self.pace.quiet):
            self._known |= self._kubelet.current().keys()

    def _why_not(self) -> str:
        """Say why no registration is usable, as far as the kubelet saw it."""
        problems = [each.problem or each.pending_problem or each.stream_problem for each in self._kubelet.registrations]
        problems += [
            f"{self._kubelet.as_known(path)}: {known.problem}"
            for path, known in self._kubelet.sockets.items()
            if known.problem
        ]
        found = "; ".join(dict.fromkeys(problem for problem in problems if problem))
        if found:
            return found
        if self._kubelet.registrations:
            return f"it registered, but sent no list within {self.pace.patience:g} s"
        silent = f"within {self.pace.patience:g} s it put no socket into plugins_registry"
        return silent if self.name == "driver" else f"{silent} and did not call Register on kubelet.sock"


def _advice(ended: str) -> str:
    """What to do about a folder that a DaemonSet makes and nobody has made here; empty if none is missing."""
    missing = re.search(rf"({BUILT_IN}/plugins/[^/\s]+)/\S*: .*no such file or directory", ended, re.IGNORECASE)
    if missing is None:
        return ""
    return (
        "; if a DaemonSet makes its folder (a hostPath of type DirectoryOrCreate), let the command make it: "
        f"sh -c 'mkdir -p {missing[1]}; exec COMMAND'"
    )


def _sockets(kubelet: ObservingKubelet) -> list[Path]:
    """The program's sockets in the kubelet's folders, hidden ones too."""
    folders = (kubelet.device_plugins, kubelet.registry, kubelet.root / "plugins")
    found = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_socket()]
    return [path for path in found if path.name != "kubelet.sock"]
