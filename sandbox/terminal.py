"""The tour and the prompt on a terminal."""

from __future__ import annotations

import asyncio
import os
import shlex
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import grpc.aio

from protos.agent.v1alpha1 import agent_pb2
from sandbox.claimprompt import HELP as CLAIM_HELP
from sandbox.claimprompt import NO_NETWORK, ClaimCommands
from sandbox.cluster.views import slice_lines
from sandbox.hardware import HardwarePart, NoSuchPart, NotPossible, RecordedHardware
from sandbox.node import SandboxNode
from sandbox.process import AgentCommandFailed, AgentFailed
from sandbox.steps import TourStep, brief, echo, indented, offered
from sandbox.tour import capacity, described

HELP = f"""\
  devices                  what the agent sees
  topology [tree]          how close devices are to each other, as a matrix or a tree
  status                   the state of the agent
  holds [WORDS]            who has which device, and what is withheld (as 'ostler holds': release DEVICE ...)
  health [WORDS]           the health of every device (as 'ostler health': --faults, set DEVICE ..., clear DEVICE ...)
  capacity                 what the kubelet offers
  give RESOURCE COUNT ...  admit a pod that asks for devices; show what its container gets
  end POD                  end a pod, which frees its devices
  pods                     pods that hold devices
{CLAIM_HELP}\
  fail PART                let a GPU fall off the bus or a NIC lose its link (by index, UUID, PCI address or interface)
  unplug PART              take it out of the machine, a NIC with its virtual functions
  take NIC                 let a pod take its interface
  network                  the network namespaces of node, switch and pods, with their interfaces
  heal PART                repair it
  restart-kubelet          restart the embedded kubelet
  kill-agent               kill -9 the agent and start it again
  log                      the end of the agent's log
  help                     these commands
  quit                     end (as does Ctrl-C)
"""


def show(step: TourStep, *, verbose: bool = False) -> None:
    """Tell one step, in brief unless ``verbose``."""
    if not verbose:
        sys.stdout.write("\n".join(brief(step)) + "\n")
        sys.stdout.flush()
        return
    sys.stdout.write(f"\n== {step.title}\n")
    match step.key, step.seen:
        case "devices", list(devices):
            echo(*map(device_line, devices))
            if not devices:
                echo("none")
        case "topology" | "holds" | "shares" | "health", list(lines):
            echo(*lines)
        case "resources", list(resources):
            echo(*map(resource_line, resources))
        case "slices", list(slices):
            echo(*slice_lines(slices))
        case _, seen:
            sys.stdout.write(indented(seen))
    sys.stdout.flush()


def device_line(device: Mapping[str, object]) -> str:
    """One device in one line."""
    health = device.get("health")
    state = health.get("state", "") if isinstance(health, Mapping) else ""
    reason = health.get("reason", "") if isinstance(health, Mapping) else ""
    parts = (
        device.get("name"),
        _what(device),
        state,
        device.get("uuid"),
        f"NUMA {device.get('numa_node', '-')}",
        offered(device),
        reason,
    )
    return "  ".join(str(part) for part in parts if part)


def _what(device: Mapping[str, object]) -> str:
    """Product and profile of a GPU, interface and RDMA device of a NIC."""
    attributes = device.get("attributes")
    facts = {str(each["name"]): each.get("string_value") for each in attributes} if isinstance(attributes, list) else {}
    return " ".join(str(facts[name]) for name in ("productName", "profile", "ifName", "rdmaDevice") if facts.get(name))


def resource_line(resource: Mapping[str, object]) -> str:
    """One resource in one line."""
    return (
        f"{resource.get('name')}: {resource.get('healthy', 0)} of {resource.get('devices', 0)} healthy, "
        f"{resource.get('registration')} by {resource.get('path')}, socket {resource.get('socket')}"
    )


