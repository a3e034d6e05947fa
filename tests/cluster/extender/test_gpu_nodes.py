"""Gangs on real nodes: what the scheduler, the extender, the kubelets and the agents make of them together.

Containers hold exactly the devices that the extender chose, and no device is in two of them. Tests look from inside the
containers, and all the while from outside. Everything is done with one door, and then with both doors in use; the
short run has one test, with both doors.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.cluster.components.versions import has_dra_gates
from tests.cluster.dra.claims import devices, request, template
from tests.cluster.dra.classes import apply_classes
from tests.cluster.extender.gpu_nodes import GPUS, GpuNodes, whole
from tests.cluster.ledger.overlaps import OverlapWatcher
from tests.cluster.rig.cluster import RigCluster, down, up
from tests.cluster.rig.place import name_of_run
from tests.cluster.rig.pods import PODS, phase
from tests.cluster.rig.processes import wait_until

pytestmark = pytest.mark.timeout(1200)
LONG = pytest.mark.long
NODES = 6
ISLAND = 'device.attributes["ostler.dev"].?cell4.orValue("") == "socket-0"'


@pytest.fixture(scope="module")
def cluster() -> Iterator[RigCluster]:
    """A cluster of six nodes."""
    kind, _, process = name_of_run().rpartition("-")
    name = f"{kind}-gangs-{process}"
    try:
        made = up(name, os.environ.get("K8S", ""), NODES)
        apply_classes(made)
        yield made
    finally:
        down(name)


@pytest.fixture(scope="module", params=[pytest.param("plugin", marks=LONG), "both"])
def built(cluster: RigCluster, request: pytest.FixtureRequest) -> Iterator[GpuNodes]:
    """Agents, extender and scheduler."""
    if request.param == "both" and not has_dra_gates(cluster.version):
        pytest.skip("this Kubernetes drops device taints, so that both acts as plugin")
    made = GpuNodes(cluster, request.param)
    try:
        made.build()
        yield made
    finally:
        made.strike()


@pytest.fixture
def stage(built: GpuNodes) -> Iterator[GpuNodes]:
    """They; with claims in use if both doors are. All containers are looked at until the end of the test."""
    before = built.outcomes()
    with OverlapWatcher(r"nvidia\d+", *built.nodes.values()) as watcher:
        if built.has_claims:
            built.claims.create(template("pair", devices(request(count=2, cel=ISLAND))))
            for number in range(2):
                built.claiming(f"claiming-{number}", "pair", 2)
        yield built
        if built.has_claims:
            assert_claims_are_served(built)
        built.clear()
    seen = watcher.report
    assert not seen.overlaps, seen.overlaps
    assert seen.pods, "no container was seen"
    assert built.outcomes()["other"] == before["other"], "a pod got other devices than recorded"


def assert_claims_are_served(stage: GpuNodes) -> None:
    """The pods with claims hold what was allocated to them, all of it in their island."""
    held = [stage.held(f"claiming-{number}") for number in range(2)]
    assert {each.node for each in held} == {stage.last}
    assert sorted(number for each in held for number in each.numbers) == [0, 1, 2, 3]


def assert_disjoint(stage: GpuNodes) -> None:
    """No two running pods hold one device."""
    held = {name: stage.held(name) for name in stage.running()}
    taken = [(each.node, number) for each in held.values() for number in each.numbers]
    assert len(set(taken)) == len(taken), held


@LONG
def test_gangs_of_whole_nodes_hold_exactly_these_and_another_one_waits(stage: GpuNodes) -> None:
    gangs = [stage.gang(f"gang-{number}", 2, 8) for number in range(stage.whole // 2)]
    found = stage.exact(*(name for gang in gangs for name in gang))
    assert all(held.numbers == tuple(range(GPUS)) for held in found.values())
    assert len({held.node for held in found.values()}) == len(found)
    assert_disjoint(stage)
    late = stage.gang("late", 2, 8)
    stage.wait_unschedulable(late[0], "Insufficient nvidia.com/gpu")
    stage.end(*gangs[0])
    others = {found[name].node for gang in gangs[1:] for name in gang}
    assert not others & {held.node for held in stage.exact(*late).values()}
    assert_disjoint(stage)


def test_pods_hold_the_islands_that_were_recorded_and_not_those_that_the_plugin_prefers(stage: GpuNodes) -> None:
    """Of every size at once, so that kubelets admit several pods of one size at the same time."""
    names = [
        name
        for size, pods in ((4, 4), (2, 4), (1, 8))
        for name in stage.gang(f"of-{size}", pods, size)
    ]  # fmt: skip
    found = stage.exact(*names)
    islands = {name: {number // 4 for number in held.numbers} for name, held in found.items()}
    assert all(len(each) == 1 for each in islands.values()), islands
    assert_disjoint(stage)


@LONG
def test_a_stronger_gang_takes_whole_nodes_from_gangs_of_islands_and_others_go_on(stage: GpuNodes) -> None:
    weak = [stage.gang(f"weak-{number}", 4, 4) for number in range(stage.islands // 4)]
    before = stage.exact(*(name for gang in weak for name in gang))
    strong = stage.gang("strong", 2, 8, priority=5, rank="strong")
    taken = stage.exact(*strong)
    nodes = {held.node for held in taken.values()}
    assert len(nodes) == 2
    for name, held in before.items():
        if held.node in nodes:
            assert stage.api.find(f"{PODS}/{name}") is None, "it gave its devices away"
    assert_disjoint(stage)
    left = [name for name in before if name in stage.running()]
    assert {name: (each.node, each.numbers) for name, each in stage.exact(*left).items()} == {
        name: (before[name].node, before[name].numbers) for name in left
    }
    # And back: stronger gangs of islands.
    stage.exact(*stage.gang("strongest", 4, 4, priority=9, rank="stronger"))
    assert_disjoint(stage)


@LONG
def test_an_extender_that_is_killed_in_the_middle_gives_nothing_twice(stage: GpuNodes) -> None:
    gangs = [stage.gang(f"before-{number}", 4, 4) for number in range(2)]
    wait_until("some pods are bound", lambda: sum("nodeName" in one["spec"] for one in stage.pods.all()) >= 4)
    stage.end_extender(signal.SIGKILL)
    late = stage.gang("after", 2, 2)
    stage.start_extender()
    stage.exact(*(name for gang in (*gangs, late) for name in gang))
    assert_disjoint(stage)
    # Once more with everything bound: the books come from the annotations alone.
    stage.end_extender(signal.SIGTERM)
    stage.start_extender()
    groups = stage.inspect("affinitygroups/")["items"]
    states = {each["metadata"]["name"]: each["status"]["state"] for each in groups}
    assert {f"before-{number}" for number in range(2)} | {"after"} <= states.keys()
    assert set(states.values()) == {"Allocated"}
    stage.exact(*stage.gang("rest", 1, 4))
    assert_disjoint(stage)


@LONG
def test_another_configuration_leaves_every_pod_its_devices_and_gives_teams_what_they_own(stage: GpuNodes) -> None:
    gangs = [stage.gang(f"kept-{number}", 2, 8) for number in range(stage.whole // 2)]
    names = [name for gang in gangs for name in gang]
    before = {name: (held.node, held.numbers) for name, held in stage.exact(*names).items()}
    try:
        stage.reconfigure(stage.configuration(team=[whole(stage.whole - 2)], other=[whole(2)]))
        assert {name: (held.node, held.numbers) for name, held in stage.exact(*names).items()} == before
        # One gang is beyond what the team owns by now, and yields.
        owner = stage.gang("owner", 2, 8, team="other", priority=1, rank="strong")
        stage.exact(*owner)
        assert_disjoint(stage)
        left = [name for name in names if name in stage.running()]
        assert {name: (held.node, held.numbers) for name, held in stage.exact(*left).items()} == {
            name: before[name] for name in left
        }
    finally:
        stage.end(*names, "owner-0", "owner-1")
        stage.reconfigure(stage.configuration(team=[whole(stage.whole)]))


@LONG
def test_agents_that_are_killed_in_the_middle_go_on_by_the_record(stage: GpuNodes) -> None:
    gangs = [stage.gang(f"burst-{number}", 4, 2) for number in range(3)]
    for agent in stage.agents.values():
        agent.stop(signal.SIGKILL)
        agent.spawn()
    stage.wait_offered(*stage.nodes)
    # A kubelet refuses for good what it admits while it has no plugin.
    for name in (name for gang in gangs for name in gang):
        stage.pods.wait(name, "runs or is refused", lambda pod: phase(pod) in {"Running", "Failed"}, 120)
    stage.exact(*(name for name in stage.running() if name.startswith("burst")), *stage.gang("after", 4, 4))
    assert_disjoint(stage)


@LONG
@pytest.mark.parametrize("built", ["both"], indirect=True)
def test_a_claim_that_knows_nothing_of_cells_makes_gangs_wait_and_shares_nothing(stage: GpuNodes) -> None:
    """The scheduler allocates it anywhere; the extender sees no pod of it, the kubelet's offer shrinks."""
    stage.claims.create(template("any", devices(request(count=2))))
    stage.create_plain("stranger", "any")
    taken = stage.held("stranger")
    gang = stage.gang("gang", stage.whole, 8, ignoreK8sSuggestedNodes=False)
    stage.wait_unschedulable(gang[0], "")
    assert_disjoint(stage)
    stage.end("stranger")
    assert taken.node in {held.node for held in stage.exact(*gang).values()}


@LONG
def test_a_node_that_is_lost_keeps_its_gang_and_gets_no_other_until_it_is_back(stage: GpuNodes) -> None:
    gangs = [stage.gang(f"gang-{number}", 2, 8) for number in range(stage.whole // 2)]
    filler = stage.gang("filler", stage.whole % 2, 8)
    found = stage.exact(*(name for gang in (*gangs, filler) for name in gang))
    lost = found[gangs[0][0]].node
    stage.lose(lost)
    late = stage.gang("late", 2, 8)
    for name in gangs[0]:
        # Nobody on the lost node confirms that its pod has ended.
        stage.api.delete(f"{PODS}/{name}", 0)
    stage.wait_unschedulable(late[0], f"bad node {lost}")
    stage.end(*gangs[1])
    assert lost not in {held.node for held in stage.exact(*late).values()}
    stage.bring_back(lost)
    assert lost in {held.node for held in stage.exact(*stage.gang("back", 2, 8)).values()}
    assert_disjoint(stage)
