"""``python -m bench.cluster.soak``: a thousand short pods with devices while agent and kubelet die again and again.

First both may die at any moment. Then the agent lives on, so that its growth can be seen, while the kubelet goes on
dying. At the end the kubelet, the Node object and the agent must say the same, and nothing may be left: no socket, no
file, no memory. What is wrong is told and is the exit code: unlike a slow figure, a leak is a defect.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc

from bench.cluster.stage import DEVICES, OURS, BenchStage, stage
from bench.results import say
from tests.cluster.__main__ import FAULTS
from tests.cluster.rig.agent import wait_allocatable
from tests.cluster.rig.api import Object
from tests.cluster.rig.podresources import allocatable_ids, listed
from tests.cluster.rig.pods import PODS, RigPods, phase, simple
from tests.cluster.rig.processes import PATIENCE, wait_until

PODS_IN_ALL = 1000
AT_ONCE = 8
STEADY = 0.4
"""Share of the pods during which the agent is left alone."""
GROWTH = 2_000_000
"""Bytes that the agent may grow over the steady part."""
IDLE_CONNECTIONS = 2
"""Connections to the API server that the agent's client keeps for its next requests: there may be none at first."""
CONNECTIONS = "connections to the API server"
MAY_GROW = {"bytes": GROWTH, CONNECTIONS: IDLE_CONNECTIONS}
CALM = 25
"""Pods between two blows, at most."""
SOCKETS = {"kubelet/plugins_registry": 2, "kubelet/plugins": 1}
"""Folders and how many sockets belong there: each door registers by one, and claims are served on one of their own."""
LISTENS = "0A"
SHORT = "true"
LOOK_AGAIN = 0.5
"""Seconds until what is wrong is looked at once more: a look at hardware has files open, for a moment."""
ENDS_WITHIN = 300.0
"""Seconds that a pod may take: while it starts, agent and kubelet may be killed and started."""
ADMISSION = "UnexpectedAdmissionError"
"""How the kubelet refuses a pod whose plugin died while it was asked; its controller makes a new one."""


