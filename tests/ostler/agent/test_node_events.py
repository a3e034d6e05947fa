"""The agent's events on its Node: which, when, and that nothing else depends on them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from node.clocks import SYSTEM, SystemClocks
from node.events import Event, EventType
from ostler.agent.api_server import ApiEnvironment
from ostler.agent.event_log import EventLog
from ostler.agent.node_events import NodeEvents, events_wanted, is_posted, node_events
from ostler.cli.main import main
from ostler.config.load import load
from ostler.config.settings import Settings
from sandbox.node import SandboxNode
from sandbox.nodes import path
from tests.kube.server import Asked, CannedAnswer, StubApiServer, refused
from tests.ostler.agent.here import running_part
from tests.waiting import eventually

POD = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


class _Cluster:
    """An API server with one Node."""

    def __init__(self, server: StubApiServer, folder: Path) -> None:
        self.server = server
        self.node: dict[str, object] | None = {"machineID": "0123", "systemUUID": "AA-BB"}
        self.kubeconfig = folder / "kubeconfig"
        self.etc = folder / "etc"
        self.etc.mkdir()
        (self.etc / "machine-id").write_text("0123\n")
        self.sys = folder / "sys"
        (self.sys / "class/dmi/id").mkdir(parents=True)
        (self.sys / "class/dmi/id/product_uuid").write_text("aa-bb\n")
        server.respond = self._respond
        self.write()

    def write(self) -> None:
        content = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "main"}}],
            "clusters": [{"name": "main", "cluster": {"server": self.server.url}}],
        }
        self.kubeconfig.write_text(yaml.safe_dump(content))

    def _respond(self, asked: Asked) -> CannedAnswer:
        if asked.method != "GET":
            return CannedAnswer.of(asked.body, 201)
        if self.node is None:
            return refused(404, "NotFound", 'nodes "worker-1" not found')
        return CannedAnswer.of({"kind": "Node", "status": {"nodeInfo": self.node}})

    def settings(self, **flags: str) -> Settings:
        given = {"kubeconfig": str(self.kubeconfig), "node_name": "worker-1", "sys_root": str(self.sys), **flags}
        return load(None, {f"--{name.replace('_', '-')}": text for name, text in given.items()}, {}).settings

    @property
    def reasons(self) -> list[object]:
        return [asked.body["reason"] for asked in self.server.requests("POST")]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[_Cluster]:
    with StubApiServer() as server:
        yield _Cluster(server, tmp_path)


@asynccontextmanager
async def running(cluster: _Cluster, log: EventLog, **flags: str) -> AsyncIterator[NodeEvents]:
    environment = ApiEnvironment({}, etc=cluster.etc, random=lambda: 0.5, retry=(0.01, 0.02))
    part = NodeEvents(cluster.settings(**flags), log, environment)
    async with running_part(part.run()):
        yield part


def posting() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "kubernetes events"]


async def test_events_of_before_and_after_the_start_are_posted(cluster: _Cluster) -> None:
    log = EventLog(SystemClocks(clock=lambda: 1_700_000_000.0))
    log.emit(EventType.WARNING, "ForeignPlugin", "nvidia.com/gpu is served by another plugin")
    async with running(cluster, log) as part:
        await eventually(lambda: part.metrics.taken.total == 1)
        log.emit(EventType.NORMAL, "Quiesced", "the driver is left alone")
        await eventually(lambda: part.metrics.taken.total == 2)
        assert part.reasons() == ()
        assert (part.metrics.given_up.total, part.metrics.failures.total, part.failing) == (0, 0, "")
        (thread,) = posting()
        assert thread.daemon, "a request on its way must not hold up the end of the process"
    await eventually(lambda: not posting(), "the thread ends with its part")
    assert cluster.reasons == ["ForeignPlugin", "Quiesced"]
    body = cluster.server.requests("POST")[0].body
    assert body["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "worker-1", "uid": "worker-1"}
    assert (body["type"], body["message"]) == ("Warning", "nvidia.com/gpu is served by another plugin")
    assert (body["reportingComponent"], body["reportingInstance"]) == ("ostler", "worker-1")
    assert body["firstTimestamp"] == "2023-11-14T22:13:20Z"


@pytest.mark.parametrize(
    ("kind", "reason", "posted"),
    [
        (EventType.WARNING, "RegistrationRefused", True),
        (EventType.NORMAL, "Resumed", True),
        (EventType.NORMAL, "Chatter", False),
        (EventType.WARNING, "NodeNotOurs", False),
    ],
)
def test_warnings_are_posted_and_of_the_others_those_that_change_the_offer(
    kind: EventType, reason: str, posted: bool
) -> None:
    assert is_posted(Event(0.0, kind, reason, "")) is posted


async def test_nothing_is_written_to_a_node_that_is_another_machine(cluster: _Cluster) -> None:
    log = EventLog(SYSTEM)
    log.emit(EventType.WARNING, "ForeignPlugin", "text")
    cluster.node = {"machineID": "ffff", "systemUUID": "AA-BB"}
    async with running(cluster, log) as part:
        await eventually(lambda: "is not this machine" in part.failing)
        (reason,) = part.reasons()
        assert reason.startswith("events are not posted on the Node: Node worker-1 is not this machine: ")
        await eventually(lambda: len(cluster.server.asked) > 3)
        assert [event.reason for event in log.recent] == ["ForeignPlugin", "NodeNotOurs"], "told once, and only here"
        assert {asked.method for asked in cluster.server.asked} == {"GET"}
        cluster.node = {"machineID": "0123", "systemUUID": "AA-BB"}
        await eventually(lambda: part.metrics.taken.total == 1)
    assert cluster.reasons == ["ForeignPlugin"]


async def test_a_node_and_a_kubeconfig_that_come_later_are_waited_for(cluster: _Cluster) -> None:
    log = EventLog(SYSTEM)
    log.emit(EventType.WARNING, "ForeignPlugin", "text")
    cluster.kubeconfig.unlink()
    cluster.node = None
    async with running(cluster, log) as part:
        await eventually(lambda: f"{cluster.kubeconfig}: cannot be read" in part.failing)
        cluster.write()
        await eventually(lambda: 'nodes "worker-1" not found' in part.failing)
        cluster.node = {}
        await eventually(lambda: part.metrics.taken.total == 1)


async def test_a_missing_right_is_shown_and_the_end_is_prompt(cluster: _Cluster) -> None:
    log = EventLog(SYSTEM)
    log.emit(EventType.WARNING, "ForeignPlugin", "text")
    respond = cluster.server.respond

    def without_right(asked: Asked) -> CannedAnswer:
        return respond(asked) if asked.method == "GET" else refused(403, "Forbidden", "cannot create resource events")

    cluster.server.respond = without_right
    async with running(cluster, log) as part:
        why = "POST /api/v1/namespaces/default/events: 403 Forbidden: cannot create resource events"
        await eventually(lambda: part.reasons() == (f"events are not posted on the Node: {why}",))
        await eventually(lambda: part.metrics.failures.total)


async def test_a_server_that_hangs_does_not_hold_up_the_end(cluster: _Cluster) -> None:
    cluster.server.respond = lambda _: CannedAnswer(wait=True)
    async with running(cluster, EventLog(SYSTEM)) as part:
        await eventually(lambda: cluster.server.asked)
        assert part.failing == "the API server has not answered yet"


async def test_a_fault_of_ours_ends_the_part_and_is_said(cluster: _Cluster, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> float:
        raise RuntimeError("no numbers left")

    cluster.node = None
    part = NodeEvents(cluster.settings(), EventLog(SYSTEM), ApiEnvironment({}, etc=cluster.etc, random=broken))
    await asyncio.wait_for(part.run(), 120)
    assert part.failing == "stopped by an unexpected fault (RuntimeError: no numbers left)"
    assert "events are no longer posted" in caplog.text


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """A pod's service account folder."""
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text("token\n")
    return folder