class Prompt:
    """Reads commands from standard input until ``quit`` or its end."""

    def __init__(self, node: SandboxNode, *, verbose: bool = False) -> None:
        self._node = node
        self._verbose = verbose
        self._pods: dict[str, str] = {}
        self._claims = ClaimCommands(node)
        self._commands: dict[str, Callable[[Sequence[str]], Awaitable[None]]] = {
            **self._claims.commands,
            "devices": self._devices,
            "topology": self._topology,
            "status": self._status,
            "network": self._network,
            **{command: partial(self._ask, command) for command in ("holds", "health")},
            "capacity": self._capacity,
            "give": self._give,
            "end": self._end,
            "pods": self._list_pods,
            "fail": partial(self._change, RecordedHardware.fail),
            "unplug": partial(self._change, RecordedHardware.unplug),
            "take": partial(self._change, RecordedHardware.take),
            "heal": partial(self._change, RecordedHardware.heal),
            "restart-kubelet": self._restart_kubelet,
            "kill-agent": self._kill_agent,
            "log": self._log,
            "help": self._help,
        }

    async def run(self) -> None:
        """Ask, do, ask again."""
        commands = f"\n{HELP}" if self._verbose else " 'help' lists them, 'quit' ends.\n"
        sys.stdout.write(f"\nThe node keeps running in {self._node.root}. Commands:{commands}")
        async with _standard_input() as reader:
            while True:
                sys.stdout.write("ostler> ")
                sys.stdout.flush()
                line = (await reader.readline()).decode(errors="replace")
                if not line or line.strip() == "quit":
                    return
                await self._do(line)

    async def _do(self, line: str) -> None:
        try:
            words = shlex.split(line)
        except ValueError as error:
            echo(error)
            return
        if not words:
            return
        command = self._commands.get(words[0])
        if command is None:
            echo(f"no command {words[0]!r}; 'help' lists them")
            return
        try:
            await command(words[1:])
        except (IndexError, ValueError):
            usage = next(line for line in HELP.splitlines() if line.split()[0] == words[0])
            echo(f"usage: {usage.strip()}")
        except (NoSuchPart, NotPossible, AgentCommandFailed, AgentFailed, TimeoutError) as error:
            echo(error)
        except grpc.aio.AioRpcError as error:
            echo(f"the agent does not answer: {error.details()}; 'kill-agent' starts it again")

    async def _devices(self, words: Sequence[str]) -> None:
        echo(*map(device_line, await self._node.devices()))

    async def _topology(self, words: Sequence[str]) -> None:
        form = words[0] if words else "matrix"
        if form not in ("matrix", "tree"):
            raise ValueError(form)
        echo(*(await self._node.agent.command("topology", "-o", form)).splitlines())

    async def _network(self, words: Sequence[str]) -> None:
        if self._node.network is None:
            echo(self._node.unconnected or NO_NETWORK)
            return
        sys.stdout.write(indented(self._node.network.view()))

    async def _status(self, words: Sequence[str]) -> None:
        status = await self._node.agent.status()
        ready = "; ".join(("ready" if status.ready else "not ready", *status.reasons))
        echo(f"{status.role}, {ready}")
        for item in status.resources:
            line = f"   {item.name}: {item.healthy}/{item.devices} {item.registration} by {item.path} {item.detail}"
            sys.stdout.write(line.rstrip() + "\n")
        for pool in await self._pools():
            devices = [device for device in pool.devices if device.state == "published"]
            free = sum(not device.taints for device in devices)
            echo(f"for claims, pool {pool.name}: {free}/{len(devices)} without a taint")

    async def _ask(self, command: str, words: Sequence[str]) -> None:
        echo(*(await self._node.agent.command(command, *words)).splitlines())
        # What was said there may have changed what is offered, and who may go on.
        await self._node.registered()
        await self._claims.evict()

    async def _pools(self) -> Sequence[agent_pb2.Pool]:
        slices = await self._node.agent.slices()
        return slices.pools if slices is not None else ()

    async def _capacity(self, words: Sequence[str]) -> None:
        sys.stdout.write(indented(capacity(self._node)))

    async def _give(self, words: Sequence[str]) -> None:
        if not words or len(words) % 2:
            raise ValueError(words)
        asked = {resource: int(count) for resource, count in zip(words[::2], words[1::2], strict=True)}
        if min(asked.values()) < 1:
            raise ValueError(words)
        known = self._node.kubelet.capacity().capacity
        unknown = next((resource for resource in asked if resource not in known), None)
        if unknown is not None:
            echo(f"the kubelet has no resource {unknown!r}; it has: {', '.join(sorted(known)) or 'none'}")
            return
        given = await self._node.give_together(asked)
        if given.admission.admitted:
            held = (f"{asked[resource]} {resource}: {', '.join(ids)}" for resource, ids in given.devices.items())
            self._pods[given.pod] = "; ".join(held)
            # The next command must see the effect on the other door.
            await self._node.waits.noticed(given.pod)
            await self._node.registered()
        sys.stdout.write(indented(described(given)))

    async def _end(self, words: Sequence[str]) -> None:
        if words[0] in self._claims.pods:
            await self._claims.end(words[0])
            return
        if self._pods.pop(words[0], None) is None:
            echo(f"there is no pod {words[0]!r}")
            return
        await self._node.over(words[0])

    async def _list_pods(self, words: Sequence[str]) -> None:
        for pod, holds in self._pods.items():
            echo(f"{pod}: {holds}")
        for pod, outcome in self._claims.pods.items():
            given = [f"{claim}: {', '.join(devices)}" for claim, devices in outcome.claims.items()]
            echo(f"{pod}: {'; '.join((outcome.phase, *given))}")

    async def _change(self, happens: Callable[[RecordedHardware, HardwarePart], None], words: Sequence[str]) -> None:
        hardware = self._node.hardware
        if hardware is None:
            echo("the sandbox does not break this machine's own hardware")
            return
        happens(hardware, hardware.find(words[0]))
        echo(*(await self._node.agent.rescan()).changes)
        # The next command must see the kubelet's reaction.
        await self._node.registered()
        await self._claims.evict()

    async def _restart_kubelet(self, words: Sequence[str]) -> None:
        await self._node.kubelet.restart()
        await self._node.registered()
        echo("restarted; every resource is registered again")

    async def _kill_agent(self, words: Sequence[str]) -> None:
        await self._node.restart_agent()
        await self._node.registered()
        echo("killed and started again; every resource is registered again")

    async def _log(self, words: Sequence[str]) -> None:
        echo(*self._node.log.read_text(errors="replace").splitlines()[-20:])

    async def _help(self, words: Sequence[str]) -> None:
        sys.stdout.write(HELP)


@asynccontextmanager
async def _standard_input() -> AsyncIterator[asyncio.StreamReader]:
    reader = asyncio.StreamReader()
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if sys.stdin.isatty() or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        try:
            yield reader
        finally:
            transport.close()
    else:
        # A file or /dev/null cannot be waited on (epoll refuses them), and need not be.
        reader.feed_data(await asyncio.to_thread(sys.stdin.buffer.read))
        reader.feed_eof()
        yield reader
