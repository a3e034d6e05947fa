"""A resource changes doors while pods use it: by the configuration or on the Node, agents killed on the way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.door.container import STAY
from tests.cluster.dra.claims import allocated, devices, request, template, user
from tests.cluster.dra.conftest import DraStage
from tests.cluster.dra.test_faults import runs_untouched
from tests.cluster.ledger.conftest import BOTH
from tests.cluster.ledger.looking import had_by, held, taints, untainted, withheld
from tests.cluster.ledger.storm import GPU
from tests.cluster.rig.agent import NodeAgent, configuration, wait_allocatable
from tests.cluster.rig.api import MERGE, Object
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.podresources import allocatable_ids
from tests.cluster.rig.pods import simple
from tests.cluster.rig.processes import wait_until

pytestmark = [pytest.mark.usefixtures("taints_kept", "lists_claims")]
LONG = pytest.mark.long
RECORDED = "h100-sxm-8"


class Mover:
    """An agent whose GPUs are moved from door to door: by ``reload``, or by the Node's ``label`` or ``annotation``."""

    def __init__(self, stage: DraStage, how: str) -> None:
        self._stage = stage
        self._how = how
        self._node = f"/api/v1/nodes/{stage.node.name}"
        self.agent = stage.run_driver(RECORDED, rule("plugin"), kubernetes=self._kubernetes())

    def move(self, door: str) -> None:
        """Have them at this door; returns before they are there."""
        if self._how == "reload":
            self.agent.configure(configuration(RECORDED, rule(door), kubernetes=self._kubernetes()))
            self.agent.command("reload")
        elif self._how == "label":
            self._write({"labels": {"ostler.dev/door": door}})
        else:
            self._write({"annotations": {"ostler.dev/doors": f"{GPU}={door}"}})

    def put_right(self) -> None:
        """The Node says nothing any more."""
        self._write({"labels": {"ostler.dev/door": None}, "annotations": {"ostler.dev/doors": None}})

    def _write(self, metadata: Object) -> None:
        self._stage.cluster.api.request("PATCH", self._node, {"metadata": metadata}, MERGE)

    def _kubernetes(self) -> Object:
        path = str(self._stage.node.folder / "kubelet.kubeconfig")
        return {"kubeconfig": path, "events": "off", "doorByNode": "off" if self._how == "reload" else "on"}


def rule(door: str) -> Object:
    """All GPUs at this door."""
    return {**BOTH, "door": door}


@pytest.fixture
def mover(stage: DraStage, request: pytest.FixtureRequest) -> Iterator[Mover]:
    """GPUs at the plugin door, and how they are moved: by reload, unless the test says otherwise."""
    made = Mover(stage, getattr(request, "param", "reload"))
    wait_allocatable(stage.cluster.api, stage.node, GPU, 8)
    yield made
    made.put_right()


@pytest.mark.parametrize("mover", ["reload", "label", pytest.param("annotation", marks=LONG)], indirect=True)
def test_idle_devices_move_and_the_others_stay_until_their_pods_end(stage: DraStage, mover: Mover) -> None:
    api, node, pods, claims, agent = stage.cluster.api, stage.node, stage.pods, stage.claims, mover.agent
    at_plugin = pods.run(simple("plugin", STAY, {GPU: 2}))
    mine = had_by(pods, agent, "plugin")

    mover.move("dra")
    wait_until("the idle ones are at the other door", lambda: len(untainted(claims.slices())) == 6)
    assert not mine & untainted(claims.slices())
    wait_allocatable(api, node, GPU, 2)
    claims.create(template("two", devices(request(count=2))))
    by_claim = pods.run(user("claims", STAY, own="two"))
    theirs = set(allocated(claims.of_pod(by_claim)))
    runs_untouched(pods, "plugin", at_plugin["metadata"]["uid"])
    pods.delete("plugin")
    wait_until("the rest follows", lambda: mine <= untainted(claims.slices()))
    wait_allocatable(api, node, GPU, 0)

    mover.move("plugin")
    wait_allocatable(api, node, GPU, 6)
    pods.run(simple("again", STAY, {GPU: 6}))
    assert not had_by(pods, agent, "again") & theirs
    wait_until("what a claim has stays in the slice", lambda: set(taints(claims.slices())) == theirs)
    wait_until("nobody else gets it by a claim", lambda: not untainted(claims.slices()))
    wait_until("nor at the plugin door", lambda: set(withheld(agent, "plugin")) == theirs)
    runs_untouched(pods, "claims", by_claim["metadata"]["uid"])
    pods.delete("claims")
    wait_allocatable(api, node, GPU, 8)
    wait_until("no slice has a device", lambda: not taints(claims.slices()))


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "step",
    ["at once", pytest.param("confirmed", marks=LONG), "written down", pytest.param("offered", marks=LONG)],
)
def test_wherever_the_agent_is_killed_idle_devices_end_at_the_new_door_and_are_never_at_both(
    step: str, stage: DraStage, mover: Mover
) -> None:
    node, claims = stage.node, stage.claims
    record = node.folder / "lib-ostler" / "dra-door.json"
    steps: dict[str, tuple[Callable[[], bool], Callable[[], bool]]] = {
        "at once": (lambda: True, lambda: True),
        "confirmed": (lambda: not allocatable_ids(node, GPU), lambda: not untainted(claims.slices())),
        "written down": (lambda: written(record), lambda: not written(record)),
        "offered": (lambda: bool(taints(claims.slices())), lambda: bool(allocatable_ids(node, GPU))),
    }
    there, back = steps[step]
    with never_at_both(stage, mover.agent):
        mover.move("dra")
        kill_when(there, mover.agent)
        wait_until("all are at the DRA door", lambda: len(untainted(claims.slices())) == 8)
        wait_until("none is at the plugin door", lambda: not allocatable_ids(node, GPU))
        mover.move("plugin")
        kill_when(back, mover.agent)
        wait_until("all are at the plugin door", lambda: len(allocatable_ids(node, GPU)) == 8)
        wait_until("none is at the DRA door", lambda: not taints(claims.slices()))
    wait_until("nothing is held", lambda: not held(mover.agent))


def written(record: Path) -> bool:
    """Whether the agent has written down that claims may be given a GPU."""
    try:
        return "gpu" in record.read_text()
    except FileNotFoundError:
        return False


def kill_when(reached: Callable[[], bool], agent: NodeAgent) -> None:
    """Kill the agent as soon as a step was taken, and start it again."""
    wait_until("the step is taken", reached)
    agent.stop(signal.SIGKILL)
    agent.start()


@contextmanager
def never_at_both(stage: DraStage, agent: NodeAgent) -> Iterator[None]:
    """Look all the while whether a device is offered at both doors: at the kubelet, in slices, at the kubelet again."""
    by_id = {id_: str(device["name"]) for id_, device in agent.offered(GPU).items()}
    seen: list[set[str]] = []
    stop = threading.Event()

    def at_plugin(node: RigNode) -> set[str]:
        return {by_id[id_] for id_ in allocatable_ids(node, GPU)}

    def look() -> None:
        while not stop.wait(0.05):
            before = at_plugin(stage.node)
            shown = untainted(stage.claims.slices())
            seen.append(before & shown & at_plugin(stage.node))

    thread = threading.Thread(target=look, name="both doors", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert len(seen) > 10, "nobody has looked"
    assert not set().union(*seen)
