"""One cluster per worker for all tests of this folder, cleaned between them; logs are kept where one fails."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.cluster.rig.agent import OSTLER, NodeAgent, forget
from tests.cluster.rig.api import Object, RigApi
from tests.cluster.rig.cluster import RigCluster, down, up
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.place import name_of_run
from tests.cluster.rig.pods import RigPods
from tests.cluster.rig.processes import wait_until


class RunAgent(Protocol):
    """Makes an agent on the node, started unless told otherwise; it is ended after the test."""

    def __call__(
        self,
        document: Object,
        name: str = "ostler",
        *,
        start: bool = True,
        arguments: tuple[str, ...] = (),
        program: tuple[str, ...] = OSTLER,
    ) -> NodeAgent: ...


PATIENCE = 600
"""Seconds a test may take, the start of the cluster included, on a machine that has much else to do."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """More time than other tests have, unless a test says how much it needs.

    Files that may need the most time come first, so that no cluster is left with a long one when the others are done.
    """
    needs: dict[Path, float] = {}
    for item in items:
        marker = item.get_closest_marker("timeout")
        if marker is None and Path(__file__).parent in item.path.parents:
            marker = pytest.mark.timeout(PATIENCE).mark
            item.add_marker(pytest.mark.timeout(PATIENCE))
        needs[item.path] = needs.get(item.path, 0) + (marker.args[0] if marker else 0)
    items.sort(key=lambda item: -needs[item.path])


@pytest.fixture(scope="session")
def cluster() -> Iterator[RigCluster]:
    """A cluster of one node."""
    name = name_of_run()
    try:
        yield up(name, os.environ.get("K8S", ""))
    finally:
        down(name)


@pytest.fixture
def api(cluster: RigCluster) -> RigApi:
    """The API server, asked as its administrator."""
    return cluster.api


@pytest.fixture
def pods(api: RigApi, node: RigNode) -> Iterator[RigPods]:
    """The default namespace's pods; none is left after the test, on the node neither."""
    made = RigPods(api)
    yield made
    made.delete_all()
    wait_until("the kubelet has cleaned up", lambda: not made.on_disk(node))


@pytest.fixture
def node(cluster: RigCluster) -> Iterator[RigNode]:
    """The node; containerd and kubelet run again after the test."""
    found = cluster.nodes[0]
    yield found
    if not found.pid_of("containerd"):
        found.start_containerd()
    if not found.pid_of("kubelet"):
        found.start_kubelet()
        found.wait_ready(cluster.api)


@pytest.fixture
def run_agent(node: RigNode) -> Iterator[RunAgent]:
    """Starts agents on the node; they are ended after the test, and their state is gone."""
    made: list[NodeAgent] = []

    def run(
        document: Object,
        name: str = "ostler",
        *,
        start: bool = True,
        arguments: tuple[str, ...] = (),
        program: tuple[str, ...] = OSTLER,
    ) -> NodeAgent:
        agent = NodeAgent(node, document, name, arguments, program)
        made.append(agent)
        return agent.start() if start else agent

    yield run
    for agent in made:
        agent.stop()
    forget(node)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep every component's log when a test fails."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(cluster, RigCluster) and cluster.place.log_folder.exists():
        report.sections.append(("logs of the cluster", str(cluster.keep_logs(item.name))))
    return report
