"""The embedded kubelet beside a real one: the same plugins and pods, one after the other, with the same result.

Pods are made at random, admitted by both, and deleted in both when their devices are needed. What each container gets
is compared, and what a refused pod is told. A set of devices that no plugin chooses may be another one in each.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from sandbox.cluster.manifests import kubelet_pod
from sandbox.kubelet.generations import GENERATIONS, Generation
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pods import Pod
from tests.cluster.components.versions import minor_release
from tests.cluster.door.container import LOOK, STAY, seen
from tests.cluster.rig import runtime
from tests.cluster.rig.agent import wait_allocatable
from tests.cluster.rig.api import Object, RigApi
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.pods import RigPods, container, phase, pod
from tests.cluster.rig.scripted_plugins import CHOSEN, DEVICES, SCRIPTS, VENDOR, ids, resource, serving

LIKELY = ("lowest", "highest", "free", "two")
UNKNOWN = "unknown"
"""Of a resource that no plugin serves: no kubelet allocates anything for it."""


@dataclass(frozen=True, slots=True)
class Got:
    """What one container has of one plugin; the ids as the plugin's variable names them, empty without an answer."""

    ids: tuple[str, ...]
    nodes: frozenset[str]
    mounts: frozenset[str]
    cdi: frozenset[str]
    annotation: str
    second: bool = False


@dataclass
class _Outcome:
    """What became of a pod: what its containers got by container and kind, or why it was refused."""

    got: dict[str, dict[str, Got]] = field(default_factory=dict)
    refusal: tuple[str, str] = ("", "")


@pytest.fixture
def plugins(api: RigApi, node: RigNode) -> Iterator[None]:
    """The plugins on the node, and all that their containers get from the host."""
    device_files = [f"/dev/host-{name}" for kind in SCRIPTS for name in ids(kind)]
    node.make_devices(*device_files)
    node.run("mkdir", "-p", *(f"/opt/host/{kind}" for kind in SCRIPTS))
    specs = [_cdi_spec(kind) for kind in SCRIPTS]
    files = [node.folder / "cdi" / f"scripted-{number}.json" for number, _ in enumerate(specs)]
    for file, spec in zip(files, specs, strict=True):
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(spec))
    process = node.spawn("scripted", sys.executable, "-m", "tests.cluster.rig.scripted_plugins")
    try:
        for kind in SCRIPTS:
            wait_allocatable(api, node, resource(kind), DEVICES)
        yield
    finally:
        process.end(signal.SIGKILL)
        for file in (*files, *(node.kubelet_folder / "plugins_registry").glob("scripted-*.sock")):
            file.unlink(missing_ok=True)


def _cdi_spec(kind: str) -> Object:
    devices = [{"name": name, "containerEdits": {"env": [_cdi_variable(name) + "=1"]}} for name in ids(kind)]
    return {"cdiVersion": "0.6.0", "kind": f"{VENDOR}/{kind}", "devices": devices}


def _cdi_variable(name: str) -> str:
    return f"CDI_{name.replace('-', '_')}"


