"""The commands of ``ostler kubelet`` by name, as they are typed at its prompt and stand in its scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from node.kubelet.checkpoint import FILE_NAME, decode
from node.kubelet.gojson import KubeletStateError
from node.opening import KUBELET_STATE, read_regular
from sandbox.cluster.cluster import PodOutcome, SandboxCluster
from sandbox.cluster.explaining import explained
from sandbox.cluster.views import claim_view, slice_lines, slice_view
from sandbox.kubelet.events import KubeletEvent
from sandbox.kubelet.plugin_process import PluginExit
from sandbox.standalone.node import StandaloneNode
from sandbox.standalone.pods import FAILURES, Key, ManifestUnusable, PodRefused, documents_of, name_of
from sandbox.standalone.settings import StandaloneError
from sandbox.standalone.views import (
    Answer,
    Json,
    checkpoint_document,
    checkpoint_lines,
    held,
    pod_document,
    pod_lines,
    resource_document,
    resource_lines,
    table,
)
from sandbox.standalone.words import HELP, UsageError, usage

WAIT_SECONDS: Final = 30.0
"""How long ``wait`` waits, unless it says otherwise."""

_REFUSED_AGAIN: Final = (
    "a kubelet admits its pods again before plugins are back; a container that still runs keeps its devices, an init "
    "container that has ended makes it refuse the pod"
)


class EventViewer:
    """Shows the events of ``watch``, and ends it early."""

    async def interrupted(self) -> None:
        """Return when the person at the terminal ends it; a script has nobody, so this never returns."""
        await asyncio.Event().wait()

    def show(self, event: KubeletEvent) -> None:
        """Show an event."""


class Commands:
    """Runs commands. Every method gets a command's words, and names what failed in its answer."""

    def __init__(self, node: StandaloneNode, watching: EventViewer) -> None:
        self._node = node
        self._watching = watching
        self.by_name: Mapping[str, Callable[[Sequence[str]], Awaitable[Answer]]] = {
            "admit": self._admit,
            "delete": self._delete,
            "retry": self._retry,
            "pods": self._pods,
            "resources": self._resources,
            "plugins": self._plugins,
            "checkpoint": self._checkpoint,
            "wait": self._wait,
            "restart": self._restart,
            "kill": self._kill,
            "watch": self._watch,
            "log": self._log,
            "explain": self._explain,
            "claims": self._claims,
            "slices": self._slices,
            "help": self._help,
        }

    async def run(self, words: Sequence[str]) -> Answer:
        """The answer to a command; one that fails has a problem."""
        self._node.faults()
        command = self.by_name.get(words[0])
        if command is None:
            return Answer(problem=f"no command {words[0]!r}; 'help' lists them", is_mistyped=True)
        try:
            answer = await command(words[1:])
        except UsageError:
            return Answer(problem=f"usage: {usage(words[0])}", is_mistyped=True)
        except ManifestUnusable as error:
            return Answer(problem=str(error), is_mistyped=True)
        except (*FAILURES, StandaloneError) as error:
            answer = Answer(problem=str(error))
        faults = self._node.faults()
        if answer.problem and faults:
            answer.document["calls"] = faults
            return Answer(answer.document, (*answer.lines, *faults), answer.problem)
        return answer

    # Pods.

    async def _admit(self, words: Sequence[str]) -> Answer:
        if not words:
            raise UsageError
        self._must_be_up()
        objects = [each for word in words for each in documents_of(Path(word))]
        documents: list[Json] = []
        lines: list[str] = []
        problems: list[str] = []
        created = []
        for document in objects:
            try:
                outcome = await self._node.pods.admit(document)
            except FAILURES as error:
                problems.append(str(error))
                continue
            if outcome is None:
                created.append(f"{document['kind']} {document['metadata'].get('name', '')}")
                lines.append(f"{created[-1]} created")
                continue
            self._add(outcome, documents, lines, problems)
        for key, reason in (await self._node.pods.evict()).items():
            lines.append(f"pod {name_of(key)} is evicted: {reason}")
        shown: Json = {"pods": documents}
        if created:
            shown["created"] = created
        return Answer(shown, lines, "; ".join(problems))

    async def _retry(self, words: Sequence[str]) -> Answer:
        (name,) = _exactly(words, 1)
        self._must_be_up()
        documents: list[Json] = []
        lines: list[str] = []
        problems: list[str] = []
        self._add(await self._node.pods.retry(name), documents, lines, problems)
        return Answer({"pods": documents}, lines, "; ".join(problems))

    def _add(self, outcome: PodOutcome, documents: list[Json], lines: list[str], problems: list[str]) -> None:
        """Add a pod to an answer, with a problem unless it runs and has all that it asks for."""
        key = outcome.namespace, outcome.pod
        document = self._document(key)
        missing = self._node.pods.missing(key)
        documents.append(document)
        lines += pod_lines(document)
        if outcome.phase != "Running":
            hint = f" ('explain {name_of(key)}' says why)" if self._waits_for_claims(outcome) else ""
            problems.append(f"pod {name_of(key)} is {outcome.phase}: {outcome.reason or outcome.message}{hint}")
        if missing:
            known = ", ".join(self._node.kubelet.resources()) or "none"
            problems.append(
                f"pod {name_of(key)} did not get {', '.join(missing)}: the kubelet knows no such resource and admits a "
                f"pod without it; resources: {known} ('wait RESOURCE COUNT' waits for a plugin)"
            )
            document["missing"] = list(missing)

    def _waits_for_claims(self, outcome: PodOutcome) -> bool:
        return self._node.cluster is not None and outcome.phase == "Pending" and not outcome.claims

    async def _delete(self, words: Sequence[str]) -> Answer:
        if not words:
            raise UsageError
        self._must_be_up()
        gone = [name_of(await self._node.pods.delete(word)) for word in words]
        return Answer({"deleted": gone}, [f"{name} is deleted" for name in gone])

    async def _pods(self, words: Sequence[str]) -> Answer:
        if len(words) > 1:
            raise UsageError
        keys = [self._node.pods.find(words[0])] if words else list(self._node.pods.outcomes)
        documents = [self._document(key) for key in keys]
        if words:
            return Answer({"pods": documents}, pod_lines(documents[0]))
        rows = [
            (name_of(key), document["phase"], "; ".join(held(document)) or document.get("reason", "") or "-")
            for key, document in zip(keys, documents, strict=True)
        ]
        return Answer({"pods": documents}, table(("POD", "PHASE", "DEVICES"), rows) if rows else ["no pod"])

    def _document(self, key: Key) -> Json:
        kubelet, pod = self._node.kubelet, self._node.pods.pod(key)
        numa = {}
        if pod is not None and self._node.is_up:
            numa = {each.name: kubelet.allocated(pod.uid, each.name) for each in pod.containers}
        return pod_document(key, self._node.pods.outcomes[key], pod, numa)

    # The kubelet's view.

    async def _resources(self, words: Sequence[str]) -> Answer:
        if len(words) > 1:
            raise UsageError
        self._must_be_up()
        kubelet = self._node.kubelet
        capacity = kubelet.capacity()
        holders: dict[str, dict[str, str]] = {}
        for pod in kubelet.pods():
            for container in pod.containers:
                for resource, ids in kubelet.allocated(pod.uid, container.name).items():
                    for id_ in ids:
                        who = holders.setdefault(resource, {})
                        name = f"{name_of((pod.namespace, pod.name))}/{container.name}"
                        # An init container's devices go on to the containers after it.
                        who[id_] = f"{who[id_]}, {container.name}" if id_ in who else name
        names = kubelet.resources()
        if words and words[0] not in names:
            raise PodRefused(f"the kubelet knows no resource {words[0]!r}; resources: {', '.join(names) or 'none'}")
        found = [
            resource_document(
                name, capacity.capacity, capacity.allocatable, kubelet.devices(name), holders.get(name, {})
            )
            for name in (words or names)
        ]
        lines = resource_lines(found, None) if words else resource_lines(found)
        return Answer({"resources": found}, lines if found else ["no resource; no plugin has registered"])

    async def _plugins(self, words: Sequence[str]) -> Answer:
        _exactly(words, 0)
        registered = [
            {"name": name, "socket": socket, "door": "Register" if door == "register" else "plugins_registry"}
            for name, sockets in sorted(self._node.registrations.connected.items())
            for socket, door in sockets.items()
        ]
        rows = [(each["name"], each["door"], each["socket"]) for each in registered]
        lines = table(("REGISTERED", "BY", "SOCKET"), rows) if rows else ["nothing is registered"]
        document: Json = {"registered": registered}
        plugin = self._node.plugin
        if plugin is not None:
            document["process"] = {"pid": plugin.pid, "running": plugin.running}
            if not plugin.running:
                document["process"]["exit"] = str(plugin.exit)
            lines.append(f"{plugin}: " + (f"process {plugin.pid}" if plugin.running else str(plugin.exit)))
        if not self._node.is_up:
            lines.append("the kubelet is not running; 'restart' starts it")
        return Answer(document, lines)

    async def _checkpoint(self, words: Sequence[str]) -> Answer:
        _exactly(words, 0)
        path = self._node.folder / "device-plugins" / FILE_NAME
        try:
            checkpoint = decode(read_regular(path, KUBELET_STATE))
        except FileNotFoundError:
            return Answer({"checkpoint": None}, [f"{path}: no checkpoint yet; the kubelet writes it at the first list"])
        except (KubeletStateError, OSError) as error:
            return Answer({"checkpoint": str(path)}, problem=f"{path} is damaged: {error}")
        pods = {pod.uid: name_of((pod.namespace, pod.name)) for pod in self._node.kubelet.pods()}
        document = checkpoint_document(str(path), checkpoint, pods)
        return Answer(document, checkpoint_lines(document))

    async def _wait(self, words: Sequence[str]) -> Answer:
        if len(words) not in (2, 3):
            raise UsageError
        resource, count = words[0], _number(words[1])
        seconds = _number(words[2], float) if len(words) == 3 else WAIT_SECONDS
        self._must_be_up()
        kubelet = self._node.kubelet
        try:
            await self._node.registrations.until(lambda: kubelet.allocatable().get(resource) == count, seconds)
        except TimeoutError:
            has = kubelet.allocatable().get(resource)
            found = f"has {has} healthy devices" if has is not None else "is not registered"
            known = ", ".join(kubelet.resources()) or "none"
            raise StandaloneError(f"{resource} {found} after {seconds:g} s, not {count}; resources: {known}") from None
        return Answer({"resource": resource, "healthy": count}, [f"{resource} has {count} healthy devices"])

    # Ends and restarts.

    async def _restart(self, words: Sequence[str]) -> Answer:
        if _target(words) == "plugin":
            earlier = self._node.registrations.counts()
            ended = await self._node.end_plugin()
            await self._node.start_plugin()
            if not self._node.is_up:
                return Answer({"restarted": "plugin"}, [_restarted("the plugin", ended), "the kubelet is not running"])
            names = await self._node.registered(earlier)
            lines = [_restarted("the plugin", ended), f"registered: {', '.join(names)}"]
            return Answer({"restarted": "plugin", "registered": names}, lines)
        refused = await self._node.restart_kubelet()
        names = self._node.registrations.names()
        documents = [self._document((outcome.namespace, outcome.pod)) for outcome in refused]
        lines = ["the kubelet is restarted", f"registered: {', '.join(names) or 'nothing'}"]
        lines += [line for document in documents for line in pod_lines(document)]
        if refused:
            lines.append(_REFUSED_AGAIN)
        problems = [f"pod {outcome.pod}: {outcome.reason}: {outcome.message}" for outcome in refused]
        problem = f"the restarted kubelet refused {'; '.join(problems)}" if problems else ""
        return Answer({"restarted": "kubelet", "registered": names, "refused": documents}, lines, problem)

    async def _kill(self, words: Sequence[str]) -> Answer:
        if _target(words) == "plugin":
            ended = await self._node.end_plugin(kill=True)
            return Answer({"killed": "plugin"}, [f"the plugin {ended}; 'restart plugin' starts it again"])
        self._must_be_up()
        await self._node.kill_kubelet()
        return Answer({"killed": "kubelet"}, ["the kubelet has ended; 'restart' starts it on the same checkpoint"])

    async def _watch(self, words: Sequence[str]) -> Answer:
        if len(words) > 1:
            raise UsageError
        self._node.events.watched_by(self._watching.show)
        try:
            # Nobody is asked for Enter meanwhile: a line that is being read cannot be given back.
            await (asyncio.sleep(_number(words[0], float)) if words else self._watching.interrupted())
        finally:
            self._node.events.watched_by(None)
        return Answer()

    async def _log(self, words: Sequence[str]) -> Answer:
        if len(words) > 1:
            raise UsageError
        plugin = self._node.plugin
        if plugin is None:
            raise StandaloneError("no plugin was started here, so there is no log of it")
        count = _number(words[0]) if words else 20
        lines = list(plugin.last_lines[-count:] if count else ())
        return Answer({"log": lines}, lines or ["the plugin has written nothing"])

    # The stand-in of the API server.

    async def _explain(self, words: Sequence[str]) -> Answer:
        (name,) = _exactly(words, 1)
        self._cluster()
        namespace, pod = self._node.pods.find(name)
        lines = (await explained(self._node.folder / "kubeconfig", pod, namespace)).splitlines()
        return Answer({"explained": lines}, lines)

    async def _claims(self, words: Sequence[str]) -> Answer:
        _exactly(words, 0)
        found = [claim_view(each) for each in await self._cluster().claims()]
        rows = [(each["claim"], ", ".join(each["devices"]) or "-", ", ".join(each["reservedFor"])) for each in found]
        return Answer({"claims": found}, table(("CLAIM", "DEVICES", "POD"), rows) if rows else ["no claim"])

    async def _slices(self, words: Sequence[str]) -> Answer:
        _exactly(words, 0)
        views = [slice_view(each) for each in await self._cluster().slices()]
        return Answer({"slices": views}, list(slice_lines(views)) or ["no driver publishes a slice"])

    def _cluster(self) -> SandboxCluster:
        if self._node.cluster is None:
            raise StandaloneError("there is no API server; start 'ostler kubelet --with-apiserver'")
        return self._node.cluster

    async def _help(self, words: Sequence[str]) -> Answer:
        return Answer({"help": HELP.splitlines()}, HELP.splitlines())

    def _must_be_up(self) -> None:
        if not self._node.is_up:
            raise StandaloneError("the kubelet is not running; 'restart' starts it")


def _target(words: Sequence[str]) -> str:
    if len(words) > 1 or (words and words[0] not in ("kubelet", "plugin")):
        raise UsageError
    return words[0] if words else "kubelet"


def _restarted(what: str, ended: PluginExit | None) -> str:
    return f"{what} is restarted; before, it {ended}" if ended is not None else f"{what} is started"


def _exactly(words: Sequence[str], count: int) -> Sequence[str]:
    if len(words) != count:
        raise UsageError
    return words


def _number(word: str, kind: Callable[[str], float] = int) -> int:
    """A number that is not negative, of type ``kind``; raises ``UsageError``."""
    try:
        number = kind(word)
    except ValueError:
        raise UsageError from None
    if not 0 <= number < 1e9:
        raise UsageError
    return number  # type: ignore[return-value]