def wanted(environment: dict[str, str] | None = None, account: Path = Path("/none"), **flags: str) -> bool:
    given = {f"--{name.replace('_', '-')}": text for name, text in flags.items()}
    return events_wanted(load(None, given, {}).settings, ApiEnvironment(environment or {}, account))


def test_auto_means_a_known_node_and_a_way_to_the_api_server(account: Path) -> None:
    assert not wanted()
    assert not wanted(node_name="a")
    assert not wanted(POD, account), "whose Node it is must be given"
    assert wanted(POD, account, node_name="a")
    assert not wanted(POD, node_name="a"), "a pod without an account"
    assert wanted(node_name="a", kubeconfig="/etc/kubernetes/kubelet.conf")


def test_auto_posts_nothing_about_recorded_devices_and_off_nothing_at_all(account: Path) -> None:
    assert not wanted(POD, account, node_name="a", recorded="a.yaml")
    assert wanted(POD, account, node_name="a", recorded="a.yaml", kubernetes_events="on")
    assert not wanted(POD, account, node_name="a", kubernetes_events="off")


def test_outside_of_a_cluster_there_is_no_such_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert node_events(load(None, {"--node-name": "a"}, {}).settings, EventLog(SYSTEM)) is None


async def test_on_without_a_cluster_says_what_is_missing(cluster: _Cluster) -> None:
    settings = load(None, {"--node-name": "a", "--kubernetes-events": "on"}, {}).settings
    part = NodeEvents(settings, EventLog(SYSTEM), ApiEnvironment({}))
    task = asyncio.create_task(part.run())
    await eventually(lambda: "KUBERNETES_SERVICE_HOST" in part.failing)
    assert part.failing == "environment: KUBERNETES_SERVICE_HOST: is not set; run in a pod, or give a kubeconfig"
    task.cancel()


@pytest.mark.usefixtures("executed_ostler")
async def test_an_agents_events_reach_its_node(cluster: _Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    """The process as it runs on a node; of the client library it loads the transport alone."""
    cluster.node = {"systemUUID": "AA-BB"}
    flags = {
        "--node-name": "worker-1",
        "--kubernetes-events": "on",
        "--kubeconfig": str(cluster.kubeconfig),
        "--sys-root": str(cluster.sys),
    }
    async with SandboxNode(path("l4-2"), flags=flags, reconcile_interval=0.05) as box:
        status = await box.registered()
        socket = ("--socket", str(box.root / "ostler.sock"))
        assert await asyncio.to_thread(main, ["quiesce", "--reason", "test", *socket]) == 0
        await eventually(lambda: cluster.reasons == ["Quiesced"])
        assert "pydantic" not in Path(f"/proc/{box.agent.pid}/maps").read_text()

        async def well() -> bool:
            nonlocal status
            status = await box.agent.status()
            return not [reason for reason in status.reasons if "not posted" in reason]

        await eventually(well)
        cluster.server.respond = lambda _: refused(403, "Forbidden", "cannot create resource events")
        assert await asyncio.to_thread(main, ["resume", *socket]) == 0

        async def told() -> bool:
            return any("events are not posted on the Node: POST" in each for each in (await box.agent.status()).reasons)

        await eventually(told)
        assert (await box.agent.status()).ready, "devices are served all the same"