class Soak:
    """One run on a stage; ``faults`` is what went wrong."""

    def __init__(self, made: BenchStage, chance: random.Random) -> None:
        self._stage = made
        self._pods = RigPods(made.cluster.api)
        self._chance = chance
        self.ends: Counter[str] = Counter()
        self.blows: Counter[str] = Counter()
        self.faults: list[str] = []
        self._last: dict[str, float] = {}
        """The account that was judged last."""
        self._open: Counter[str] = Counter()
        """The open files of the account that was taken last."""

    def run(self, count: int) -> None:
        """``count`` pods, then the accounts."""
        steady = int(count * STEADY)
        self._send(count - steady, ("agent", "agent", "kubelet"))
        self._all_there()
        # The next ones load what is loaded late; growth is counted from then on.
        self._send(4 * AT_ONCE, ())
        before, opened = self._account(), self._open
        self._send(steady, ("kubelet",))
        self._all_there()
        self.faults += (grown := self._lasting(lambda: self._grown(before)))
        if grown:
            self.faults += [f"open since: {count} {name}" for name, count in sorted((self._open - opened).items())]
        for name, number in self._last.items():
            print(f"{name}: {before[name]:g} before, {number:g} after")

    def _send(self, count: int, targets: tuple[str, ...]) -> None:
        """Pods in small groups, with a blow to one of ``targets`` every now and then."""
        until_blow = self._chance.randrange(1, CALM)
        for first in range(0, count, AT_ONCE):
            group = range(min(AT_ONCE, count - first))
            names = [self._pods.create(self._manifest(sum(self.ends.values()) + index)) for index in group]
            until_blow -= len(names)
            if targets and until_blow <= 0:
                self._strike(self._chance.choice(targets))
                until_blow = self._chance.randrange(1, CALM)
            self._nothing_twice()
            for name in names:
                self._take_back(name)
            say(f"{sum(self.ends.values())} pods, {sum(self.blows.values())} blows")

    def _manifest(self, number: int) -> Object:
        return simple(f"soak-{number}", SHORT, {OURS: self._chance.choice((1, 1, 2, 4))})

    def _strike(self, target: str) -> None:
        number = self._chance.choice((signal.SIGTERM, signal.SIGKILL))
        self.blows[f"{target} {number.name}"] += 1
        if target == "agent":
            self._stage.agent.stop(number)
            self._stage.agent.spawn()
        else:
            self._stage.node.stop_kubelet(number)
            self._stage.node.start_kubelet()

    def _take_back(self, name: str) -> None:
        found = self._pods.wait(name, "has ended", lambda one: phase(one) in {"Succeeded", "Failed"}, ENDS_WITHIN)
        end = phase(found)
        reason = found["status"].get("reason", "")
        self.ends[f"{end} {reason}".strip()] += 1
        if end == "Failed" and reason != ADMISSION:
            self.faults.append(f"{name} failed: {found['status']}")
        self._pods.delete(name)

    def _nothing_twice(self) -> None:
        """No device is in two pods; while the kubelet starts nobody answers, and nobody is asked."""
        try:
            holders = [id_ for entries in listed(self._stage.node).values() for _, id_ in entries]
        except grpc.RpcError:
            return
        twice = sorted(id_ for id_, count in Counter(holders).items() if count > 1)
        if twice:
            self.faults.append(f"given to two pods at once: {twice}")

    def _all_there(self) -> None:
        """Everybody agrees: the Node, the kubelet's podresources, the agent."""
        node, agent = self._stage.node, self._stage.agent
        node.wait_ready(self._stage.cluster.api)
        wait_allocatable(self._stage.cluster.api, node, OURS, DEVICES)
        wait_until("the agent is ready", agent.ready)
        wait_until("the kubelet has cleaned up", lambda: not self._pods.on_disk(node))
        self.faults += self._lasting(self._disagreement)

    def _disagreement(self) -> list[str]:
        """What agent, kubelet and API server say otherwise than they should, now."""
        node = self._stage.node
        wrong = []
        known, shown = allocatable_ids(node, OURS), sorted(self._stage.agent.offered(OURS))
        if known != shown:
            wrong.append(f"the kubelet knows {known}, the agent offers {shown}")
        if held := {key: entries for key, entries in listed(node).items() if entries}:
            wrong.append(f"held after every pod is gone: {held}")
        if left := self._stage.cluster.api.items(PODS):
            wrong.append(f"{len(left)} pods are left")
        return wrong

    def _lasting(self, look: Callable[[], list[str]]) -> list[str]:
        """What is wrong, if it is still wrong after a while."""
        began = time.monotonic()
        first = wrong = look()
        while wrong and time.monotonic() < began + PATIENCE:
            time.sleep(LOOK_AGAIN)
            wrong = look()
        if first and not wrong:
            print(f"gone after {time.monotonic() - began:.1f} s: {'; '.join(first)}")
        return wrong

    def _account(self) -> dict[str, float]:
        """What could leak, as numbers."""
        pid = self._stage.agent.process.pid
        self._open = _open_files(pid)
        connections = sum(count for name, count in self._open.items() if name.startswith(CONNECTIONS))
        numbers: dict[str, float] = {
            "bytes": _resident(pid),
            "open files": self._open.total() - connections,
            CONNECTIONS: connections,
        }
        for folder in ("kubelet/device-plugins", *SOCKETS, "lib-ostler", "run-ostler", "cdi"):
            files = [path for path in (self._stage.node.folder / folder).rglob("*") if not path.is_dir()]
            numbers[folder] = sum(not _is_the_kubelets(path) for path in files)
        return numbers

    def _grown(self, before: dict[str, float]) -> list[str]:
        """What there is more of than it was, and sockets that do not belong there."""
        wrong = []
        after = self._last = self._account()
        for name, number in after.items():
            if number - before[name] > MAY_GROW.get(name, 0):
                wrong.append(f"{name} grew from {before[name]:g} to {number:g}")
        for folder, expected in SOCKETS.items():
            if (sockets := after[folder]) != expected:
                wrong.append(f"{sockets:g} files in {folder}, where {expected} belong")
        return wrong

    def report(self) -> Iterator[str]:
        """What happened, for people."""
        yield f"pods: {', '.join(f'{count} {end}' for end, count in sorted(self.ends.items()))}"
        yield f"blows: {', '.join(f'{count} {blow}' for blow, count in sorted(self.blows.items()))}"
        yield from (f"FAULT: {fault}" for fault in self.faults)


def _is_the_kubelets(path: Path) -> bool:
    """A kubelet that is killed while it writes its checkpoint leaves the half of it: a dot and a number."""
    return re.fullmatch(r"\.[0-9]+|kubelet_internal_checkpoint", path.name) is not None


def _open_files(pid: int) -> Counter[str]:
    """What a process has open, by name; its TCP connections all go to the API server."""
    process = Path(f"/proc/{pid}")
    sockets = dict(_sockets(process / "net"))
    found: Counter[str] = Counter()
    for entry in (process / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            target = str(entry.readlink())
            found[sockets.get(target, target)] += 1
    return found


def _sockets(net: Path) -> Iterator[tuple[str, str]]:
    """The sockets of a network namespace (proc_pid_net(5)): the link of such an open file, and a name for people."""
    for line in (net / "unix").read_text().splitlines()[1:]:
        *_, inode, path = (line + " (dialled)").split()[:8]
        yield f"socket:[{inode}]", f"unix socket {path}"
    for line in (net / "tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *fields = line.split()
        name = f"TCP socket {local}" if state == LISTENS else f"{CONNECTIONS}: {local} to {remote}, state {state}"
        yield f"socket:[{fields[5]}]", name


def _resident(pid: int) -> float:
    fields = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in fields if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.cluster.soak", description=__doc__)
    parser.add_argument("--pods", type=int, default=PODS_IN_ALL, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="of the blows")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    began = time.monotonic()
    try:
        with stage(peer=False) as made:
            soak = Soak(made, random.Random(arguments.seed))
            soak.run(arguments.pods)
            if soak.faults:
                print(f"logs: {made.cluster.keep_logs('soak')}")
    except FAULTS as error:
        print(f"bench.cluster.soak: {error}", file=sys.stderr)
        return 1
    say("")
    print("\n".join(soak.report()))
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if soak.faults else 0


if __name__ == "__main__":
    sys.exit(main())