class RandomPods:
    """Manifests of pods, and which of them run."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._made = 0

    def manifest(self, node: str) -> Object:
        """A pod of an init container, a sidecar and app containers, as it comes; bound to the node."""
        self._made += 1
        early = []
        if self._random.random() < 0.4:
            early.append(container("early", LOOK, self._asks()))
        if self._random.random() < 0.3:
            early.append(container("beside", STAY, self._asks(), restartPolicy="Always"))
        apps = [container(f"main-{number}", STAY, self._asks()) for number in range(self._random.choice((1, 1, 2)))]
        return pod(f"both-{self._made}", *apps, initContainers=early, nodeName=node)

    def _asks(self) -> dict[str, int]:
        kinds = [kind for kind in LIKELY if self._random.random() < 0.35]
        if self._random.random() < 0.15:
            kinds.append(self._random.choice([*(kind for kind in SCRIPTS if kind not in LIKELY), UNKNOWN]))
        return {resource(kind): self._random.choice((1, 1, 2)) for kind in kinds}


class _Pair:
    """Both kubelets."""

    def __init__(self, real: RigPods, node: RigNode, embedded: Kubelet) -> None:
        self._real = real
        self._node = node
        self._embedded = embedded
        self._running: dict[str, Pod] = {}

    async def make_room(self, wanted: Pod) -> None:
        """Delete the oldest pods until a node with these devices takes the pod."""
        while self._running and not self._fits(wanted):
            name = next(iter(self._running))
            self._real.delete(name)
            self._embedded.terminate(self._running.pop(name).uid)

    def _fits(self, wanted: Pod) -> bool:
        total: Counter[str] = Counter()
        for each in (*self._running.values(), wanted):
            total.update(each.effective_limits())
        return all(count <= DEVICES for name, count in total.items() if name != resource(UNKNOWN))

    async def admit(self, manifest: Object) -> tuple[Pod, _Outcome, _Outcome]:
        """Have both admit a pod; what became of it in the real one and in ours."""
        await self.make_room(kubelet_pod({**manifest, "metadata": {**manifest["metadata"], "uid": "to-come"}}))
        name = self._real.create(manifest)
        found = self._real.wait(name, "was judged", lambda one: phase(one) in {"Running", "Failed"})
        made = kubelet_pod(found)
        ours = await self._ours(made)
        status = found["status"]
        if phase(found) == "Failed":
            theirs = _Outcome(refusal=(status["reason"], status["message"].removeprefix("Pod was rejected: ")))
            self._real.delete(name)
        else:
            theirs = self._theirs(made)
            self._running[name] = made
        return made, theirs, ours

    async def _ours(self, made: Pod) -> _Outcome:
        verdict = await self._embedded.admit(made)
        if not verdict.admitted:
            return _Outcome(refusal=(verdict.reason, verdict.message))
        outcome = _Outcome()
        for each in made.in_start_order():
            options = await self._embedded.run_options(made, each.name)
            if options is None:
                outcome.got[each.name] = {}
                continue
            has = Has(
                options.envs,
                {device.container_path for device in options.devices},
                {mount.container_path for mount in options.mounts},
                {name.rpartition("=")[2] for name in options.cdi_devices},
                options.annotations,
            )
            outcome.got[each.name] = _by_kind(each.limits, has)
        return outcome

    def _theirs(self, made: Pod) -> _Outcome:
        told = runtime.told_annotations(self._node)
        outcome = _Outcome()
        for each in made.in_start_order():
            inside = seen(self._real, made.name, each.name)
            injected = {name for kind in SCRIPTS for name in ids(kind) if _cdi_variable(name) in inside.env}
            has = Has(inside.env, inside.devices, inside.mounts, injected, told[made.name, each.name])
            outcome.got[each.name] = _by_kind(each.limits, has)
        return outcome


@dataclass(frozen=True, slots=True)
class Has:
    """All that a container has: variables, paths of device files and mounts, CDI devices, annotations."""

    env: Mapping[str, str]
    nodes: Collection[str]
    mounts: Collection[str]
    cdi: Collection[str]
    annotations: Mapping[str, str]


def _by_kind(limits: Mapping[str, int], has: Has) -> dict[str, Got]:
    """What is of each plugin of all that a container has."""
    return {
        kind: Got(
            tuple(sorted(filter(None, has.env.get(f"IDS_{kind}", "").split(",")))),
            frozenset(path for path in has.nodes if path.startswith(f"/dev/{kind}-")),
            frozenset(path for path in has.mounts if path == f"/opt/{kind}"),
            frozenset(name for name in has.cdi if name.startswith(f"{kind}-")),
            has.annotations.get(f"ids.{kind}", ""),
            "SECOND" in has.env,
        )
        for kind in SCRIPTS
        if resource(kind) in limits
    }


def reuses_some(made: Pod, name: str, wanted: str) -> bool:
    """Whether a container takes some of the devices that an init container had: no plugin is asked which."""
    count = made.container(name).limits[wanted]
    early = [each for each in made.containers if each.kind == "init" and each.limits.get(wanted, 0)]
    others = [each for each in made.containers if each.kind == "sidecar" and each.limits.get(wanted, 0)]
    return any(each.name != name and (each.limits[wanted] > count or others) for each in early)


def same(theirs: _Outcome, ours: _Outcome, made: Pod) -> None:
    """Assert that both are the same, or as the rules allow for devices that nobody chose."""
    assert ours.refusal == theirs.refusal, made
    assert ours.got.keys() == theirs.got.keys(), made
    for name, kinds in theirs.got.items():
        assert ours.got[name].keys() == kinds.keys(), (name, made)
        for kind, real in kinds.items():
            embedded = ours.got[name][kind]
            if kind in CHOSEN and not reuses_some(made, name, resource(kind)):
                assert embedded == real, (name, kind, made)
                continue
            for got in (embedded, real):
                assert set(got.ids) <= set(ids(kind)), (name, kind, made)
                assert got.nodes == {f"/dev/{each}" for each in got.ids}, (name, kind, made)
                assert got.cdi == set(got.ids), (name, kind, made)
                assert got.annotation == ",".join(got.ids), (name, kind, made)
            assert len(embedded.ids) == len(real.ids), (name, kind, made)
            assert (embedded.mounts, embedded.second) == (real.mounts, real.second), (name, kind, made)


def _generation(version: str) -> Generation:
    """The embedded kubelet that behaves as this one."""
    wanted = int(minor_release(version).split(".")[1])
    return next(each for each in GENERATIONS if int(each.split(".")[1]) >= wanted)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.usefixtures("plugins")
async def test_pods_get_the_same_from_both_kubelets(
    cluster: RigCluster, node: RigNode, pods: RigPods, short_dir: Path, count: int
) -> None:
    made = RandomPods(Random(count))
    async with Kubelet(
        short_dir, generation=_generation(cluster.version), reconcile_interval=0.05, keep_known_holes=True
    ) as embedded:
        async with serving(short_dir):
            for kind in SCRIPTS:
                await embedded.wait_for(resource(kind), healthy=DEVICES)
            both = _Pair(pods, node, embedded)
            refused = 0
            for _ in range(count):
                manifest = made.manifest(node.name)
                admitted, theirs, ours = await both.admit(manifest)
                same(theirs, ours, admitted)
                refused += bool(theirs.refusal[0])
        assert 0 < refused < count / 2
