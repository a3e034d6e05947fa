"""One node in one cluster: the outside, our process on it, and what has to be true of both at every moment."""

from __future__ import annotations

import math
from pathlib import Path

from node.ledger.holds import HoldState
from node.ledger.processes import Process
from node.offer import Cause
from node.rules import Door, Doors, Rule, rule_for
from tests.making.virtual_time import VirtualLoop
from tests.model import hardware
from tests.model.agent import ModelAgent
from tests.model.cluster import Lags, ModelCluster
from tests.model.kubelet import ModelKubelet
from tests.model.objects import ModelPod
from tests.model.slices import effects
from tests.model.truth import Holder, conflicts, holders, overfull

TOLD = 30.0
"""Seconds after which our process must not believe in a pod that has ended."""
LOOKED = 1.0
"""Seconds from news of pods to the look at the kubelet that follows, which takes its own time."""


class ModelWorld:
    """``broken``: what was seen that may not be, with the time."""

    def __init__(self, root: Path, doors: tuple[Doors, ...], *, shared: bool = False) -> None:
        self.root = root
        self.shared = shared
        """Whether the whole GPUs are shared."""
        (root / "state").mkdir()
        self.loop = VirtualLoop()
        self.lags = Lags()
        self.doors = doors
        self.broken: list[str] = []
        self.processes = hardware.ModelProcesses()
        self.released: set[str] = set()
        """Devices that a person has given back although a process is left on them."""
        self.at_rest = False
        """Whether nothing goes wrong any more."""
        self.leave_behind = False
        """Whether the next GPUs that are given back have a process left on them."""
        self.cluster = ModelCluster(self.loop, self.lags)
        self.kubelet = self.loop.run(self._kubelet())
        self.cluster.changed = self._pod_changed
        self.agent: ModelAgent | None = None
        self._had: dict[str, set[str]] = {}
        self._plugin_had: dict[str, float] = {}
        """When a live pod had a device through the plugin door last; infinite: it has."""
        self._plugin_has: set[str] = set()
        self._sent = 0.0
        self._caught_up = 0.0
        """When our process has looked at the kubelet after it heard from the API server again."""
        self._ever_at_plugin: frozenset[str] = frozenset()
        """Devices that had the plugin door by any rule that the process of now has seen."""
        self.excused: set[str] = set()
        """Pods of which it is known that they share hardware; see ``_excused``."""

    async def _kubelet(self) -> ModelKubelet:
        return ModelKubelet(self.loop, self.cluster, self.root / "kubelet", self.tick)

    # Our process

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules as people want them."""
        return hardware.rules_with(self.doors, self.shared)

    def start_agent(self) -> None:
        if self.agent is None:
            self.loop.run(self._start_agent())

    async def _start_agent(self) -> None:
        self._ever_at_plugin = self._at_plugin()
        self.agent = ModelAgent(
            self.loop,
            self.root,
            self.kubelet,
            cluster=self.cluster,
            processes=self.processes,
            rules=self.rules,
            shown=self.shown,
        )
        self.agent.start()
        if self.cluster.up:
            self._send_all()

    def kill_agent(self) -> None:
        if self.agent is not None:
            agent, self.agent = self.agent, None
            agent.die(self.kubelet.tasks)
            self.loop.pass_time(0.0)

    def use(self, doors: tuple[Doors, ...]) -> None:
        """Rules get these doors."""
        self.doors = doors
        self._ever_at_plugin |= self._at_plugin()
        self.loop.run(self._use())

    async def _use(self) -> None:
        if self.agent is not None:
            self.agent.use(self.rules)

    def release(self, device: str) -> None:
        """A person says that the device is free, whatever runs on it."""
        self.loop.run(self._release(device))

    async def _release(self, device: str) -> None:
        if self.agent is not None and self.agent.keeper.release(device):
            self.released.add(device)

    def live(self, pod: ModelPod, seconds: float, *, processes: bool = False) -> None:
        """Its containers end by themselves after so long, or as soon as they have begun."""

        def over() -> None:
            if pod.uid in self.cluster.pods and not self.end(pod, processes=processes):
                self.loop.call_later(2.0, over)

        if seconds < math.inf:
            self.loop.call_later(seconds, over)

    def end(self, pod: ModelPod, *, processes: bool = False) -> bool:
        """Its containers have done what they were for, and may leave a process behind on GPUs."""
        self.leave_behind = processes and not self.at_rest
        ended = pod.alive
        self.kubelet.end(pod)
        self.leave_behind = False
        return ended

    def restart_kubelet(self) -> None:
        self.loop.run(self._restart_kubelet())

    async def _restart_kubelet(self) -> None:
        self.kubelet.restart()

    def api(self, *, up: bool) -> None:
        """Whether our process reaches the API server."""
        back = up and not self.cluster.up
        self.cluster.up = up
        if back:
            self._send_all()
            self._caught_up = self._sent + LOOKED + self.lags.reading

    def _send_all(self) -> None:
        """The list that a watch begins with."""
        pods = [pod for pod in self.cluster.pods.values() if pod.bound]
        self._send(lambda agent: agent.pods_listed(pods))

    def _pod_changed(self, pod: ModelPod, gone: bool) -> None:
        if self.cluster.up:
            self._send(lambda agent: agent.pod_changed(pod, gone))

    def _send(self, tell: object) -> None:
        """News travel a while, and never overtake each other."""
        agent = self.agent
        self._sent = max(self._sent + 1e-6, self.loop.time() + self.lags.watch)

        def arrive() -> None:
            if agent is not None and agent.alive and self.cluster.up:
                tell(agent)  # type: ignore[operator]

        self.loop.call_at(self._sent, arrive)

    # What has to be true

    def tick(self) -> None:
        """Containers have other devices than before."""
        now: dict[str, set[str]] = {}
        for holder in holders(self.cluster, self.kubelet):
            now.setdefault(holder.device, set()).add(holder.who)
            used = holder.device in self.processes.left and holder.device not in self.released
            used = used and not self._is_shared(holder)
            if used and holder.claim and holder.who not in self._had.get(holder.device, ()):
                self.wrong(f"{holder.who} was given {holder.device}, on which a process is left")
        for device in self._had.keys() - now.keys():
            if self._is_at_both(device):
                self.released.discard(device)
            if self.leave_behind and device.startswith(("gpu", "mig")):
                self.processes.left[device] = Process(4711, "python3")
        self._had = now
        have = {hardware.name_of(id_) for pod in self.cluster.pods.values() if pod.admitted for _, id_ in pod.devices}
        for device in self._plugin_has - have:
            self._plugin_had[device] = self.loop.time()
        self._plugin_had |= dict.fromkeys(have, math.inf)
        self._plugin_has = have
        for device, those in overfull(self.cluster, self.kubelet):
            self.wrong(f"{', '.join(those)} have more of {device} than there is")
        for one, other in conflicts(self.cluster, self.kubelet):
            if not self._excused(one, other):
                self.wrong(f"{one.device} has {one.who}, {other.device} has {other.who}")

    def _is_shared(self, holder: Holder) -> bool:
        """Others use the device, too, or did so as far as our process knows: a process on it may be theirs."""
        if not holder.share or self._had.get(holder.device):
            return bool(holder.share)
        return self.agent is not None and any(
            hold.device == holder.device
            and hold.share
            and hold.state is not HoldState.PENDING_RELEASE
            and not hold.holder.endswith(f"/{holder.who}")
            for hold in self.agent.books.ledger.all
        )

    def _is_at_both(self, device: str) -> bool:
        """What claims alone get is looked at at the start and after a move, and not each time that it is given back."""
        rule = rule_for(hardware.BY_NAME[device], self.rules)
        return rule is not None and rule.door is Doors.BOTH

    def _excused(self, one: Holder, other: Holder) -> bool:
        """What ``docs/holds.md`` says of what is not known, among pods of the plugin door.

        A pod that was deleted by force, and whose UID no process could read while it was there. And a whole and its
        part, one of them allocated before a rule took it from that door: a process that begins after that, and cannot
        read the kubelet, has never seen that rule; and not knowing must not restrict that door where only the other one
        gives what overlaps.
        """
        if one.claim or other.claim:
            return False
        if any(
            each.name in (one.who, other.who)
            for uid, each in self.kubelet.lingering.items()
            if self.kubelet.devices.is_unidentified(uid)
        ):
            self.excused |= {one.who, other.who}
        if one.device == other.device:
            return {one.who, other.who} <= self.excused
        unknown = self.agent is None or not self.agent.keeper.known
        if unknown and not self._ever_at_plugin.issuperset((one.device, other.device)):
            self.excused |= {one.who, other.who}
        return {one.who, other.who} <= self.excused

    def shown(self, agent: ModelAgent) -> None:
        """Our process has decided anew what both doors show."""
        pods = [pod for pod in self.cluster.pods.values() if pod.admitted and pod.name not in self.excused]
        held = {(resource, id_) for pod in pods for resource, id_ in pod.devices}
        for resource in agent.offer.resources:
            for item in resource.devices:
                if item.cause is Cause.HOLDS_UNKNOWN:
                    self.wrong(f"{item.device.name} is withheld from the plugin door for not knowing")
                if (resource.resource, item.id) in held and not item.healthy:
                    self.wrong(f"{item.device.name}, which a pod has, is shown unhealthy: {item.reason}")
        self._look_at_evictions(agent)
        self._look_at_processes(agent)
        self._look_at_states(agent)

    def _look_at_evictions(self, agent: ModelAgent) -> None:
        if not self.cluster.up or self.loop.time() < self._caught_up:
            return  # What is decided reaches nobody, and nothing tells which pods have ended, or has just told.
        for each in agent.view.devices:
            name = each.device.name
            if not any(effect == "NoExecute" for effect in effects(each)):
                continue
            if not self._has_plugin_pod(name):
                self.wrong(f"{name} evicts, though no pod has it through the plugin door")

    def _has_plugin_pod(self, device: str) -> bool:
        """Or had it as lately as our process can have been told, were it only for an admission that failed."""
        lately = self.loop.time() - TOLD
        told = {hardware.name_of(id_): when for id_, when in self.kubelet.devices.told.items()}
        had = {name for times in (told, self._plugin_had) for name, when in times.items() if when >= lately}
        return any(hardware.overlap(name, device) for name in had)

    def _look_at_processes(self, agent: ModelAgent) -> None:
        """A device with a left-over process is offered nowhere, once our process can know that its holder has ended."""
        for name in self.processes.left.keys() - self.released:
            rule = rule_for(hardware.BY_NAME[name], agent.rules)
            if rule is None or rule.door is not Doors.BOTH:
                continue
            held = [
                hold
                for hold in agent.books.ledger.all
                if hold.device == name and hold.state is not HoldState.PENDING_RELEASE
            ]
            if held:
                continue
            shown = agent.view.device(name)
            if shown is not None and shown.healthy:
                self.wrong(f"{name}, on which a process is left, is offered to claims")

    def _look_at_states(self, agent: ModelAgent) -> None:
        """Every device went through its table, and the ledger says the same of it as its state."""
        agent.states.compare()
        for problem in agent.states.problems:
            self.wrong(problem)
        agent.states.problems.clear()

    def wrong(self, what: str) -> None:
        line = f"{self.loop.time():.3f}: {what}"
        self.broken.append(line)

    # The end

    def settle(self) -> list[str]:
        """Let everything come to rest, with nothing out of order; what is not as it should be then."""
        self.api(up=True)
        self.kubelet.faults.__init__()  # type: ignore[misc]
        self.kubelet.refuse_admissions = 0
        self.processes.left.clear()
        self.processes.silent = False
        self.at_rest = True
        for name, field in Lags.__dataclass_fields__.items():
            setattr(self.lags, name, field.default)
        self.start_agent()
        self.loop.pass_time(90.0)
        failures = self.cluster.failures
        self.loop.pass_time(30.0)
        return [*self._not_offered(), *self._not_ended(), *self._still_failing(failures)]

    def _not_offered(self) -> list[str]:
        agent = self.agent
        assert agent is not None
        used = {holder.device for holder in holders(self.cluster, self.kubelet)}
        used |= {each.device for claim in self.cluster.claims.values() if not claim.admin for each in claim.allocation}
        at_plugin = {item.device.name: item for resource in agent.offer.resources for item in resource.devices}
        wrong = []
        for device in hardware.DEVICES:
            name = device.name
            if any(hardware.overlap(name, other) for other in used):
                continue
            rule = rule_for(device, agent.rules)
            assert rule is not None
            if rule.door.has(Door.PLUGIN):
                item = at_plugin.get(name)
                if item is None or not item.healthy:
                    wrong.append(f"{name} is free and not given by the plugin door: {item.reason if item else '-'}")
            in_slice = dict(self.cluster.slice.devices).get(name)
            if rule.door.has(Door.DRA) and device not in hardware.DIVIDED and in_slice != ():
                shown = agent.view.device(name)
                wrong.append(f"{name} is free and not given to claims: {shown.reason if shown else '-'} ({in_slice})")
        for resource in agent.offer.resources:
            wrong += [
                f"{item.device.name} is {item.cause} at the plugin door: {item.reason}"
                for item in resource.devices
                if item.cause is Cause.HOLDS_UNKNOWN or (item.cause is Cause.MOVING and item.device.name not in used)
            ]
        return wrong

    def _not_ended(self) -> list[str]:
        return [
            f"{pod} is bound and never began ({pod.phase}, deleted: {pod.deleted}, {self._waits(pod)})"
            for pod in self.cluster.pods.values()
            if pod.bound and not pod.alive and not self._may_wait(pod)
        ]

    def _may_wait(self, pod: ModelPod) -> bool:
        """Nothing in a slice says that a function is part of a port, so claims can be allocated both; one waits.

        And a claim that lost its share of a device to pods is not evicted where other claims share that device.
        """
        wanted = {each.device for name in pod.claims for each in self.cluster.claims[name].allocation}
        return any(
            holder.claim
            and (holder.device != name or (self.shared and holder.share and holder.who not in pod.claims))
            and hardware.overlap(holder.device, name)
            for holder in holders(self.cluster, self.kubelet)
            for name in wanted
        )

    def _at_plugin(self) -> frozenset[str]:
        return frozenset(device.name for device in hardware.DEVICES if self._is_at(device.name, Door.PLUGIN))

    def _is_at(self, name: str, door: Door) -> bool:
        rule = rule_for(hardware.BY_NAME[name], self.rules)
        return rule is not None and rule.door.has(door)

    def _waits(self, pod: ModelPod) -> str:
        agent = self.agent
        assert agent is not None
        words = []
        for name in pod.claims:
            claim = self.cluster.claims.get(name)
            if claim is not None:
                for each in claim.allocation:
                    by = [
                        hold.words + f" [{hold.state}]"
                        for hold in agent.books.ledger.all
                        if hardware.overlap(hold.device, each.device)
                    ]
                    words.append(f"{name} has {each.device}: {by}")
        return "; ".join(words)

    def _still_failing(self, failures: int) -> list[str]:
        refused = self.cluster.failures - failures
        return [f"{refused} pods were refused when all was settled: {self.kubelet.admissions[-1]}"] if refused else []

    def close(self) -> None:
        self.loop.discard()
